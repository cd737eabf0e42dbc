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

from adagpr.errors import InputError, memory_errors
from adagpr.files import folder_lock, make_folder, write_toml
from adagpr.graph import SPLIT_NAMES, Graph, Split
from adagpr.metrics import accuracy, macro_f1, temperature
from adagpr.nn import Model, build
from adagpr.ops import buffer_pool, cache_order, features, is_large
from adagpr.system import available_memory, describe_machine, forget_peak_memory, keep_freed_memory
from adagpr.training.checkpoint import load_tensors, save_tensors
from adagpr.training.config import TrainingConfig, differences, read_config, resolve
from adagpr.training.loop import HISTORY_COLUMNS, State, TrainingData, balanced_weights, evaluate, train
from adagpr.training.run import Run, history_table, load_run, predictions_table, save_run
from adagpr.training.stopping import Epoch, Stopping

__all__ = [
    "OnEpoch",
    "Session",
    "check_same",
    "fit",
    "inputs_of",
    "session",
    "set_memory",
    "silent",
    "stored_config",
    "threads",
]

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
        OutOfMemoryError: So is it where memory is short.

    Example:
        >>> import adagpr
        >>> graph, splits = adagpr.load("digits")
        >>> run = adagpr.fit(graph, splits[0], num_layers=2, max_epochs=5)
        >>> run.coefficients.shape
        torch.Size([2, 4])
    """
    with session(graph, split, model, out, options) as opened:
        if isinstance(opened, Run):
            return opened
        train(opened.state, opened.inputs, opened.config, on_epoch or silent, opened.save, checkpoint_seconds)
        return opened.finish()


def silent(number: int, epoch: Epoch, stopping: Stopping) -> None:
    """Says nothing after an epoch."""


def stored_config(folder: Path) -> dict[str, Any] | None:
    """The configuration of the run that the folder already holds, complete or not."""
    path = folder / "config.toml"
    try:
        return read_config(path) if path.exists() else None
    except OSError as error:
        raise InputError(f"Cannot read the folder {folder}: {error.strerror}.") from error


def check_same(folder: Path, stored: dict[str, Any], plain: dict[str, Any]) -> None:
    """Raises an `InputError` where the folder holds a run of another configuration than ``plain``."""
    # Both sides go through JSON, so that a tuple and a list count as equal.
    different = differences(stored, json.loads(json.dumps(plain)))
    if different:
        raise InputError(
            f"{folder} holds a run of another configuration; these keys differ: {', '.join(different)}. "
            "Choose another folder, or remove this one."
        )


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Has torch compute with so many threads until the context ends."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Session:
    """A training that has begun: its state, what the model is shown, and where it is kept.

    Attributes:
        config: How to train.
        state: Where training stands; the last checkpoint's, where there was one.
        inputs: What the model is shown.
        together: How many trainings shared each step with this one, itself included.
    """

    def __init__(
        self, graph: Graph, split: Split, config: TrainingConfig, plain: dict[str, Any], folder: Path | None
    ) -> None:
        keep_freed_memory()
        forget_peak_memory()
        self._graph, self._split, self._plain, self._folder = graph, split, plain, folder
        self.config = config
        sizes = {"in_channels": graph.num_features, "out_channels": graph.num_classes}
        arguments = {key: value for key, value in plain["model"].items() if key != "name"}
        model = build(plain["model"]["name"], {**sizes, **arguments})
        model.seed(config.seed)
        model.to(config.device)
        set_memory(model, config, graph.num_nodes)
        self.inputs = inputs_of(graph, split, config, model)
        self.state = State(model, config)
        self.together = 1
        if self._checkpoint is not None and self._checkpoint.exists():
            self.state.restore(*load_tensors(self._checkpoint))

    @property
    def _checkpoint(self) -> Path | None:
        return None if self._folder is None else self._folder / "checkpoint" / "state.safetensors"

    def save(self) -> None:
        """Writes a checkpoint, where the run is kept."""
        if self._checkpoint is not None:
            make_folder(self._checkpoint.parent)
            save_tensors(self._checkpoint, *self.state.tensors())

    def finish(self) -> Run:
        """The run of a training that is over, written to its folder."""
        model, state = self.state.model, self.state
        logits = evaluate(model, self.inputs).cpu()
        record = {
            "format": 1,
            "config": self._plain,
            "data": _describe_data(self._graph, self._split),
            "result": _result(state, self.config, self._graph, self._split, logits),
            "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
            "machine": {**describe_machine(state.seconds), "together": self.together, "recompute": model.recompute},
        }
        val = self._split.val
        found = temperature(logits[val].numpy(), self._graph.y[val].numpy())
        record["calibration"] = {"temperature": found}
        coefficients = model.coefficients()
        if coefficients is not None:
            record["coefficients"] = coefficients.tolist()
        history = history_table(state.history, HISTORY_COLUMNS, state.coeffs)
        predictions = predictions_table(self._graph, self._split, logits, found)
        run = Run(record, model, history, predictions, self._folder, self._graph.recipe)
        if self._folder is None:
            return run
        save_run(run, self._folder)
        shutil.rmtree(self._folder / "checkpoint", ignore_errors=True)
        return load_run(self._folder)


@contextlib.contextmanager
def session(
    graph: Graph, split: Split, model: str, out: Path | str | None, options: dict[str, Any]
) -> Iterator[Session | Run]:
    """Begins a training, or goes on with the one in the folder ``out``; gives the run itself where it is complete.

    The folder is held, and the threads are those of the configuration, until the context ends.
    """
    folder = None if out is None else Path(out)
    stored = None if folder is None else stored_config(folder)
    if stored is not None and options.get("num_threads") is None:
        options = {**options, "num_threads": stored["training"]["num_threads"]}
    config, plain = resolve(graph, split, model, options)
    if folder is None:
        with memory_errors(), buffer_pool(), threads(config.num_threads or 1):
            yield Session(graph, split, config, plain, None)
        return
    if stored is not None:
        check_same(folder, stored, plain)
        if (folder / "record.json").exists():
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
            yield load_run(folder)
            return
    make_folder(folder)
    with folder_lock(folder), memory_errors(), buffer_pool(), threads(config.num_threads or 1):
        stored = stored_config(folder)
        if stored is None:
            write_toml(folder / "config.toml", plain)
        else:
            check_same(folder, stored, plain)
        if (folder / "record.json").exists():
            yield load_run(folder)
        else:
            yield Session(graph, split, config, plain, folder)


def inputs_of(graph: Graph, split: Split, config: TrainingConfig, model: Model) -> TrainingData:
    """What the model is shown: features, labels, and the structure that it prepares from the training labels alone.

    Nodes of a large graph are in the order of `adagpr.ops.cache_order`.
    """
    device, order = config.device, None
    train, val = split.train, split.val
    if is_large(graph.num_nodes):
        positions = cache_order(graph.adj)
        graph, order = graph.reordered(positions), torch.from_numpy(positions)
        places = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)))
        train, val = places[train], places[val]
    known = torch.full_like(graph.y, -1)
    known[train] = graph.y[train]
    structure = model.structure(replace(graph, y=known), config.direction, config.self_loops, device)
    weights = None
    if config.class_weights == "balanced":
        weights = balanced_weights(torch.bincount(graph.y[train], minlength=graph.num_classes)).to(device)
    x, y, order = features(graph.x).to(device), graph.y.to(device), None if order is None else order.to(device)
    return TrainingData(x, structure, y, train.to(device), val.to(device), weights, order)


def set_memory(model: Model, config: TrainingConfig, num_nodes: int) -> None:
    """Tells a model what it keeps for the backward pass: as asked for, else by the memory that there is."""
    if not model.capabilities.fused_stack:
        return
    model.saved_dtype = torch.bfloat16 if config.activations == "bfloat16" else None
    is_short = model.activation_bytes(num_nodes) > available_memory() / 2
    model.recompute = is_short if config.recompute is None else config.recompute


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
    for part in SPLIT_NAMES:
        index: torch.Tensor = getattr(split, part)
        result[f"{part}_loss"] = F.cross_entropy(logits[index], graph.y[index]).item()
        result[f"{part}_acc"] = accuracy(logits[index], graph.y[index])
        result[f"{part}_macro_f1"] = macro_f1(logits[index], graph.y[index])
    return result
