"""The search: what a trial does, which trials count, and the worker processes that run them.

A trial trains on graphs without the test nodes' labels. Its value is the loss on the validation nodes at the best
epoch, without penalties, on average over the splits that are tuned on: losses with other penalties or class weights
cannot be compared. At an eighth, a quarter and half of the epochs, and at the end of each split, it reports the value
that it would have if it ended there, and is pruned where that is above the median of the trials before it.

A trial that nobody runs any more is entered again, with the values it tried, and then failed; the new one names the
one it continues, which then does not count, so that `effective_trials` is right whenever a process dies.

Workers are forked, so that they begin at once with the graph in memory; each has a connection to the storage of its
own and computes with one thread. They end with the process that started them, however that one ends. Where a system
cannot fork, that process runs the trials itself.
"""

from __future__ import annotations

import contextlib
import datetime
import multiprocessing
import os
import platform
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from statistics import fmean
from typing import TYPE_CHECKING, Any

import optuna
from optuna.exceptions import OptunaError, UpdateFinishedTrialError
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState

from adagpr.errors import AdaGPRError, InputError, StorageError, memory_errors
from adagpr.seeding import stream
from adagpr.training import Epoch, Run, Stopping, TrainingConfig, begin_child, fit
from adagpr.tuning.space import tidy
from adagpr.tuning.storage import is_server, load_study, storage_failures, without_retries

if TYPE_CHECKING:
    from adagpr.tuning.study import Study

_POLL_SECONDS = 0.5
# On a server a worker says so often that it is alive.
BEAT_SECONDS = 10.0
# A running trial that is the same at so many polls, a minute at least, is run by nobody. No poll succeeds while a
# server is away, so that nobody is taken for dead because of that.
STALE_POLLS = 120
_DEATHS_PER_WORKER = 3
# The first trials of TPE are drawn at random; none of them is pruned.
_NUM_STARTUP_TRIALS = 10


@dataclass(frozen=True)
class StudyProgress:
    """How far a study is: trials done and asked for, its lowest value, and the workers' processes."""

    num_done: int
    num_trials: int
    best_value: float | None
    pids: tuple[int, ...] = ()


OnChange = Callable[[StudyProgress], None]
Polls = Counter[tuple[object, ...]]
Workers = dict[Connection, BaseProcess]


def run_trials(
    opened: optuna.Study, study: Study, address: str, num_trials: int, num_workers: int, on_change: OnChange
) -> None:
    """Has workers run trials until as many are complete or pruned as asked for; dead workers are replaced."""
    can_fork = "fork" in multiprocessing.get_all_start_methods()
    workers: Workers = {}
    num_deaths = num_done = 0
    polls: Polls = Counter()
    try:
        while True:
            trials = opened.get_trials(deepcopy=False)
            for trial in stale_trials(trials, polls, is_server(address)):
                requeue(opened, trial)
            done, best = len(finished(trials)), best_trial(trials)
            num_deaths, num_done = (0 if done > num_done else num_deaths), done
            pids = tuple(process.pid or 0 for process in workers.values())
            on_change(StudyProgress(min(done, num_trials), num_trials, best.value if best else None, pids))
            if done >= num_trials:
                break
            if num_deaths >= _DEATHS_PER_WORKER * num_workers:
                raise AdaGPRError(
                    f"Workers were killed {num_deaths} times before another trial was done (too little memory for it?)."
                    " The same command resumes."
                )
            if not can_fork:
                run_some(study, address, done + 1)
                continue
            for _ in range(min(num_workers - len(workers), num_to_do(trials, num_trials))):
                context = multiprocessing.get_context("fork")
                reader, writer = context.Pipe(duplex=False)
                workers[reader] = context.Process(target=_work, args=(study, address, num_trials, writer, os.getpid()))
                workers[reader].start()
                writer.close()
            num_deaths += _collect(opened, workers)
        while workers:
            _collect(opened, workers)
    finally:
        for process in workers.values():
            process.kill()
            process.join()
        with contextlib.suppress(AdaGPRError, OptunaError), without_retries():
            _requeue_of(opened, list(workers.values()))


def stale_trials(trials: Sequence[FrozenTrial], polls: Polls, is_shared: bool) -> list[FrozenTrial]:
    """The running trials that have not changed for many polls; ``polls`` counts how often each was seen as it is."""
    found = []
    for trial in trials:
        # This machine's workers are watched by their processes: unless others share the study, it is the unsigned.
        is_signed = "worker" in trial.user_attrs
        if trial.state == TrialState.RUNNING and (is_shared or not is_signed):
            seen = (trial.number, is_signed, trial.user_attrs.get("beat"))
            polls[seen] += 1
            if polls[seen] > STALE_POLLS:
                found.append(trial)
    return found


def _collect(opened: optuna.Study, workers: Workers) -> int:
    """Waits a moment, lets go of workers that ended, raises what one raised, and returns how many were killed."""
    killed = []
    ready = wait(list(workers), timeout=_POLL_SECONDS)
    for reader in [reader for reader in workers if reader in ready]:
        process = workers.pop(reader)
        try:
            error = reader.recv()
        except EOFError:
            error = None
            killed.append(process)
        process.kill()
        process.join()
        reader.close()
        if error is not None:
            raise error
    _requeue_of(opened, killed)
    return len(killed)


def _requeue_of(opened: optuna.Study, processes: list[BaseProcess]) -> None:
    """Enters again what processes that are gone were running."""
    signatures = [signature(process.pid) for process in processes]
    for trial in opened.get_trials(deepcopy=False, states=(TrialState.RUNNING,)) if processes else ():
        if trial.user_attrs.get("worker") in signatures:
            requeue(opened, trial)


def _work(study: Study, address: str, num_trials: int, writer: Connection, parent: int) -> None:
    """The life of a worker; it ends with a message, what it raised or nothing, unless it is killed."""
    if not begin_child(parent):
        return
    try:
        with storage_failures(address), memory_errors():
            run_some(study, address, num_trials)
        writer.send(None)
    except Exception as error:
        if not isinstance(error, AdaGPRError):
            error.add_note(traceback.format_exc())
        writer.send(error)


def run_some(study: Study, address: str, num_trials: int) -> None:
    """Runs one trial after another in this process while there are any to do."""
    pruner = optuna.pruners.MedianPruner(n_startup_trials=_NUM_STARTUP_TRIALS)
    signed = signature(os.getpid())
    opened = load_study(study.name, address, pruner, {"worker": signed})
    while num_to_do(opened.get_trials(deepcopy=False), num_trials) > 0:
        trial = opened.ask()
        # A worker that was asleep for long finds that its trial was failed and entered again.
        with contextlib.suppress(UpdateFinishedTrialError):
            trial.set_user_attr("worker", signed)
            with _beating(trial) if is_server(address) else contextlib.nullcontext():
                _run_one(study, opened, trial, num_trials)


def _run_one(study: Study, opened: optuna.Study, trial: optuna.Trial, num_trials: int) -> None:
    places = [other.number for other in effective_trials(opened.get_trials(deepcopy=False))[:num_trials]]
    if trial.number not in places:
        # Another worker began the last trial at the same moment.
        opened.tell(trial, state=TrialState.FAIL)
        return
    # What is drawn, when the first value is asked for, depends on the trial's place and the results before it alone. So
    # workers never draw the same, and with one worker a study ends the same however often it was interrupted.
    seed = int(stream(study.seed, f"search {places.index(trial.number)}").integers(2**32))
    opened.sampler = TPESampler(seed=seed, n_startup_trials=_NUM_STARTUP_TRIALS, multivariate=True, constant_liar=True)
    value, state = None, TrialState.PRUNED
    try:
        value, state = objective(study, trial), TrialState.COMPLETE
    except optuna.TrialPruned:
        pass
    except Exception as error:
        if not isinstance(error, StorageError):
            opened.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        raise
    opened.tell(trial, value, state, skip_if_finished=True)


@contextlib.contextmanager
def _beating(trial: optuna.Trial) -> Iterator[None]:
    """Changes a trial every few seconds, so that other machines see that somebody runs it."""
    is_over = threading.Event()

    def beat() -> None:
        with without_retries():
            for number in count():
                # What does not come through this time will the next time.
                with contextlib.suppress(StorageError, OptunaError):
                    trial.set_user_attr("beat", number)
                if is_over.wait(BEAT_SECONDS):
                    return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


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
    except (InputError, StorageError):
        raise
    except (AdaGPRError, optuna.TrialPruned) as error:
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
            raise optuna.TrialPruned("above the median")


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
