"""Where a study's trials are kept: a journal file for one machine, PostgreSQL for several.

The journal is Optuna's: a text file with one JSON object a line, and nothing in it is ever executed. Optuna's own lock
is a file that a killed process leaves behind, and half a line that it wrote would spoil all that follows. Here the
kernel holds the lock, and whoever takes it removes such a line first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages.journal import JournalFileBackend
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from adagpr.errors import InputError, StorageError

__all__ = ["create_study", "held", "is_server", "load_study", "shown", "stale_trials_failed", "storage_failures"]

OnStale = Callable[[optuna.Study, optuna.trial.FrozenTrial], None]

# A worker of another machine is taken for dead after six beats that did not come.
HEARTBEAT_SECONDS = 10
GRACE_SECONDS = 60

_CREATION_LOCK = 20210810  # any number; whoever creates tables on the server holds it


def is_server(address: str) -> bool:
    """Whether ``address`` names a database server, not a file.

    Raises:
        InputError: It names one of another kind than PostgreSQL, or what talks to it is not installed.
    """
    scheme, mark, _ = address.partition("://")
    if mark and scheme not in ("postgresql", "postgresql+psycopg"):
        raise InputError(f"A storage is a file or postgresql://USER@HOST/DATABASE, got '{shown(address)}'.")
    if mark and find_spec("psycopg") is None:
        raise InputError("PostgreSQL needs psycopg, which is not installed: pip install 'adagpr[postgresql]'")
    return bool(mark)


def shown(address: str) -> str:
    """The address without a password, as it may be printed and kept."""
    return re.sub(r"(?<=://)([^/@:]*):[^/]*@", r"\1@", re.sub(r"(?<=password=)[^&]*", "...", address))


def create_study(name: str, address: str, on_stale: OnStale) -> optuna.Study:
    """Opens the study of that name and creates it where there is none, storage included.

    Args:
        name: Name of the study.
        address: Path of a journal file, or URL of a server.
        on_stale: Called, on a server, with a trial whose worker was not heard of for long, after it was failed.
    """
    with storage_failures(address), _creating(address):
        storage = _storage(address, on_stale, forks=True)
        return optuna.create_study(study_name=name, storage=storage, direction="minimize", load_if_exists=True)


def load_study(name: str, address: str, on_stale: OnStale, pruner: optuna.pruners.BasePruner) -> optuna.Study:
    """Opens a study that exists, with a connection of its own, in a process that does not fork."""
    with storage_failures(address):
        return optuna.load_study(study_name=name, storage=_storage(address, on_stale, forks=False), pruner=pruner)


def stale_trials_failed(study: optuna.Study) -> None:
    """Fails the trials whose workers were not heard of for long, on a server; ``on_stale`` is called with each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)


@contextlib.contextmanager
def storage_failures(address: str) -> Iterator[None]:
    """Turns what a database says when it fails into one sentence."""
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        reason = str(getattr(error, "orig", None) or error.__cause__ or error).strip().partition("\n")[0]
        raise StorageError(f"The storage {shown(address)} cannot be used: {reason}") from error


@contextlib.contextmanager
def held(address: str) -> Iterator[None]:
    """Keeps a journal for this process and those that it forks; the kernel lets go when the last of them is gone.

    So whoever gets hold of a journal knows that trials which are running in it are run by nobody. A server is not held.
    """
    if is_server(address):
        yield
        return
    path = Path(address)
    with _opened(path.with_name(f".{path.name}.lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"Another command is tuning with {path}. Wait for it, or give it more --jobs.") from error
        yield


def _storage(address: str, on_stale: OnStale, forks: bool) -> optuna.storages.BaseStorage:
    if is_server(address):
        return _server(address, on_stale, forks)
    try:
        with _opened(Path(address), "ab"):
            pass
        backend = JournalFileBackend(address, lock_obj=_JournalLock(address))  # type: ignore[arg-type]
        return optuna.storages.JournalStorage(backend)
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise InputError(f"{address} is not a study's journal, or it is damaged: {error}.") from error


def _opened(path: Path, mode: str) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.") from error


class _JournalLock:
    """The lock that a process holds while it writes to the journal; Optuna asks for these two methods."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Waits for the lock."""
        self._file = self._path.open("rb+")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        _cut_half_line(self._file)
        return True

    def release(self) -> None:
        """Lets go."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _cut_half_line(file: IO[bytes]) -> None:
    size = end = file.seek(0, os.SEEK_END)
    while end > 0:
        file.seek(end - 1)
        if file.read(1) == b"\n":
            break
        end -= 1
    if end < size:
        file.truncate(end)


def _url(address: str) -> URL:
    try:
        return make_url(address).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError) as error:
        raise InputError(f"The storage '{shown(address)}' is not a URL of PostgreSQL.") from error


def _server(address: str, on_stale: OnStale, forks: bool) -> optuna.storages.RDBStorage:
    # Where a process forks, no connection outlives its use, so that none is shared with a child.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return optuna.storages.RDBStorage(
            _url(address).render_as_string(hide_password=False),
            engine_kwargs={"poolclass": NullPool} if forks else {},
            skip_table_creation=not forks,
            heartbeat_interval=HEARTBEAT_SECONDS,
            grace_period=GRACE_SECONDS,
            heartbeat_stale_trial_callback=on_stale,
        )


@contextlib.contextmanager
def _creating(address: str) -> Iterator[None]:
    """Lets one machine after the other create tables and studies on a server; at once they would collide."""
    if not is_server(address):
        yield
        return
    engine = create_engine(_url(address), poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": _CREATION_LOCK})
        yield
