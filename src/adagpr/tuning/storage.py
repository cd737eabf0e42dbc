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
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from adagpr.errors import InputError, StorageError
from adagpr.tuning.server import Patience, PatientStorage, reason

__all__ = ["create_study", "held", "is_server", "load_study", "shown", "stale_trials", "storage_failures"]

# A worker of another machine is taken for dead after six beats that did not come.
HEARTBEAT_SECONDS = 10
GRACE_SECONDS = 60

# A connection whose other end is gone is an error after so long, and not the hours that TCP would give it.
_CONNECTION = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

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


def create_study(name: str, address: str) -> optuna.Study:
    """Opens the study of that name and creates it where there is none, storage included.

    A server that does not answer is an error at once, because its address may be wrong; later on it is waited for.

    Args:
        name: Name of the study.
        address: Path of a journal file, or URL of a server.
    """
    with storage_failures(address), _creating(address):
        storage = _storage(address)
        return optuna.create_study(study_name=name, storage=storage, direction="minimize", load_if_exists=True)


def load_study(name: str, address: str, pruner: optuna.pruners.BasePruner, user_attrs: dict[str, Any]) -> optuna.Study:
    """Opens a study that exists, with a connection of its own, in a worker, which does not fork.

    Args:
        name: Name of the study.
        address: Path of a journal file, or URL of a server.
        pruner: The study's pruner.
        user_attrs: What a trial that this worker creates carries from its first moment, on a server.
    """
    with storage_failures(address):
        storage = Patience(shown(address)).call(lambda: _storage(address, user_attrs))
        return optuna.load_study(study_name=name, storage=storage, pruner=pruner)


def stale_trials(study: optuna.Study) -> list[FrozenTrial]:
    """The running trials whose workers were not heard of for long, on a server; with a journal, none."""
    storage = study._storage
    if not isinstance(storage, optuna.storages._CachedStorage):
        return []
    return [storage.get_trial(trial_id) for trial_id in storage._get_stale_trial_ids(study._study_id)]


@contextlib.contextmanager
def storage_failures(address: str) -> Iterator[None]:
    """Turns what a database says when it fails into one sentence."""
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        raise StorageError(f"The storage {shown(address)} cannot be used: {reason(error)}") from error


@contextlib.contextmanager
def held(address: str) -> Iterator[None]:
    """Keeps a journal for this process and those that it forks; the kernel lets go when the last of them is gone.

    So whoever gets hold of a journal knows that trials which are running in it are run by nobody. A server is not held.
    """
    if is_server(address):
        yield
        return
    path = Path(address)
    if path.is_dir():
        raise InputError(f"A storage is a file or postgresql://USER@HOST/DATABASE, got the folder '{address}'.")
    with _opened(path.with_name(f".{path.name}.lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"Another command is tuning with {path}. Wait for it, or give it more --jobs.") from error
        yield


def _storage(address: str, user_attrs: dict[str, Any] | None = None) -> optuna.storages.BaseStorage:
    """The storage of a worker, which has attributes for its trials, or of the process that forks workers."""
    if is_server(address):
        return _server(address, user_attrs)
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
        url = make_url(address).set(drivername="postgresql+psycopg")
        return url.set(query={**_CONNECTION, **url.query})
    except (ArgumentError, ValueError) as error:
        raise InputError(f"The storage '{shown(address)}' is not a URL of PostgreSQL.") from error


def _server(address: str, user_attrs: dict[str, Any] | None) -> PatientStorage:
    forks = user_attrs is None
    # What SQLAlchemy asks about hstore, which nobody needs here, fails in other words than all else.
    options: dict[str, Any] = {"use_native_hstore": False}
    if forks:
        # No connection outlives its use, so that none is shared with a child.
        options["poolclass"] = NullPool
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return PatientStorage(
            _url(address).render_as_string(hide_password=False),
            Patience(shown(address)),
            user_attrs,
            engine_kwargs=options,
            skip_table_creation=not forks,
            heartbeat_interval=HEARTBEAT_SECONDS,
            grace_period=GRACE_SECONDS,
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
