"""What a training on a partition leaves behind: record, history, model, and one file of predictions a part."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from adagpr.files import make_folder, write_atomically, write_json
from adagpr.graph import SPLIT_NAMES
from adagpr.metrics import temperature
from adagpr.partitioning import Group, Part, Parts, part_name, positions
from adagpr.system import describe_machine
from adagpr.training.batches import Batches
from adagpr.training.config import TrainingConfig
from adagpr.training.folder import save_tensors
from adagpr.training.run import class_table, history_table
from adagpr.training.shares import Shard
from adagpr.training.state import HISTORY_COLUMNS, Epoch, State
from adagpr.training.tally import ScoreSum

__all__ = ["Strategy", "finish"]

Strategy = Shard | Batches


def finish(
    state: State,
    ground: Strategy,
    config: TrainingConfig,
    plain: dict[str, Any],
    parts: Parts,
    group: Group,
    folder: Path,
) -> dict[str, Any]:
    """Measures the best epoch's model on all nodes, writes the predictions and, last, the record."""
    manifest, model = parts.manifest, state.model
    tally = ScoreSum(manifest.num_classes)
    logits: list[tuple[int, Tensor]] = []
    for number, own in ground.logits_of_parts(model):
        tally.add(own.cpu(), *parts[number].targets())
        logits.append((number, own))
    found = _temperature(logits, parts, group)
    for number, own in logits:
        _write_predictions(folder, parts[number], own, manifest.class_names, found)
    scores = tally.scores(group)
    result = {
        "best_epoch": state.stopping.best_epoch,
        "num_epochs": len(state.history),
        "stopped_by": "patience" if state.stopping.is_over(config) else "max_epochs",
        "val_objective": Epoch(*state.history[state.stopping.best_epoch - 1]).val_objective,
        **scores,
    }
    sent = int(group.sum_(torch.tensor([group.num_bytes], dtype=torch.int64)))
    record = {
        "format": 1,
        "config": plain,
        "data": _describe(parts, plain["scale"]["per_batch"]),
        "result": result,
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "machine": {
            **describe_machine(state.seconds),
            "ranks": group.size,
            "bytes_sent": sent,
            "recompute": model.recompute,
        },
        "calibration": {"temperature": found},
    }
    coefficients = model.coefficients()
    if coefficients is not None:
        record["coefficients"] = coefficients.tolist()
    if group.rank == 0:
        history = history_table(state.history, HISTORY_COLUMNS, state.coeffs)
        save_tensors(folder / "model.safetensors", model.state_dict(), {})
        write_atomically(folder / "history.parquet", lambda path: pq.write_table(history, path))
        if manifest.recipe is not None:
            write_json(folder / "recipe.json", manifest.recipe)
    # The record is written when every process has written what is its own.
    group.run_on_all_ranks(lambda: None)
    if group.rank == 0:
        write_json(folder / "record.json", record)
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    return record


def _temperature(logits: list[tuple[int, Tensor]], parts: Parts, group: Group) -> float:
    """The temperature that fits the validation nodes of all processes."""
    index = {number: positions(parts[number].targets()[1], "val") for number, _ in logits}
    own = torch.cat([item[index[number]] for number, item in logits]).double()
    classes = torch.cat([parts[number].targets()[0][index[number]] for number, _ in logits])
    counts = torch.zeros(group.size, dtype=torch.int64)
    counts[group.rank] = len(own)
    ends = group.sum_(counts).cumsum(0).tolist()
    every = torch.zeros(ends[-1], own.shape[1] + 1, dtype=torch.float64)
    every[ends[group.rank] - len(own) : ends[group.rank]] = torch.cat([own, classes.double().view(-1, 1)], 1)
    group.sum_(every)
    return temperature(every[:, :-1].numpy(), every[:, -1].long().numpy())


def _write_predictions(folder: Path, part: Part, logits: Tensor, class_names: tuple[str, ...], found: float) -> None:
    nodes, (y, role) = part.nodes(), part.targets()
    indptr = part.tensors("graph.safetensors")["indptr"]
    doubts = {"no neighbours": (indptr.diff() == 0).numpy()}
    table = class_table(nodes["node_id"].combine_chunks(), logits.cpu(), class_names, found, doubts)
    names = np.array([None, *class_names], dtype=object)
    roles = np.array(["", *SPLIT_NAMES], dtype=object)
    table = table.add_column(1, "part", pa.array(roles[role].tolist(), pa.string()))
    table = table.add_column(2, "label", pa.array(names[y.numpy() + 1].tolist(), pa.string()))
    path = folder / "predictions.parquet" / f"{part_name(part.number)}.parquet"
    make_folder(path.parent)
    write_atomically(path, lambda temporary: pq.write_table(table, temporary))


def _describe(parts: Parts, per_batch: int | None) -> dict[str, Any]:
    manifest = parts.manifest
    cut = f"{manifest.edge_cut} of {manifest.num_edges} edges between them"
    said = f"Trained on {len(parts)} parts ({manifest.method}), {cut}."
    is_approximate = per_batch is not None and per_batch < len(parts)
    if is_approximate:
        said += (
            f" Approximate: steps saw batches of {per_batch} parts, without the edges to other parts; "
            "what was measured is exact."
        )
    return {
        "name": manifest.name,
        "num_nodes": manifest.num_nodes,
        "num_edges": manifest.num_edges,
        "num_features": manifest.num_features,
        "class_names": list(manifest.class_names),
        "split": manifest.split,
        "num_train": manifest.num_train,
        "num_val": manifest.num_val,
        "num_test": manifest.num_test,
        "is_approximate": is_approximate,
        "notes": [*manifest.notes, said],
    }
