"""`fit`: from a graph and a split to a finished run, resumable at any moment."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from adagpr.errors import InputError
from adagpr.files import folder_lock, make_folder, write_toml
from adagpr.graph import PARTS, Graph, Split
from adagpr.metrics import accuracy
from adagpr.nn import Model, build
from adagpr.ops import features, operator
from adagpr.training.checkpoint import load_tensors, save_tensors
from adagpr.training.config import TrainingConfig, differences, read_config, resolve
from adagpr.training.loop import HISTORY_COLUMNS, Inputs, State, evaluate, train
from adagpr.training.machine import describe_machine, forget_peak_memory
from adagpr.training.run import Run, history_table, load_run, predictions_table, save_run
from adagpr.training.stopping import Epoch, Stopping

__all__ = ["fit"]

OnEpoch = Callable[[int, Epoch, Stopping], None]

CHECKPOINT_SECONDS = 5.0


def fit(
    graph: Graph,
    split: Split,
    model: str = "adagpr",
    *,
    out: Path | str | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **options: Any,
) -> Run:
    """Trains a model on the training nodes, chooses the epoch on the validation nodes, and measures on the test nodes.

    With ``out`` the run is kept in that folder. Calling `fit` again with the same arguments then continues from the
    last checkpoint and ends with the same bits as if nothing had happened; a complete run is read and returned.

    Args:
        graph: The graph.
        split: Which nodes to learn from, to choose on and to report.
        model: Name of the model, such as ``"adagpr"``.
        out: Folder of the run; none to keep it in memory only.
        on_epoch: Called after each epoch with its number, its measurements and the stopping rule.
        checkpoint_seconds: Seconds between two checkpoints.
        options: Arguments of the model and fields of `TrainingConfig`, by their names.

    Raises:
        InputError: Something does not fit; nothing was written.
        StorageError: The disk is full or fails; the last checkpoint is still there.

    Example:
        >>> import adagpr
        >>> graph, splits = adagpr.load("digits")
        >>> run = adagpr.fit(graph, splits[0], num_layers=2, max_epochs=5)
        >>> run.coefficients.shape
        torch.Size([2, 4])
    """
    folder = None if out is None else Path(out)
    stored = None if folder is None else _stored_config(folder)
    if stored is not None and options.get("num_threads") is None:
        options["num_threads"] = stored["training"]["num_threads"]
    config, plain = resolve(graph, split, model, options)
    on_epoch = on_epoch or _silent
    if folder is None:
        with _threads(config.num_threads or 1):
            return _train(graph, split, config, plain, None, on_epoch, checkpoint_seconds)
    if stored is not None:
        _check_same(folder, stored, plain)
        if (folder / "record.json").exists():
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
            return load_run(folder)
    make_folder(folder)
    with folder_lock(folder), _threads(config.num_threads or 1):
        stored = _stored_config(folder)
        if stored is None:
            write_toml(folder / "config.toml", plain)
        else:
            _check_same(folder, stored, plain)
        if not (folder / "record.json").exists():
            run = _train(graph, split, config, plain, folder, on_epoch, checkpoint_seconds)
            save_run(run, folder)
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        return load_run(folder)


def _silent(number: int, epoch: Epoch, stopping: Stopping) -> None:
    pass


def _stored_config(folder: Path) -> dict[str, Any] | None:
    """The configuration of the run that the folder already holds, complete or not."""
    path = folder / "config.toml"
    try:
        return read_config(path) if path.exists() else None
    except OSError as error:
        raise InputError(f"Cannot read the folder {folder}: {error.strerror}.") from error


def _check_same(folder: Path, stored: dict[str, Any], plain: dict[str, Any]) -> None:
    # Both sides go through JSON, so that a tuple and a list count as equal.
    different = differences(stored, json.loads(json.dumps(plain)))
    if different:
        raise InputError(
            f"{folder} holds a run of another configuration; these keys differ: {', '.join(different)}. "
            "Choose another folder, or remove this one."
        )


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(
    graph: Graph,
    split: Split,
    config: TrainingConfig,
    plain: dict[str, Any],
    folder: Path | None,
    on_epoch: OnEpoch,
    checkpoint_seconds: float,
) -> Run:
    forget_peak_memory()
    sizes = {"in_channels": graph.num_features, "out_channels": graph.num_classes}
    arguments = {key: value for key, value in plain["model"].items() if key != "name"}
    model = build(plain["model"]["name"], {**sizes, **arguments})
    model.seed(config.seed)
    model.to(config.device)
    inputs = _inputs(graph, split, config, model)
    state = State(model, config)
    checkpoint = None if folder is None else folder / "checkpoint" / "state.safetensors"

    def save() -> None:
        if checkpoint is not None:
            make_folder(checkpoint.parent)
            save_tensors(checkpoint, *state.tensors())

    if checkpoint is not None and checkpoint.exists():
        state.restore(*load_tensors(checkpoint))
    train(state, inputs, config, on_epoch, save, checkpoint_seconds)
    logits = evaluate(model, inputs).cpu()
    record = {
        "format": 1,
        "config": plain,
        "data": _describe_data(graph, split),
        "result": _result(state, config, graph, split, logits),
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "machine": describe_machine(state.seconds),
    }
    coefficients = model.coefficients()
    if coefficients is not None:
        record["coefficients"] = coefficients.tolist()
    history = history_table(state.history, HISTORY_COLUMNS, state.coeffs)
    return Run(record, model, history, predictions_table(graph, split, logits), folder)


def _inputs(graph: Graph, split: Split, config: TrainingConfig, model: Model) -> Inputs:
    device = config.device
    op = operator(graph, config.direction, config.self_loops).to(device)
    moved = Split(split.train.to(device), split.val.to(device), split.test.to(device), split.name)
    known = torch.full_like(graph.y, -1)
    known[split.train] = graph.y[split.train]
    structure = model.prepare(replace(graph, y=known), op)
    return Inputs(features(graph.x).to(device), structure, graph.y.to(device), moved)


def _describe_data(graph: Graph, split: Split) -> dict[str, Any]:
    return {
        "name": graph.name,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "class_names": list(graph.class_names),
        "split": split.name,
        "num_train": len(split.train),
        "num_val": len(split.val),
        "num_test": len(split.test),
        "notes": list(graph.notes),
    }


def _result(state: State, config: TrainingConfig, graph: Graph, split: Split, logits: torch.Tensor) -> dict[str, Any]:
    result: dict[str, Any] = {
        "best_epoch": state.stopping.best_epoch,
        "num_epochs": len(state.history),
        "stopped_by": "patience" if state.stopping.is_over(config) else "max_epochs",
        "val_objective": Epoch(*state.history[state.stopping.best_epoch - 1]).val_objective,
    }
    for part in PARTS:
        index: torch.Tensor = getattr(split, part)
        result[f"{part}_loss"] = F.cross_entropy(logits[index], graph.y[index]).item()
        result[f"{part}_acc"] = accuracy(logits[index], graph.y[index])
    return result
