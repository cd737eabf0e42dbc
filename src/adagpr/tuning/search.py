"""The search: worker processes that run trials, and the one that starts them and enters again what a dead one leaves.

Workers are forked, so that they begin at once with the graph in memory; each has a connection to the storage of its
own and computes with one thread. They end with the process that started them, however that one ends. Where a system
cannot fork, that process runs the trials itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

import optuna
from optuna.exceptions import OptunaError, UpdateFinishedTrialError
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState

from adagpr.errors import AdaGPRError, StorageError, memory_errors
from adagpr.seeding import stream
from adagpr.training import begin_child
from adagpr.tuning.storage import is_server, load_study, storage_failures, without_retries
from adagpr.tuning.trial import best_trial, effective_trials, finished, num_to_do, objective, requeue, signature

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
    start = _NUM_STARTUP_TRIALS
    opened.sampler = TPESampler(seed=seed, n_startup_trials=start, multivariate=True, constant_liar=True)
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
