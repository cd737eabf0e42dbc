"""What a trial does: train on graphs without the test nodes' labels, and return the validation loss.

The value of a trial is the loss on the validation nodes at the best epoch, without penalties, on average over the
splits that are tuned on. A penalised loss cannot be compared between trials whose penalties differ, nor one with class
weights between trials whose weights differ, so that these cannot be searched.

At an eighth, a quarter and half of the epochs, and at the end of each split, a trial reports the value that it would
have if it ended there, and is pruned where that is above the median of the trials before it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

import optuna
import torch

from adagpr.errors import AdaGPRError, InputError, StorageError
from adagpr.files import digest
from adagpr.graph import Graph, Split
from adagpr.training import Epoch, Run, Stopping, TrainingConfig, fit, resolve
from adagpr.training.config import describe_data
from adagpr.tuning.space import Space

__all__ = ["Study", "blind", "objective"]


def blind(graph: Graph, split: Split) -> Graph:
    """The graph with the labels of the training and validation nodes only.

    All others are gone: test nodes are of class 0, because `fit` asks for some label there, the rest has none.
    """
    known = torch.full_like(graph.y, -1)
    for part in (split.train, split.val):
        known[part] = graph.y[part]
    known[split.test] = 0
    return replace(graph, y=known)


@dataclass(frozen=True, eq=False)
class Study:
    """What a study is about.

    Attributes:
        graph: The graph.
        splits: All splits of the protocol; the best configuration is tested on them.
        tuned: Positions of the splits that trials train on.
        model: Name of the model.
        space: What is searched.
        seed: Seed of the search, and of parameters and dropout in every training.
    """

    graph: Graph
    splits: Sequence[Split]
    tuned: Sequence[int]
    model: str
    space: Space
    seed: int = 0

    @cached_property
    def shown(self) -> list[tuple[Graph, Split]]:
        """What trials are given: for each split that is tuned on, the graph without the labels of its test nodes."""
        return [(blind(self.graph, self.splits[number]), self.splits[number]) for number in self.tuned]

    def options(self, params: dict[str, Any]) -> dict[str, Any]:
        """What `fit` is given for these values of the searched parameters."""
        return {**self.space.options(params), "seed": self.seed, "num_threads": 1}

    def check(self) -> None:
        """Raises an `InputError` unless every choice and both ends of every range can be trained."""
        for name in ("seed", "num_threads"):
            if name in self.space.fixed or name in self.space.search:
                raise InputError(f"A search space cannot hold {name}: one seed and one thread serve all trials.")
        if "class_weights" in self.space.search:
            raise InputError(
                "class_weights cannot be searched: losses with other weights are not comparable. Fix them."
            )
        for split in self.splits:
            split.check(self.graph)
        for params in self.space.probes():
            resolve(*self.shown[0], self.model, self.options(params))

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The whole task as plain data."""
        data = describe_data(self.graph, self.splits[0])
        if len(self.splits) > 1:
            del data["split_sha256"]
            data["split"] = self.splits[0].name.partition("/")[0]
        return {
            "data": data,
            "splits_sha256": digest([split.fingerprint for split in self.splits], 64),
            "model": self.model,
            "seed": self.seed,
            "tuned_on": [split.name for _, split in self.shown],
            "space": self.space.to_plain(),
        }

    @property
    def name(self) -> str:
        """The study's name, which is that of its content."""
        return f"adagpr-{digest(self.plain)}"


def objective(task: Study, trial: optuna.Trial) -> float:
    """Trains on every split that is tuned on, and returns the mean validation loss.

    Raises:
        optuna.TrialPruned: The trial is hopeless, or its training diverged.
    """
    params = task.space.suggest(trial)
    trial.set_user_attr("drawn", True)
    options = task.options(params)
    progress = _Progress(trial, options.get("max_epochs", TrainingConfig().max_epochs), len(task.tuned))
    started = time.perf_counter()
    outcome = ""
    try:
        for graph, split in task.shown:
            progress.graphs.append(graph.fingerprint)
            progress.end_split(fit(graph, split, task.model, on_epoch=progress.on_epoch, **options))
    except optuna.TrialPruned:
        outcome = "above the median"
        raise
    except AdaGPRError as error:
        if isinstance(error, InputError | StorageError):
            raise
        outcome = str(error)
        raise optuna.TrialPruned(outcome) from error
    finally:
        seconds = round(time.perf_counter() - started, 3)
        result: dict[str, Any] = {"seed": task.seed, "epochs": progress.epochs, "graph_sha256": progress.graphs}
        if progress.accuracies:
            result["val_acc"] = fmean(progress.accuracies)
        if outcome:
            result["pruned_because"] = outcome
        trial.set_user_attr("result", {**result, "seconds": seconds})
    return fmean(progress.losses)


class _Progress:
    """Follows the trainings of one trial, reports to the study, and ends the trial where it says so.

    Attributes:
        graphs: Fingerprints of the graphs that trainings were given, labels included.
        losses: Validation loss of each finished training.
        accuracies: Validation accuracy of each finished training.
        epochs: Epochs of all trainings so far.
    """

    def __init__(self, trial: optuna.Trial, max_epochs: int, num_splits: int) -> None:
        self._trial, self._max_epochs, self._num_splits = trial, max_epochs, num_splits
        self._rungs = sorted({max(max_epochs // share, 1) for share in (8, 4, 2)} - {max_epochs})
        self._loss = 0.0
        self.graphs: list[str] = []
        self.losses: list[float] = []
        self.accuracies: list[float] = []
        self.epochs = 0

    def on_epoch(self, number: int, epoch: Epoch, stopping: Stopping) -> None:
        """Takes in an epoch of the split under way."""
        self.epochs += 1
        if stopping.best_epoch == number:
            self._loss = epoch.val_loss
        if number in self._rungs:
            self._report(number)
            self._prune()

    def end_split(self, run: Run) -> None:
        """Takes in a finished training; what it reached stands for the epochs that it did not need."""
        self._loss = run.val_loss
        for rung in self._rungs:
            if rung > run.record["result"]["num_epochs"]:
                self._report(rung)
        self._report(self._max_epochs)
        self.losses.append(self._loss)
        self.accuracies.append(run.val_acc)
        if len(self.losses) < self._num_splits:
            self._prune()

    def _report(self, number: int) -> None:
        self._trial.report(fmean([*self.losses, self._loss]), len(self.losses) * self._max_epochs + number)

    def _prune(self) -> None:
        if self._trial.should_prune():
            raise optuna.TrialPruned
