"""A finished run: its record, its history, its predictions and its model, in memory or in a folder.

A run folder holds ``config.toml``, ``model.safetensors``, ``history.parquet``, ``predictions.parquet``, for a graph of
tables ``recipe.json`` and, written last, ``record.json``: where it stands, the run is complete. While training goes on,
``checkpoint/`` holds its state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from adagpr.errors import InputError, memory_errors
from adagpr.files import read_json, write_atomically, write_json
from adagpr.graph import SPLIT_NAMES, Graph, Split
from adagpr.nn import Model, build
from adagpr.training.checkpoint import load_tensors, save_tensors

__all__ = [
    "Run",
    "class_table",
    "coefficient_column",
    "doubts_of",
    "history_table",
    "load_run",
    "predictions_table",
    "save_run",
]


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes:
        record: Configuration, data, result and coefficients as plain data; ``machine`` alone may differ between
            equal runs.
        model: The model at its best epoch.
        history: One row an epoch: losses, accuracies, every coefficient of every layer.
        predictions: One row a node: id, part of the split, label, prediction, calibrated probability of each class,
            and where there is one a reason to doubt it.
        folder: Where the run is kept, if anywhere.
        recipe: How the features were made, for a graph from tables; see `adagpr.data.tables.recipe`.
    """

    record: dict[str, Any]
    model: Model
    history: pa.Table
    predictions: pa.Table
    folder: Path | None = None
    recipe: Mapping[str, Any] | None = None

    @property
    def test_acc(self) -> float:
        """Accuracy on the test nodes at the best epoch."""
        return float(self.record["result"]["test_acc"])

    @property
    def val_acc(self) -> float:
        """Accuracy on the validation nodes at the best epoch."""
        return float(self.record["result"]["val_acc"])

    @property
    def val_loss(self) -> float:
        """Loss on the validation nodes at the best epoch, with the class weights of training and without penalties."""
        return float(self.history["val_loss"][self.best_epoch - 1].as_py())

    @property
    def best_epoch(self) -> int:
        """The epoch, counted from 1, that validation chose."""
        return int(self.record["result"]["best_epoch"])

    @property
    def temperature(self) -> float:
        """By what logits are divided before they become probabilities; 1 for runs from before this was found."""
        return float(self.record.get("calibration", {}).get("temperature", 1.0))

    @property
    def coefficients(self) -> Tensor | None:
        """The weight of each hop in each layer, where the model has such weights."""
        return self.model.coefficients()


def coefficient_column(layer: int, hop: int) -> str:
    """Name of a coefficient's column in the history; layers count from 1, hops from 0."""
    return f"coeff_{layer}_{hop}"


def history_table(rows: list[list[float]], names: list[str], coeffs: Tensor | None) -> pa.Table:
    """The history as a table, one row an epoch."""
    values = np.array(rows, dtype=np.float64)
    columns: dict[str, Any] = {"epoch": np.arange(1, len(rows) + 1)}
    columns |= {name: values[:, i] for i, name in enumerate(names)}
    if coeffs is not None:
        _, num_layers, num_coeffs = coeffs.shape
        for layer in range(num_layers):
            for hop in range(num_coeffs):
                columns[coefficient_column(layer + 1, hop)] = coeffs[:, layer, hop].numpy()
    return pa.table(columns)


def predictions_table(graph: Graph, split: Split, logits: Tensor, temperature: float) -> pa.Table:
    """What the model says of every node that it was trained with."""
    part = np.full(graph.num_nodes, "", dtype=object)
    for name in SPLIT_NAMES:
        part[getattr(split, name).numpy()] = name
    labels = [graph.class_names[y] if y >= 0 else None for y in graph.y.tolist()]
    ids = pa.array(graph.node_ids.tolist())
    said = class_table(ids, logits, graph.class_names, temperature, doubts_of(graph))
    return said.add_column(1, "part", pa.array(part.tolist(), pa.string())).add_column(
        2, "label", pa.array(labels, pa.string())
    )


def doubts_of(graph: Graph) -> dict[str, np.ndarray]:
    """Reasons to doubt what is said of a graph's nodes, whatever it is, each with the nodes that it holds for."""
    return {"no neighbours": graph.num_neighbours == 0}


def class_table(
    node_ids: pa.Array,
    logits: Tensor,
    class_names: Sequence[str],
    temperature: float,
    doubts: Mapping[str, np.ndarray],
) -> pa.Table:
    """The predictions for nodes: id, class, probability of each class, reasons to doubt.

    Args:
        node_ids: Name of each node.
        logits: One row a node.
        class_names: Name of each class.
        temperature: By what the logits are divided.
        doubts: Reasons to doubt a prediction, each with the nodes that it holds for as a mask.
    """
    probabilities = (logits.double() / temperature).softmax(-1).numpy()
    chosen = probabilities.argmax(1)
    # Nearer to a guess among all classes than to certainty.
    unsure = ~(probabilities.max(1) >= (1 + 1 / len(class_names)) / 2)
    said = np.full(len(node_ids), None, dtype=object)
    for reason, mask in {**doubts, "low confidence": unsure}.items():
        said[mask] = [reason if before is None else f"{before}, {reason}" for before in said[mask]]
    columns: dict[str, Any] = {
        "node_id": node_ids,
        "prediction": pa.array(np.array(class_names, dtype=object)[chosen].tolist(), pa.string()),
    }
    columns |= {f"p_{name}": probabilities[:, i].astype(np.float32) for i, name in enumerate(class_names)}
    return pa.table({**columns, "doubt": pa.array(said.tolist(), pa.string())})


def save_run(run: Run, folder: Path) -> None:
    """Writes a run into a folder, the record last."""
    save_tensors(folder / "model.safetensors", run.model.state_dict(), {})
    for name, table in (("history", run.history), ("predictions", run.predictions)):
        write_atomically(folder / f"{name}.parquet", lambda path, table=table: pq.write_table(table, path))  # type: ignore[misc]
    if run.recipe is not None:
        write_json(folder / "recipe.json", run.recipe)
    write_json(folder / "record.json", run.record)


def load_run(folder: Path | str) -> Run:
    """Reads a complete run back from its folder."""
    folder = Path(folder)
    if not (folder / "record.json").exists():
        raise InputError(f"{folder} holds no complete run: there is no record.json in it.")
    try:
        with memory_errors():
            record = read_json(folder / "record.json")
            arguments = dict(record["config"]["model"])
            name = arguments.pop("name")
            sizes = {"in_channels": record["data"]["num_features"], "out_channels": len(record["data"]["class_names"])}
            model = build(name, {**sizes, **arguments})
            model.load_state_dict(load_tensors(folder / "model.safetensors")[0])
            tables = [pq.read_table(folder / f"{part}.parquet") for part in ("history", "predictions")]
            recipe = read_json(folder / "recipe.json") if (folder / "recipe.json").exists() else None
    except (InputError, KeyError, TypeError, RuntimeError, OSError, pa.ArrowException) as error:
        raise InputError(f"The run in {folder} is damaged ({error}). Remove the folder to start it anew.") from error
    model.eval()
    return Run(record, model, tables[0], tables[1], folder, recipe)
