"""The file that a study's trials are kept in on one machine: Optuna's journal, one JSON object per line.

Nothing in it is ever executed. Optuna's lock is a file that a killed process leaves behind, and half a line that it
wrote would spoil all that follows. Here the operating system holds the lock, and whoever takes it removes such a line
first. What Optuna reads from the file is checked before anybody uses it.
"""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path

import optuna
from filelock import FileLock
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from adagpr.errors import InputError, escaped, reason_of
from adagpr.schemas import TrialAttributes, conform

# What Optuna raises on lines that it did not write; exceptions of its own are about what it was asked for.
_FROM_OPTUNA = (ValueError, LookupError, TypeError, AttributeError, AssertionError, ArithmeticError)
_WAY_OUT = "Remove it to begin its trials again."


def _damaged(path: Path, error: Exception) -> InputError:
    reason = f"{error} is missing" if isinstance(error, KeyError) else reason_of(error)
    return InputError(escaped(f"{path} is not a study's journal, or it is damaged: {reason}. {_WAY_OUT}"))


class JournalLock:
    """The lock that a process holds while it writes to the journal; Optuna asks for these two methods."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(path.with_name(f".{path.name}.writing"), poll_interval=0.005)

    def acquire(self) -> bool:
        """Waits for the lock; then the file ends with a whole line."""
        self._lock.acquire()
        try:
            with self._path.open("rb+") as file:
                content = file.read()
                end = content.rfind(b"\n") + 1
                # Optuna finds out that the last line is damaged only once it has written another one.
                if last := content[:end].rstrip(b"\n").rpartition(b"\n")[2]:
                    json.loads(last)
                file.truncate(end)
        except ValueError as error:
            self._lock.release()
            raise _damaged(self._path, error) from error
        return True

    def release(self) -> None:
        """Lets go."""
        self._lock.release()


class Journal(JournalStorage):
    """Optuna's storage in a journal; whatever a damaged one makes it fail with is an `InputError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checked: set[int] = set()
        super().__init__(JournalFileBackend(str(path), lock_obj=JournalLock(path)))  # type: ignore[arg-type]

    def _sync_with_backend(self) -> None:
        try:
            super()._sync_with_backend()
        except InputError:
            raise
        except _FROM_OPTUNA as error:
            raise _damaged(self._path, error) from error

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """All trials, each of which holds what a trial must."""
        trials = super().get_all_trials(study_id, deepcopy, states)
        for trial in trials:
            if trial._trial_id not in self._checked:
                self._check(trial)
            if trial.state.is_finished():
                self._checked.add(trial._trial_id)
        return trials

    def _check(self, trial: FrozenTrial) -> None:
        attributes = {**trial.user_attrs, "params": trial.params, "values": trial.values}
        attributes |= {"intermediate_values": trial.intermediate_values, "number": trial.number}
        attributes |= {"is_complete": trial.state == TrialState.COMPLETE}
        conform(self._path, TrialAttributes, attributes, _WAY_OUT)
        try:
            # Whether parameters fit their ranges, Optuna checks when a trial is added.
            optuna.create_study().add_trial(trial)
        except _FROM_OPTUNA as error:
            raise _damaged(self._path, error) from error
