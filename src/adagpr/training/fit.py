"""`fit`: from a graph and a split to a finished run, resumable at any moment.

This file is in the order of a run: `fit` resolves the options, `open_run` opens the folder, `TrainingRun` prepares
model and data and restores a checkpoint, `train` is the loop, and `TrainingRun.finish` measures and writes the result.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from adagpr.errors import memory_errors
from adagpr.graph import SPLIT_NAMES, Graph, Split
from adagpr.nn import Model
from adagpr.ops import Features, FeatureScaling, buffer_pool, cache_order, compute_threads, features, is_large
from adagpr.system import DeferredSignals, available_memory, forget_peak_memory, keep_freed_memory
from adagpr.task import METRICS, Classification, accuracy, balanced_weights
from adagpr.training.config import Setup, TrainingConfig, resolve
from adagpr.training.folder import RunFolder, load_run
from adagpr.training.run import Run, history_table, make_record, predictions_table
from adagpr.training.state import Measured, OnEpoch, State
from adagpr.training.threads import ThreadChoice

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

    With ``out`` the run is kept in that folder. Calling `fit` again with the same arguments then resumes from the last
    checkpoint and ends with the same bits as an uninterrupted run; a complete run is read and returned.

    Args:
        graph: The graph.
        split: Which nodes to learn from, to choose the epoch on and to report.
        model: Name of the model, such as ``"adagpr"``.
        out: Folder of the run; none to keep it in memory only.
        on_epoch: Called after each epoch with its number, its measurements and the stopping rule. If it returns
            ``"stop"``, training ends there, and the best epoch so far counts.
        checkpoint_seconds: Seconds between two checkpoints.
        options: Arguments of the model and fields of `TrainingConfig`, by their names.

    Raises:
        InputError: Something does not fit; nothing was written.
        StorageError: The disk is full or fails; the last checkpoint is still there.
        OutOfMemoryError: There was not enough memory; the last checkpoint is still there.

    Example:
        >>> import adagpr
        >>> graph, splits = adagpr.load("digits")
        >>> run = adagpr.fit(graph, splits[0], num_layers=2, max_epochs=5)
        >>> run.coefficients.shape
        torch.Size([2, 4])
    """
    with open_run(graph, split, resolve(graph, split, model, options), out) as run:
        if isinstance(run, Run):
            return run
        run.train(on_epoch, checkpoint_seconds)
        return run.finish()


@contextlib.contextmanager
def open_run(graph: Graph, split: Split, setup: Setup, out: Path | str | None) -> Iterator[TrainingRun | Run]:
    """Starts a training, or resumes the one in the folder ``out``; yields the run itself if it is complete.

    The folder is locked until the context ends.
    """
    folder = None if out is None else RunFolder(Path(out))
    with contextlib.nullcontext() if folder is None else folder.hold(setup):
        if folder is not None and folder.is_complete:
            yield load_run(folder.path)
            return
        with memory_errors(), buffer_pool(), compute_threads(1):
            yield TrainingRun(graph, split, setup, folder)


class TrainingRun:
    """A run that is being trained: its state, its data, and its folder.

    Attributes:
        state: How far training is; that of the last checkpoint, if there was one.
        scaling: What was done to the features.
        data: What the model is trained on.
        num_batched: How many runs shared each step with this one, itself included.
        threads: Who chooses the number of threads.
    """

    def __init__(self, graph: Graph, split: Split, setup: Setup, folder: RunFolder | None) -> None:
        keep_freed_memory()
        forget_peak_memory()
        self._graph, self._split, self._plain, self._folder = graph, split, setup.plain, folder
        config, model = setup.config, setup.model
        model.seed(config.seed)
        model.to(config.device)
        set_memory(model, config, graph.num_nodes)
        self.scaling = FeatureScaling.fitted(config.feature_scaling, [graph.x])
        self.data = training_data(graph.with_features(self.scaling(graph.x)), split, config, model)
        self.state = State(model, config)
        self.num_batched = 1
        self.threads = setup.threads()
        if folder is not None:
            folder.restore(self.state, folder.read_checkpoint(self.state))

    def train(self, on_epoch: OnEpoch | None, checkpoint_seconds: float) -> None:
        """Trains until the run is over."""
        train(self.state, self.data, self.threads, on_epoch, self.save, checkpoint_seconds)

    def save(self) -> None:
        """Writes a checkpoint, if the run is kept in a folder."""
        if self._folder is not None:
            self._folder.save_checkpoint(self.state)

    def finish(self) -> Run:
        """Measures the best epoch's model of a training that is over, and writes the run to its folder."""
        model, graph, split, task = self.state.model, self._graph, self._split, Classification()
        model.load_state_dict(self.state.best)
        logits = evaluate(model, self.data).cpu()
        temperature = task.calibrate(logits[split.val], graph.y[split.val])
        parts = {name: getattr(split, name) for name in SPLIT_NAMES}
        scores = {name: task.scores(logits[at], graph.y[at]) for name, at in parts.items() if len(at)}
        data, machine = _describe_data(graph, split), {"together": self.num_batched}
        record = make_record(self.state, self._plain, data, scores, temperature, machine, self.scaling)
        history, predictions = history_table(self.state), predictions_table(graph, split, logits, temperature)
        folder = None if self._folder is None else self._folder.path
        run = Run(record, model, history, predictions, folder, graph.recipe, self.scaling)
        if self._folder is not None:
            tables = {"history": history, "predictions": predictions}
            self._folder.save(record, model, tables, graph.recipe, self.scaling)
        return run


def set_memory(model: Model, config: TrainingConfig, num_nodes: int) -> None:
    """Tells a model what to keep for the backward pass: as configured, else by the available memory."""
    if not model.capabilities.fused_stack:
        return
    model.saved_dtype = torch.bfloat16 if config.activations == "bfloat16" else None
    is_short = model.activation_bytes(num_nodes) > available_memory() / 2
    model.recompute = is_short if config.recompute is None else config.recompute


class Strategy(Protocol):
    """What a model is trained on: a graph in memory, one process's shard of a graph, or batches of its parts."""

    def step(self, state: State) -> Tensor:
        """Learns from every training node once; returns the loss."""

    def measure(self, model: Model) -> Measured:
        """Measures the model on training and validation nodes, dropout off."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """A graph in memory, as a model is trained on it; ``structure`` is what the model prepared from it.

    ``train`` and ``val`` are positions of nodes. ``order`` says which node of the graph is at each position, if they
    were reordered. Without ``class_weights`` a node of each class counts the same. ``metric`` is measured after every
    epoch.
    """

    x: Features
    structure: Any
    y: Tensor
    train: Tensor
    val: Tensor
    class_weights: Tensor | None = None
    order: Tensor | None = None
    metric: str = "accuracy"

    @cached_property
    def task(self) -> Classification:
        """Loss and scores."""
        return Classification(self.class_weights)

    @cached_property
    def train_y(self) -> Tensor:
        """The classes of the training nodes."""
        return self.y[self.train]

    @cached_property
    def val_y(self) -> Tensor:
        """The classes of the validation nodes."""
        return self.y[self.val]

    def step(self, state: State) -> Tensor:
        """One step of the optimiser on the training nodes; returns the loss before it, dropout on."""
        model = state.model
        model.train()
        state.optimizer.zero_grad()
        loss = self.loss(model.logits_at(self.train, self.x, self.structure))
        if state.decays:
            loss.backward()
            state.optimizer.step()
        return loss.detach()

    def loss(self, logits: Tensor) -> Tensor:
        """The loss of the logits of the training nodes."""
        return self.task.loss(logits, self.train_y)

    def measure(self, model: Model) -> Measured:
        """Measures the model on this graph."""
        return self.measured(self.logits(model))

    def measured(self, logits: Tensor) -> Measured:
        """The measurements of logits of all nodes."""
        on_train = logits.index_select(0, self.train)
        on_val = logits.index_select(0, self.val)
        val_loss = self.task.loss(on_val, self.val_y).item()
        by_metric = METRICS[self.metric].measure(on_val, self.val_y) if self.metric != "accuracy" else None
        return Measured(accuracy(on_train, self.train_y), val_loss, accuracy(on_val, self.val_y), by_metric)

    def logits(self, model: Model) -> Tensor:
        """Logits of all nodes in the order of this data, dropout off, no gradients."""
        model.eval()
        with torch.inference_mode():
            logits: Tensor = model(self.x, self.structure)
            return logits


def training_data(graph: Graph, split: Split, config: TrainingConfig, model: Model) -> TrainingData:
    """What the model is trained on: features, labels, and the structure that it prepares from training labels alone.

    The nodes of a large graph are reordered by `adagpr.ops.cache_order`.
    """
    device, order = config.device, None
    # Without validation nodes the training nodes choose the epoch.
    train, val = split.train, split.val if len(split.val) else split.train
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
    return TrainingData(x, structure, y, train.to(device), val.to(device), weights, order, config.metric)


def train(
    state: State,
    strategy: Strategy,
    threads: ThreadChoice,
    on_epoch: OnEpoch | None,
    save: Callable[[], None],
    save_every: float,
) -> None:
    """Trains until patience or epochs run out.

    Every ``save_every`` seconds, and before a signal ends the process, ``save`` writes a checkpoint.
    """
    saved = last = time.perf_counter()
    with DeferredSignals() as deferred:
        while not state.is_over:
            with threads.epoch():
                loss = strategy.step(state)
                state.add_epoch(loss, strategy.measure(state.model), state.model.coefficients())
            now = time.perf_counter()
            state.seconds += now - last
            last = now
            if now - saved >= save_every or deferred.has_arrived:
                save()
                saved = time.perf_counter()
                deferred.deliver()
            state.tell(on_epoch)
        if deferred.has_arrived:
            save()


@compute_threads()
def evaluate(model: Model, data: TrainingData) -> Tensor:
    """Logits of all nodes in the order of the graph, dropout off, no gradients."""
    logits = data.logits(model)
    return logits if data.order is None else torch.empty_like(logits).index_copy_(0, data.order, logits)


def _describe_data(graph: Graph, split: Split) -> dict[str, Any]:
    return {
        **{key: getattr(graph, key) for key in ("name", "num_nodes", "num_edges", "num_features")},
        "class_names": list(graph.class_names),
        "split": split.name,
        **{f"num_{name}": len(getattr(split, name)) for name in SPLIT_NAMES},
        "notes": list(graph.notes),
    }
