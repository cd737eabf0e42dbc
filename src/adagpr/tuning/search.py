"""Workers: processes that run trials, and the one that starts them and takes up what a dead one leaves.

Workers are forked, so that they begin at once with the graph in memory; each has a connection to the storage of its
own and computes with one thread. They end with the process that started them, however that one ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial

from adagpr.errors import AdaGPRError, memory_errors
from adagpr.seeding import stream
from adagpr.training.workers import begin_child
from adagpr.tuning.objective import Study, objective
from adagpr.tuning.server import without_waiting
from adagpr.tuning.storage import load_study, stale_trials, storage_failures
from adagpr.tuning.trials import best_trial, effective_trials, finished, num_to_do, of_worker, requeue, signature

__all__ = ["OnChange", "StudyProgress", "run_trials"]

_POLL_SECONDS = 0.5
# A worker signs a trial as soon as it has it. One that is seen unsigned so often was begun by a process that died.
_UNSIGNED_POLLS = 120
_DEATHS_PER_WORKER = 3
# The first trials of TPE are drawn at random; none of them is pruned.
_NUM_STARTUP_TRIALS = 10


@dataclass(frozen=True)
class StudyProgress:
    """Where a study stands: trials done and asked for, its lowest value, and the workers' processes."""

    num_done: int
    num_trials: int
    best_value: float | None
    pids: tuple[int, ...]


OnChange = Callable[[StudyProgress], None]


class _Surplus(Exception):  # noqa: N818 - not an error: another worker was faster
    """Two workers began the last trial; this is the later one."""


class _Worker:
    """A worker as its parent sees it."""

    def __init__(self, task: Study, address: str, num_trials: int) -> None:
        context = multiprocessing.get_context("fork")
        self.reader, writer = context.Pipe(duplex=False)
        arguments = (task, address, num_trials, writer, os.getpid())
        self.process: BaseProcess = context.Process(target=_work, args=arguments)
        self.process.start()
        writer.close()

    def result(self) -> str:
        """How a worker ended whose connection is at its end: ``"done"`` or ``"killed"``; what it raised is raised."""
        try:
            message = self.reader.recv()
        except EOFError:
            message = "killed"
        self.stop()
        if isinstance(message, Exception):
            raise message
        return str(message)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.reader.close()


def run_trials(
    study: optuna.Study, task: Study, address: str, num_trials: int, num_workers: int, on_change: OnChange
) -> None:
    """Has workers run trials until as many are complete or pruned as asked for; dead workers are replaced.

    Args:
        study: The study, open in this process.
        task: What it is about.
        address: Its storage, which each worker opens for itself.
        num_trials: Trials asked for.
        num_workers: Workers at the same time.
        on_change: Called now and then with where the study stands.

    Raises:
        AdaGPRError: What a worker raised, or that workers are killed again and again.
    """
    workers: list[_Worker] = []
    num_deaths = num_done = 0
    unsigned: Counter[int] = Counter()
    try:
        while True:
            for trial in stale_trials(study):
                requeue(study, trial)
            trials = study.get_trials(deepcopy=False)
            _take_up_unsigned(study, trials, unsigned)
            done = len(finished(trials))
            num_deaths, num_done = (0 if done > num_done else num_deaths), done
            best = best_trial(trials)
            pids = tuple(worker.process.pid or 0 for worker in workers)
            on_change(StudyProgress(min(done, num_trials), num_trials, None if best is None else best.value, pids))
            if done >= num_trials:
                break
            _check_deaths(num_deaths, num_workers)
            for _ in range(min(num_workers - len(workers), num_to_do(trials, num_trials))):
                workers.append(_Worker(task, address, num_trials))
            num_deaths += _reap(study, workers)
        while workers:
            _reap(study, workers)
    finally:
        for worker in workers:
            worker.stop()
        with contextlib.suppress(AdaGPRError, optuna.exceptions.OptunaError), without_waiting():
            _take_up_of(study, workers)


def _take_up_unsigned(study: optuna.Study, trials: Sequence[FrozenTrial], polls: Counter[int]) -> None:
    """Takes up trials that were seen unsigned often; while the storage is away, they are not seen."""
    for trial in of_worker(trials, None):
        polls[trial.number] += 1
        if polls[trial.number] > _UNSIGNED_POLLS:
            requeue(study, trial)


def _check_deaths(num_deaths: int, num_workers: int) -> None:
    if num_deaths >= _DEATHS_PER_WORKER * num_workers:
        raise AdaGPRError(
            f"Workers were killed {num_deaths} times before another trial was done (too little memory for it?). "
            "The same command goes on."
        )


def _reap(study: optuna.Study, workers: list[_Worker]) -> int:
    """Waits a moment, lets go of the workers that have ended, and returns how many of them were killed."""
    ready = wait([worker.reader for worker in workers], timeout=_POLL_SECONDS)
    killed = []
    for worker in [worker for worker in workers if worker.reader in ready]:
        workers.remove(worker)
        if worker.result() == "killed":
            killed.append(worker)
    _take_up_of(study, killed)
    return len(killed)


def _take_up_of(study: optuna.Study, workers: list[_Worker]) -> None:
    trials = study.get_trials(deepcopy=False) if workers else []
    for worker in workers:
        for trial in of_worker(trials, signature(worker.process.pid)):
            requeue(study, trial)


def _work(task: Study, address: str, num_trials: int, writer: Connection, parent: int) -> None:
    """The life of a worker."""
    if not begin_child(parent):
        return
    try:
        with storage_failures(address), memory_errors():
            _run_some(task, address, num_trials)
        writer.send("done")
    except (AdaGPRError, OSError) as error:
        writer.send(error)


def _run_some(task: Study, address: str, num_trials: int) -> None:
    """Runs one trial after another while there are any to do."""
    pruner = optuna.pruners.MedianPruner(n_startup_trials=_NUM_STARTUP_TRIALS)
    signed = {"worker": signature(os.getpid())}
    study = load_study(task.name, address, pruner, signed)

    begun: list[int] = []

    def run(trial: optuna.Trial) -> float:
        begun.append(trial.number)
        trial.set_user_attr("worker", signed["worker"])
        places = [other.number for other in effective_trials(study.get_trials(deepcopy=False))[:num_trials]]
        if trial.number not in places:
            raise _Surplus
        # Optuna draws when the first value is asked for.
        study.sampler = _sampler(task.seed, places.index(trial.number))
        return objective(task, trial)

    while True:
        if num_to_do(study.get_trials(deepcopy=False), num_trials) == 0:
            return
        try:
            study.optimize(run, n_trials=1, catch=(_Surplus,))
        except (UpdateFinishedTrialError, ValueError, AssertionError):
            # A worker that was asleep for long finds that its trial was failed and entered again; depending on where it
            # is, Optuna then raises any of these.
            retries = {trial.user_attrs.get("retry_of") for trial in study.get_trials(deepcopy=False)}
            if not begun or begun[-1] not in retries:
                raise
        except UnboundLocalError as error:
            # Where a trial's end cannot be stored, Optuna asks for its state, and trips when that fails too.
            raise error.__context__ or error from None


def _sampler(seed: int, place: int) -> optuna.samplers.TPESampler:
    """The sampler of one trial. What it draws depends on its place and on the results before it, and on nothing else.

    So workers never draw the same, and with one worker a study ends the same however often it was interrupted.
    """
    drawn = int(stream(seed, f"search {place}").integers(2**32))
    return optuna.samplers.TPESampler(
        seed=drawn, n_startup_trials=_NUM_STARTUP_TRIALS, multivariate=True, constant_liar=True
    )
