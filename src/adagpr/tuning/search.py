"""The search: what a trial does, and the worker processes that run trials; `places` says which of them, and when.

A trial trains on graphs without the test nodes' labels. Its value is the loss on the validation nodes at the best
epoch, without penalties, on average over the splits that are tuned on: losses with other penalties or class weights
cannot be compared. With ``monitor="val_metric"`` it is the metric there, the higher the better. At an eighth, a quarter
and half of the epochs, and at the end of each split, a trial reports the value that it would have if it ended there,
and is pruned where that is worse than the median of the trials before it.

Workers are forked, so that they begin at once with the graph in memory; each has a connection to the storage of its
own and computes with one thread. They end with the process that started them, however that one ends. Where a system
cannot fork, that process runs the trials itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import shutil
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import optuna
from optuna.exceptions import OptunaError, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from adagpr.errors import AdaGPRError, InputError, StorageError, memory_errors
from adagpr.graph import Graph, Split
from adagpr.system import forking
from adagpr.task import METRICS
from adagpr.training import (
    CHECKPOINT_SECONDS,
    Epoch,
    Run,
    Stopping,
    TrainingConfig,
    begin_child,
    config_digest,
    open_run,
    resolve,
    training_options,
)
from adagpr.tuning.places import best_place, counted, draw_after, finished, open_places
from adagpr.tuning.storage import begin_trial, is_server, load_study, storage_failures, without_retries

if TYPE_CHECKING:
    from adagpr.tuning.study import Study

_POLL_SECONDS = 0.5
# On a server a worker says so often that it is alive.
BEAT_SECONDS = 10.0
# A running trial that is the same at so many polls, a minute at least, is run by nobody. No poll succeeds while a
# server is away, so that nobody is taken for dead because of that.
STALE_POLLS = 120
_DEATHS_PER_WORKER = 3


@dataclass(frozen=True)
class StudyProgress:
    """How far a study is: trials done and asked for, its best value and what that is, and the workers' processes."""

    num_done: int
    num_trials: int
    best_value: float | None
    pids: tuple[int, ...] = ()
    measure: str = "lowest loss"


OnChange = Callable[[StudyProgress], None]
Polls = Counter[tuple[object, ...]]
Workers = dict[Connection, BaseProcess]


def run_trials(
    opened: optuna.Study,
    study: Study,
    address: str,
    folder: Path,
    num_trials: int,
    num_workers: int,
    on_change: OnChange,
) -> None:
    """Has workers run trials until as many are complete or pruned as asked for; dead workers are replaced.

    Trials that are running have their checkpoints in ``folder``.
    """
    can_fork = "fork" in multiprocessing.get_all_start_methods()
    workers: Workers = {}
    num_deaths = num_done = 0
    polls: Polls = Counter()
    try:
        while True:
            trials = opened.get_trials(deepcopy=False)
            for trial in stale_trials(trials, polls) if is_server(address) else ():
                _abandon(opened, trial, workers)
            done, best = len(finished(trials)), best_place(trials, study.is_by_metric)
            num_deaths, num_done = (0 if done > num_done else num_deaths), done
            pids = tuple(process.pid or 0 for process in workers.values())
            value = None if best is None else finished(trials)[best].value
            measure = f"highest {METRICS[study.config.metric].title}" if study.is_by_metric else "lowest loss"
            on_change(StudyProgress(min(done, num_trials), num_trials, value, pids, measure))
            if done >= num_trials:
                break
            if num_deaths >= _DEATHS_PER_WORKER * num_workers:
                raise AdaGPRError(
                    f"Workers were killed {num_deaths} times before another trial was done (too little memory for it?)."
                    " The same command resumes."
                )
            if not can_fork:
                run_some(study, address, folder, done + 1)
                continue
            for _ in range(min(num_workers - len(workers), len(open_places(trials, study.window, num_trials)))):
                context = multiprocessing.get_context("fork")
                reader, writer = context.Pipe(duplex=False)
                arguments = (study, address, folder, num_trials, writer, os.getpid())
                with forking():
                    workers[reader] = context.Process(target=_work, args=arguments)
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
            _fail_trials_of(opened, list(workers.values()))


def stale_trials(trials: Sequence[FrozenTrial], polls: Polls) -> list[FrozenTrial]:
    """The running trials that have not changed for many polls; ``polls`` counts how often each was seen as it is."""
    found = []
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            seen = (trial.number, trial.user_attrs.get("beat"))
            polls[seen] += 1
            if polls[seen] > STALE_POLLS:
                found.append(trial)
    return found


def _abandon(opened: optuna.Study, trial: FrozenTrial, workers: Workers) -> None:
    """Fails a trial that nobody runs; should its worker be one of these, then it hangs, and is killed."""
    for process in workers.values():
        if trial.user_attrs.get("worker") == signature(process.pid):
            process.kill()
    fail(opened, trial)


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
    _fail_trials_of(opened, killed)
    return len(killed)


def _fail_trials_of(opened: optuna.Study, processes: list[BaseProcess]) -> None:
    """Fails what processes that are gone were running."""
    signatures = [signature(process.pid) for process in processes]
    for trial in opened.get_trials(deepcopy=False, states=(TrialState.RUNNING,)) if processes else ():
        if trial.user_attrs.get("worker") in signatures:
            fail(opened, trial)


def fail(opened: optuna.Study, trial: FrozenTrial) -> None:
    """Fails an attempt whose worker is gone, so that its place is free again."""
    # On a server another machine may have been faster.
    with contextlib.suppress(UpdateFinishedTrialError):
        opened.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def _work(study: Study, address: str, folder: Path, num_trials: int, writer: Connection, parent: int) -> None:
    """The life of a worker; it ends with a message, what it raised or nothing, unless it is killed."""
    if not begin_child(parent):
        return
    try:
        with storage_failures(address), memory_errors():
            run_some(study, address, folder, num_trials)
        writer.send(None)
    except Exception as error:
        if not isinstance(error, AdaGPRError):
            error.add_note(traceback.format_exc())
        writer.send(error)


def run_some(study: Study, address: str, folder: Path, num_trials: int) -> None:
    """Runs one trial after another in this process while there are any to begin."""
    signed = signature(os.getpid())
    opened = load_study(study.name, address)
    while places := open_places(trials := opened.get_trials(deepcopy=False), study.window, num_trials):
        place, done = places[0], finished(trials)
        before = [done[number] for number in range(place - study.window + 1)]
        draw_after(opened, before, study.seed, place, study.is_by_metric)
        trial = begin_trial(opened, {"place": place, "worker": signed})
        # A worker that was asleep for long finds that its trial was failed and begun again.
        with contextlib.suppress(UpdateFinishedTrialError):
            if counted(opened.get_trials(deepcopy=False))[place].number != trial.number:
                # Another worker began it at the same moment.
                opened.tell(trial, state=TrialState.FAIL)
                continue
            with _beating(trial) if is_server(address) else contextlib.nullcontext():
                _run_one(study, opened, trial, folder / str(place))
            shutil.rmtree(folder / str(place), ignore_errors=True)


def _run_one(study: Study, opened: optuna.Study, trial: optuna.Trial, folder: Path) -> None:
    value, state = None, TrialState.PRUNED
    try:
        value, state = objective(study, trial, folder), TrialState.COMPLETE
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


def objective(study: Study, trial: optuna.Trial, folder: Path | None = None) -> float:
    """Trains on every split that is tuned on, and returns the mean value, unless the trial is pruned.

    Checkpoints are kept in ``folder``, from which an earlier attempt is continued.
    """
    options = study.options(study.space.suggest(trial))
    max_epochs = {**training_options(study.model), **options}["max_epochs"]
    report = _Report(trial, max_epochs, len(study.tuned), study.config)
    started = time.perf_counter()
    outcome = ""
    try:
        for graph, split in study.shown:
            report.graphs.append(graph.fingerprint)
            report.end_split(_train(graph, split, study.model, options, report, folder))
    except (InputError, StorageError):
        raise
    except (AdaGPRError, optuna.TrialPruned) as error:
        outcome = str(error)
        raise optuna.TrialPruned(outcome) from error
    finally:
        result: dict[str, Any] = {"seed": study.seed, "epochs": report.epochs, "graph_sha256": report.graphs}
        if report.accuracies:
            result["val_acc"] = fmean(report.accuracies)
        if report.by_metric:
            result["val_metric"] = fmean(report.by_metric)
        if outcome:
            result["pruned_because"] = outcome
        trial.set_user_attr("result", {**result, "seconds": round(time.perf_counter() - started, 3)})
    return fmean(report.values)


def _train(
    graph: Graph, split: Split, model: str, options: dict[str, Any], report: _Report, folder: Path | None
) -> Run:
    """One training of a trial; what an earlier attempt left of it is reported again."""
    setup = resolve(graph, split, model, options)
    out = None if folder is None else folder / config_digest(setup.plain)
    with open_run(graph, split, setup, out) as run:
        if isinstance(run, Run):
            report.replay(_epochs(run), setup.config)
            return run
        report.replay(run.state.history, setup.config)
        run.train(report.on_epoch, CHECKPOINT_SECONDS)
        return run.finish()


def _epochs(run: Run) -> list[Epoch]:
    """The history of a finished training."""
    names = [name for name in Epoch._fields if name in run.history.column_names]
    return [Epoch(**row) for row in run.history.select(names).to_pylist()]


class _Report:
    """Follows the trainings of one trial, reports to the study, and ends the trial where it says so."""

    def __init__(self, trial: optuna.Trial, max_epochs: int, num_splits: int, config: TrainingConfig) -> None:
        self._trial, self._max_epochs, self._num_splits = trial, max_epochs, num_splits
        self._is_by_metric = config.monitor == "val_metric"
        self._rungs = sorted({max(max_epochs // share, 1) for share in (8, 4, 2)} - {max_epochs})
        self._value = 0.0
        self.epochs = 0  # of all trainings so far
        self.graphs: list[str] = []  # fingerprints of what trainings were given, labels included
        self.values: list[float] = []  # of finished trainings, on the validation nodes
        self.accuracies: list[float] = []
        self.by_metric: list[float] = []  # where the metric is not the accuracy

    def replay(self, history: Iterable[Epoch], config: TrainingConfig) -> None:
        """Takes in epochs of an earlier attempt at the split under way."""
        stopping = Stopping()
        for number, epoch in enumerate(history, start=1):
            stopping.update(number, epoch, config)
            self.on_epoch(number, epoch, stopping)

    def on_epoch(self, number: int, epoch: Epoch, stopping: Stopping) -> None:
        """Takes in an epoch of the split under way."""
        self.epochs += 1
        if stopping.best_epoch == number:
            self._value = self._value_of(epoch)
        if number in self._rungs:
            self._report(number)
            self._prune()

    def end_split(self, run: Run) -> None:
        """Takes in a finished training; what it reached counts for the epochs that it did not need."""
        best = _epochs(run)[run.best_epoch - 1]
        self._value = self._value_of(best)
        for rung in self._rungs:
            if rung > run.num_epochs:
                self._report(rung)
        self._report(self._max_epochs)
        self.values.append(self._value)
        self.accuracies.append(run.val_acc)
        if best.val_metric is not None:
            self.by_metric.append(best.val_metric)
        if len(self.values) < self._num_splits:
            self._prune()

    def _value_of(self, epoch: Epoch) -> float:
        return epoch.by_metric if self._is_by_metric else epoch.val_loss

    def _report(self, number: int) -> None:
        self._trial.report(fmean([*self.values, self._value]), len(self.values) * self._max_epochs + number)

    def _prune(self) -> None:
        if self._trial.should_prune():
            raise optuna.TrialPruned(f"{'below' if self._is_by_metric else 'above'} the median")


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
