"""A finished run: its record, its history, its predictions and its model."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import SPLIT_NAMES, Graph, Split
from adagpr.nn import Model
from adagpr.ops import UNSCALED, FeatureScaling, compute_threads, features
from adagpr.schemas import RECORD_FORMAT
from adagpr.system import describe_machine
from adagpr.task import METRICS, Classification, primary_of, scores_of_result
from adagpr.training.state import State, columns_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes:
        record: Configuration, data, result and coefficients as plain data; only ``machine`` may differ between
            equal runs.
        model: The model at its best epoch.
        history: One row per epoch: losses, accuracies, every coefficient of every layer.
        predictions: One row per node: id, part of the split, label, prediction, calibrated probability of each class,
            and a reason to doubt it if there is one.
        folder: Where the run is kept, if anywhere.
        recipe: How the features were made, for a graph from tables; see `adagpr.data.tables.recipe`.
        scaling: What is done to features before the model sees them.
    """

    record: dict[str, Any]
    model: Model
    history: pa.Table
    predictions: pa.Table
    folder: Path | None = None
    recipe: Mapping[str, Any] | None = None
    scaling: FeatureScaling = UNSCALED

    def score(self, split: str, metric: str | None = None) -> float:
        """A score at the best epoch.

        Args:
            split: ``"train"``, ``"val"`` or ``"test"``.
            metric: ``"loss"`` (without class weights and penalties) or one of `adagpr.task.METRICS`, such as
                ``"accuracy"`` or ``"roc_auc"``; by default the one by which the run is compared.

        Raises:
            InputError: The split has no nodes, or the run was not measured by that metric.
        """
        scores = scores_of_result(self.record["result"]).get(split, {})
        metric = metric or self.metric
        if metric not in scores:
            raise InputError(f"This run has no {metric} on its {split} nodes.")
        return float(scores[metric])

    @property
    def metric(self) -> str:
        """The metric by which the run is compared and which is reported first."""
        return primary_of(self.record["result"])

    @property
    def test_acc(self) -> float:
        """Accuracy on the test nodes at the best epoch."""
        return self.score("test", "accuracy")

    @property
    def val_acc(self) -> float:
        """Accuracy on the validation nodes at the best epoch."""
        return self.score("val", "accuracy")

    @property
    def best_val_loss(self) -> float:
        """Validation loss at the best epoch as in the history: with class weights, without penalties."""
        return float(self.history["val_loss"][self.best_epoch - 1].as_py())

    @property
    def best_epoch(self) -> int:
        """The epoch, counted from 1, that validation chose."""
        return int(self.record["result"]["best_epoch"])

    @property
    def num_epochs(self) -> int:
        """How many epochs were trained."""
        return int(self.record["result"]["num_epochs"])

    @property
    def temperature(self) -> float:
        """What logits are divided by before they become probabilities; 1 for records that do not have it."""
        return float(self.record.get("calibration", {}).get("temperature", 1.0))

    @property
    def coefficients(self) -> Tensor | None:
        """The weight of each hop in each layer, if the model has such weights."""
        return self.model.coefficients()

    def scaled(self, graph: Graph) -> Graph:
        """A graph with features as they come, with its features as the model takes them."""
        return graph.with_features(self.scaling(graph.x))

    def predict(self, graph: Graph, warnings: Mapping[str, np.ndarray] | None = None) -> pa.Table:
        """Predicts the class of every node of a graph with the features of the training.

        Args:
            graph: The graph. Its labels are not read; nodes that the model was trained on are known by their ids.
            warnings: Reasons to doubt a prediction, each with a mask of the nodes that it holds for.

        Raises:
            InputError: The graph has another number of features.
        """
        data, training = self.record["data"], self.record["config"]["training"]
        if graph.num_features != data["num_features"]:
            raise InputError(
                f"predict: the model was trained on {data['num_features']} features, got {graph.num_features}."
            )
        model = self.model.eval()
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        labelled = replace(self.scaled(graph), y=self._training_labels(graph))
        structure = model.structure(labelled, training["direction"], training["self_loops"], device)
        with torch.inference_mode(), compute_threads():
            logits = model(features(labelled.x).to(device), structure).cpu()
        reasons = {**node_warnings(graph), **(warnings or {})}
        return class_table(pa.array(graph.node_ids.tolist()), logits, data["class_names"], self.temperature, reasons)

    def _training_labels(self, graph: Graph) -> Tensor:
        """The class of each node of ``graph`` that the model was trained on, by its id; -1 for all others."""
        codes = {name: code for code, name in enumerate(self.record["data"]["class_names"])}
        columns = (self.predictions[name].to_pylist() for name in ("node_id", "part", "label"))
        known = {node: codes[label] for node, part, label in zip(*columns, strict=True) if part == "train"}
        return torch.tensor([known.get(node, -1) for node in graph.node_ids.tolist()])

    def predictions_frame(self) -> pd.DataFrame:
        """The predictions as a pandas frame, which must be installed."""
        return self.predictions.to_pandas()

    def history_frame(self) -> pd.DataFrame:
        """The history as a pandas frame, which must be installed."""
        return self.history.to_pandas()

    def summary(self) -> dict[str, str]:
        """What a person wants to know first, as texts."""
        config, scores = self.record["config"], scores_of_result(self.record["result"])
        found = {"model": config["model"]["name"], "data": f"{config['data']['name']}, split {config['data']['split']}"}
        for metric in dict.fromkeys([self.metric, "accuracy"]):
            shown = {split: each[metric] for split, each in scores.items() if metric in each}
            found |= {f"{split} {METRICS[metric].title}": f"{100 * value:.1f} %" for split, value in shown.items()}
        return {**found, "best epoch": f"{self.best_epoch} of {self.num_epochs}"}

    def __repr__(self) -> str:
        return f"Run({', '.join(f'{key}: {value}' for key, value in self.summary().items())})"

    def _repr_html_(self) -> str:
        """A table for notebooks: the summary, and the weight of each hop in each layer."""
        rows = [f"<tr><th>{key}</th><td>{html.escape(value)}</td></tr>" for key, value in self.summary().items()]
        page = f"<table>{''.join(rows)}</table>"
        if self.coefficients is not None:
            hops = "".join(f"<th>{name}</th>" for name in self.model.hop_names())
            layers = "".join(
                f"<tr><td>{number}</td>{''.join(f'<td>{value:.3f}</td>' for value in layer)}</tr>"
                for number, layer in enumerate(self.coefficients.tolist(), 1)
            )
            page += f"<table><tr><th>layer</th>{hops}</tr>{layers}</table>"
        return page


def scaling_sentence(record: Mapping[str, Any]) -> str | None:
    """What a record says was done to the features, where anything was asked for."""
    asked, kind = record["config"]["training"].get("feature_scaling"), record.get("feature_scaling", "none")
    if asked is None:
        return None
    words = {
        "none": "Features are taken as they are",
        "rows": "Each row of features is divided by its sum of absolute values",
        "standardise": "Columns of features are standardised",
    }
    return f"{words[kind]}{' (chosen by feature_scaling=auto)' if asked == 'auto' else ''}."


def make_record(
    state: State,
    config: Mapping[str, Any],
    data: Mapping[str, Any],
    scores: Mapping[str, Any],
    temperature: float,
    machine: Mapping[str, Any],
    scaling: FeatureScaling,
) -> dict[str, Any]:
    """The record of a training that is over; ``machine`` is added to what is known of the machine."""
    model, best_epoch = state.model, state.stopping.best_epoch
    record = {
        "format": RECORD_FORMAT,
        "config": config,
        "data": data,
        "result": {
            "best_epoch": best_epoch,
            "num_epochs": len(state.history),
            "stopped_by": state.stopped_by,
            "val_objective": state.history[best_epoch - 1].val_objective,
            "primary": state.config.metric,
            "scores": scores,
        },
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "machine": {**describe_machine(state.seconds), **machine, "recompute": model.recompute},
        "calibration": {"temperature": temperature},
        "feature_scaling": scaling.kind,
    }
    coefficients = model.coefficients()
    return record if coefficients is None else {**record, "coefficients": coefficients.tolist()}


def coefficient_column(layer: int, hop: int) -> str:
    """Name of a coefficient's column in the history; layers count from 1, hops from 0."""
    return f"coeff_{layer}_{hop}"


def history_table(state: State) -> pa.Table:
    """The history as a table, one row per epoch."""
    names, numbers = columns_of(state.history), np.arange(1, len(state.history) + 1)
    columns = {"epoch": numbers, **{name: np.array([getattr(row, name) for row in state.history]) for name in names}}
    if state.coeffs is not None:
        _, num_layers, num_coeffs = state.coeffs.shape
        for layer, hop in itertools.product(range(num_layers), range(num_coeffs)):
            columns[coefficient_column(layer + 1, hop)] = state.coeffs[:, layer, hop].numpy()
    return pa.table(columns)


def predictions_table(graph: Graph, split: Split, logits: Tensor, temperature: float) -> pa.Table:
    """The predictions for every node of the graph that the model was trained on."""
    part = np.full(graph.num_nodes, "", dtype=object)
    for name in SPLIT_NAMES:
        part[getattr(split, name).numpy()] = name
    ids = pa.array(graph.node_ids.tolist())
    table = class_table(ids, logits, graph.class_names, temperature, node_warnings(graph))
    return with_labels(table, part, graph.y, graph.class_names)


def with_labels(table: pa.Table, part: np.ndarray, y: Tensor, class_names: Sequence[str]) -> pa.Table:
    """A table of `class_table` with the part of the split and the label, if known, of each node after its id."""
    names = np.array([*class_names, None], dtype=object)
    table = table.add_column(1, "part", pa.array(part.tolist(), pa.string()))
    return table.add_column(2, "label", pa.array(names[y.numpy()].tolist(), pa.string()))


def node_warnings(graph: Graph) -> dict[str, np.ndarray]:
    """Reasons to doubt any prediction for nodes of a graph, each with a mask of the nodes that it holds for."""
    return {"no neighbours": graph.num_neighbours == 0}


def class_table(
    node_ids: pa.Array,
    logits: Tensor,
    class_names: Sequence[str],
    temperature: float,
    warnings: Mapping[str, np.ndarray],
) -> pa.Table:
    """The predictions for nodes: id, class, probability of each class, reasons to doubt.

    ``warnings`` are such reasons, each with a mask of the nodes that it holds for.
    """
    probabilities = Classification().probabilities(logits, temperature).numpy()
    chosen = probabilities.argmax(1)
    # Nearer to a guess among all classes than to certainty.
    unsure = ~(probabilities.max(1) >= (1 + 1 / len(class_names)) / 2)
    doubt = np.full(len(node_ids), None, dtype=object)
    for reason, mask in {**warnings, "low confidence": unsure}.items():
        doubt[mask] = [reason if before is None else f"{before}, {reason}" for before in doubt[mask]]
    columns: dict[str, Any] = {
        "node_id": node_ids,
        "prediction": pa.array(np.array(class_names, dtype=object)[chosen].tolist(), pa.string()),
    }
    columns |= {f"p_{name}": probabilities[:, i].astype(np.float32) for i, name in enumerate(class_names)}
    return pa.table({**columns, "doubt": pa.array(doubt.tolist(), pa.string())})
