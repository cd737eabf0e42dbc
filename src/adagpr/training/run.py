"""A finished run: its record, its history, its predictions and its model, in memory or in a folder.

A run folder holds ``config.toml``, ``model.safetensors``, ``history.parquet``, ``predictions.parquet`` and, written
last, ``record.json``: where it stands, the run is complete. While training goes on, ``checkpoint/`` holds its state.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.files import read_json, write_atomically, write_json
from adagpr.graph import PARTS, Graph, Split
from adagpr.nn import Model, build
from adagpr.training.checkpoint import load_tensors, save_tensors

__all__ = ["Run", "coefficient_column", "history_table", "load_run", "predictions_table", "save_run"]


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes:
        record: Configuration, data, result and coefficients as plain data; ``machine`` alone may differ between
            equal runs.
        model: The model at its best epoch.
        history: One row an epoch: losses, accuracies, every coefficient of every layer.
        predictions: One row a node: id, part of the split, label, prediction, probability of each class.
        folder: Where the run is kept, if anywhere.
    """

    record: dict[str, Any]
    model: Model
    history: pa.Table
    predictions: pa.Table
    folder: Path | None = None

    @property
    def test_acc(self) -> float:
        """Accuracy on the test nodes at the best epoch."""
        return float(self.record["result"]["test_acc"])

    @property
    def val_acc(self) -> float:
        """Accuracy on the validation nodes at the best epoch."""
        return float(self.record["result"]["val_acc"])

    @property
    def best_epoch(self) -> int:
        """The epoch, counted from 1, that validation chose."""
        return int(self.record["result"]["best_epoch"])

    @property
    def coefficients(self) -> Tensor | None:
        """The weight of each hop in each layer, where the model has such weights."""
        return self.model.coefficients()


def coefficient_column(layer: int, hop: int) -> str:
    """Name of a coefficient's column in the history; layers count from 1, hops from 0."""
    return f"coeff_{layer}_{hop}"


def history_table(rows: list[list[float]], names: list[str], coeffs: list[Tensor]) -> pa.Table:
    """The history as a table, one row an epoch."""
    values = np.array(rows, dtype=np.float64)
    columns: dict[str, Any] = {"epoch": np.arange(1, len(rows) + 1)}
    columns |= {name: values[:, i] for i, name in enumerate(names)}
    if coeffs:
        stacked = torch.stack(coeffs).numpy()
        _, num_layers, num_coeffs = stacked.shape
        for layer in range(num_layers):
            for hop in range(num_coeffs):
                columns[coefficient_column(layer + 1, hop)] = stacked[:, layer, hop]
    return pa.table(columns)


def predictions_table(graph: Graph, split: Split, logits: Tensor) -> pa.Table:
    """What the model says of every node."""
    probabilities = logits.softmax(-1).cpu().numpy()
    part = np.full(graph.num_nodes, "", dtype=object)
    for name in PARTS:
        part[getattr(split, name).numpy()] = name
    classes = np.array(graph.class_names, dtype=object)
    labels = [classes[y] if y >= 0 else None for y in graph.y.tolist()]
    columns: dict[str, Any] = {
        "node_id": pa.array(graph.node_ids.tolist()),
        "part": pa.array(part.tolist(), pa.string()),
        "label": pa.array(labels, pa.string()),
        "prediction": pa.array(classes[probabilities.argmax(1)].tolist(), pa.string()),
    }
    columns |= {f"p_{name}": probabilities[:, i] for i, name in enumerate(graph.class_names)}
    return pa.table(columns)


def save_run(run: Run, folder: Path) -> None:
    """Writes a run into a folder, the record last."""
    save_tensors(folder / "model.safetensors", run.model.state_dict(), {})
    for name, table in (("history", run.history), ("predictions", run.predictions)):
        write_atomically(folder / f"{name}.parquet", lambda path, table=table: pq.write_table(table, path))  # type: ignore[misc]
    write_json(folder / "record.json", run.record)


def load_run(folder: Path | str) -> Run:
    """Reads a complete run back from its folder."""
    folder = Path(folder)
    if not (folder / "record.json").exists():
        raise InputError(f"{folder} holds no complete run: there is no record.json in it.")
    try:
        record = read_json(folder / "record.json")
        arguments = dict(record["config"]["model"])
        name = arguments.pop("name")
        sizes = {"in_channels": record["data"]["num_features"], "out_channels": len(record["data"]["class_names"])}
        model = build(name, {**sizes, **arguments})
        model.load_state_dict(load_tensors(folder / "model.safetensors")[0])
        tables = [pq.read_table(folder / f"{part}.parquet") for part in ("history", "predictions")]
    except (InputError, KeyError, TypeError, RuntimeError, OSError, pa.ArrowException) as error:
        raise InputError(f"The run in {folder} is damaged ({error}). Remove the folder to start it anew.") from error
    model.eval()
    return Run(record, model, tables[0], tables[1], folder)
