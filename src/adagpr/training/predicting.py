"""What a trained model says of nodes that it has not seen: new rows, new edges, another graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from adagpr.data import read_tables
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.ops import features
from adagpr.training.run import Run, class_table, doubts_of, load_run

__all__ = ["predict", "predict_graph"]


def predict(run: Run | Path | str, nodes: Any, edges: Any, **columns: Any) -> tuple[pa.Table, tuple[str, ...]]:
    """Predicts the class of every node of a table.

    Every node reads its neighbours, so the tables hold all that is to be read: for nodes that joined a known graph,
    that graph and the new rows. The features are made by the recipe of the training, from the same columns.

    Args:
        run: A run on tables, or its folder.
        nodes: One row a node, as for `adagpr.from_tables`; labels are not needed and not read.
        edges: One row an edge.
        **columns: ``id``, ``source``, ``target``, ``weight`` and ``directed`` where they differ from the training.

    Returns:
        One row a node, in the order of their ids: id, class, calibrated probability of each class, reason to doubt; and
        sentences on what was found.

    Raises:
        InputError: The run is not one on tables, or the tables differ from those of the training.
    """
    run = run if isinstance(run, Run) else load_run(run)
    if run.recipe is None:
        raise InputError("predict: this run was not trained on tables, so that nothing says how to make its features.")
    if not isinstance(run.recipe.get("columns"), Mapping) or "features" not in run.recipe:
        raise InputError("predict: recipe.json of this run is of another version or damaged; train it again.")
    # Columns have the names that they had in training, whatever would be found in a table by itself.
    asked = {**run.recipe["columns"], **{key: value for key, value in columns.items() if value is not None}}
    names = run.record["data"]["class_names"]
    found = read_tables(nodes, edges, None, recipe=run.recipe["features"], class_names=names, **asked)
    doubts = {"unseen category": found.num_unseen > 0}
    return predict_graph(run, found.graph, doubts), found.messages


def predict_graph(run: Run, graph: Graph, doubts: Mapping[str, np.ndarray] | None = None) -> pa.Table:
    """Predicts the class of every node of a graph with the features of the training.

    Args:
        run: A run.
        graph: The graph; its labels are not read.
        doubts: Reasons to doubt a prediction, each with the nodes that it holds for as a mask.

    Raises:
        InputError: The graph has another number of features.
    """
    data, training = run.record["data"], run.record["config"]["training"]
    if graph.num_features != data["num_features"]:
        raise InputError(
            f"predict: the model was trained on {data['num_features']} features, got {graph.num_features}."
        )
    model = run.model.eval()
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    structure = model.structure(graph, training["direction"], training["self_loops"], device)
    with torch.inference_mode():
        logits = model(features(graph.x).to(device), structure).cpu()
    reasons = {**doubts_of(graph), **(doubts or {})}
    return class_table(pa.array(graph.node_ids.tolist()), logits, data["class_names"], run.temperature, reasons)
