"""Trials: what one does, which count, and how one is entered again whose worker is gone.

A trial trains on graphs without the test nodes' labels. Its value is the loss on the validation nodes at the best
epoch, without penalties, on average over the splits that are tuned on: losses with other penalties or class weights
cannot be compared. At an eighth, a quarter and half of the epochs, and at the end of each split, it reports the value
that it would have if it ended there, and is pruned where that is above the median of the trials before it.

A trial that nobody runs any more is entered again, with the values it tried, and then failed; the new one names the
one it continues, which then does not count, so that `effective_trials` is right whenever a process dies.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import time
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from adagpr.errors import AdaGPRError, InputError, StorageError
from adagpr.training import Epoch, Run, Stopping, TrainingConfig, fit
from adagpr.tuning.space import tidy

if TYPE_CHECKING:
    from adagpr.tuning.study import Study


def objective(study: Study, trial: optuna.Trial) -> float:
    """Trains on every split that is tuned on, and returns the mean validation loss, unless the trial is pruned."""
    params = study.space.suggest(trial)
    trial.set_user_attr("drawn", True)
    options = study.options(params)
    report = _Report(trial, options.get("max_epochs", TrainingConfig().max_epochs), len(study.tuned))
    started = time.perf_counter()
    outcome = ""
    try:
        for graph, split in study.shown:
            report.graphs.append(graph.fingerprint)
            report.end_split(fit(graph, split, study.model, on_epoch=report.on_epoch, **options))
    except optuna.TrialPruned:
        outcome = "above the median"
        raise
    except (InputError, StorageError):
        raise
    except AdaGPRError as error:
        outcome = str(error)
        raise optuna.TrialPruned(outcome) from error
    finally:
        result: dict[str, Any] = {"seed": study.seed, "epochs": report.epochs, "graph_sha256": report.graphs}
        if report.accuracies:
            result["val_acc"] = fmean(report.accuracies)
        if outcome:
            result["pruned_because"] = outcome
        trial.set_user_attr("result", {**result, "seconds": round(time.perf_counter() - started, 3)})
    return fmean(report.losses)


class _Report:
    """Follows the trainings of one trial, reports to the study, and ends the trial where it says so."""

    def __init__(self, trial: optuna.Trial, max_epochs: int, num_splits: int) -> None:
        self._trial, self._max_epochs, self._num_splits = trial, max_epochs, num_splits
        self._rungs = sorted({max(max_epochs // share, 1) for share in (8, 4, 2)} - {max_epochs})
        self._loss = 0.0
        self.epochs = 0  # of all trainings so far
        self.graphs: list[str] = []  # fingerprints of what trainings were given, labels included
        self.losses: list[float] = []  # of finished trainings, on the validation nodes
        self.accuracies: list[float] = []

    def on_epoch(self, number: int, epoch: Epoch, stopping: Stopping) -> None:
        """Takes in an epoch of the split under way."""
        self.epochs += 1
        if stopping.best_epoch == number:
            self._loss = epoch.val_loss
        if number in self._rungs:
            self._report(number)
            self._prune()

    def end_split(self, run: Run) -> None:
        """Takes in a finished training; what it reached counts for the epochs that it did not need."""
        self._loss = run.best_val_loss
        for rung in self._rungs:
            if rung > run.num_epochs:
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


def effective_trials(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that count: of a trial and those that continue it the first that ended, else the first that is to end.

    Several are possible where two machines entered a trial again at the same moment, or its worker was not dead.
    """
    replaced = {trial.user_attrs.get("retry_of") for trial in trials}
    alike: dict[int, list[FrozenTrial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.state != TrialState.FAIL:
            alike.setdefault(trial.user_attrs.get("first", trial.number), []).append(trial)
    found = []
    for _, several in sorted(alike.items()):
        ended = [trial for trial in several if trial.state.is_finished()]
        found += (ended or [trial for trial in several if trial.number not in replaced])[:1]
    return found


def finished(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that ran to their end or were pruned."""
    return [trial for trial in effective_trials(trials) if trial.state.is_finished()]


def num_to_do(trials: Sequence[FrozenTrial], num_trials: int) -> int:
    """How many trials nobody has begun yet, those that are to be run again included."""
    begun = [trial for trial in effective_trials(trials) if trial.state != TrialState.WAITING]
    return max(num_trials - len(begun), 0)


def signature(pid: int | None) -> dict[str, Any]:
    """What a worker signs its trials with."""
    return {"host": platform.node(), "pid": pid}


def is_abandoned(trial: FrozenTrial) -> bool:
    """Whether a running trial is that of a worker of this machine that no longer exists."""
    worker = trial.user_attrs.get("worker")
    if worker is None or worker["host"] != platform.node():
        return False
    try:
        os.kill(worker["pid"], 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def requeue(opened: optuna.Study, trial: FrozenTrial) -> None:
    """Enters a trial again, once, so that whichever worker is free runs it; and fails it where it is still running."""
    retries = [other for other in opened.get_trials(deepcopy=False) if other.user_attrs.get("retry_of") == trial.number]
    if not retries:
        # Whoever died before all values were drawn has tried none of them.
        params = trial.params if "drawn" in trial.user_attrs else trial.system_attrs.get("fixed_params", {})
        origin = {"retry_of": trial.number, "first": trial.user_attrs.get("first", trial.number)}
        opened.enqueue_trial(params, user_attrs=origin)
    # On a server another machine may have been faster.
    with contextlib.suppress(UpdateFinishedTrialError):
        opened.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def best_trial(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The complete trial with the lowest value, the first of equals."""
    complete = [trial for trial in finished(trials) if trial.state == TrialState.COMPLETE]
    return min(complete, key=lambda trial: (trial.value, trial.number), default=None)


def plain_trial(trial: FrozenTrial) -> dict[str, Any]:
    """A trial as it is in a record; what two equal studies may differ in is under ``machine``."""
    attrs = trial.user_attrs
    result: dict[str, Any] = dict(attrs.get("result", {}))
    machine = {**attrs.get("worker", {}), "seconds": result.pop("seconds", None)}
    for key, moment in (("began_at", trial.datetime_start), ("ended_at", trial.datetime_complete)):
        machine[key] = None if moment is None else moment.astimezone(datetime.UTC).isoformat(timespec="milliseconds")
    plain: dict[str, Any] = {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "value": trial.value,
        "params": {name: tidy(value) for name, value in trial.params.items()},
        **result,
    }
    if "retry_of" in attrs:
        plain["retry_of"] = attrs["retry_of"]
    return {**plain, "machine": machine}
