"""Predictions for nodes that a model has not seen: new rows, new edges, another graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from adagpr.data import read_tables
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.training.folder import load_run
from adagpr.training.run import Run


class Predictor(Protocol):
    """Whatever predicts the nodes of a graph: a `Run`, or several of them together."""

    def predict(self, graph: Graph) -> pa.Table:
        """One row per node: id, class, calibrated probability of each class, reason to doubt."""


def predict(run: Run | Path | str, nodes: Any, edges: Any, **columns: Any) -> tuple[pa.Table, tuple[str, ...]]:
    """Predicts the class of every node of a table.

    A prediction depends on a node's neighbours, so the tables must hold all of them: for nodes that joined a known
    graph, that graph and the new rows. The features are made by the recipe of the training, from the same columns.

    Args:
        run: A run on tables, or its folder.
        nodes: One row per node, as for `adagpr.from_tables`; labels are not needed and not read.
        edges: One row per edge.
        **columns: ``id``, ``source``, ``target``, ``weight`` and ``directed`` where they differ from the training.

    Returns:
        One row per node, in the order of their ids: id, class, calibrated probability of each class, reason to doubt;
        and sentences on what was found.

    Raises:
        InputError: The run is not one on tables, or the tables differ from those of the training.
    """
    run = run if isinstance(run, Run) else load_run(run)
    if run.recipe is None:
        raise InputError("predict: this run was not trained on tables, so there is no recipe for its features.")
    # Columns have the names that they had in training, whatever would be found in a table by itself.
    asked = {**run.recipe["columns"], **{key: value for key, value in columns.items() if value is not None}}
    names = run.record["data"]["class_names"]
    found = read_tables(nodes, edges, None, recipe=run.recipe["features"], class_names=names, **asked)
    return run.predict(found.graph, {"unseen category": found.num_unseen > 0}), found.messages
