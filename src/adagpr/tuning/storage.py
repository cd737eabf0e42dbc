"""Where a study's trials are kept: a journal file for one machine, PostgreSQL for several.

A server may be away for a while. Each call of the storage is one transaction, which is repeated until the server
answers. If the server committed the first one and only the answer was lost, then a trial is not created again, because
it carries a mark that is looked for; one that was ended stays ended; other calls write what is there already.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import re
import uuid
from collections.abc import Callable, Container, Iterator, Sequence
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import optuna
import tenacity
from filelock import FileLock, Timeout
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import NullPool, create_engine, event, text
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError

from adagpr.errors import InputError, StorageError, without_password
from adagpr.tuning.journal import Journal

# How long a server that does not answer is waited for.
RETRY_SECONDS = 120.0

# A connection whose other end is gone is an error after so long, and not the hours that TCP would give it.
_KEEPALIVES = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3"}
_CONNECTION = {"connect_timeout": "10", "tcp_user_timeout": "30000", **_KEEPALIVES}
_CREATION_LOCK = 20210810  # any number; whoever creates tables on the server holds it
_MARK = "adagpr:entry"

_retries: ContextVar[bool] = ContextVar("retries", default=True)


def is_server(address: str) -> bool:
    """Whether an address names a database server, not a file; one that cannot be used is an `InputError`."""
    scheme, mark, _ = address.partition("://")
    if not mark and (without_password(address) != address or re.match("postgres(ql)?:", address, re.IGNORECASE)):
        raise InputError("A storage is a file or postgresql://USER@HOST/DATABASE, with the password in PGPASSWORD.")
    if mark and scheme not in ("postgresql", "postgresql+psycopg"):
        raise InputError(f"A storage is a file or postgresql://USER@HOST/DATABASE, got '{without_password(address)}'.")
    if mark and find_spec("psycopg") is None:
        raise InputError("PostgreSQL needs psycopg, which is not installed: pip install 'adagpr[postgresql]'")
    return bool(mark)


def create_study(name: str, address: str, is_maximised: bool = False) -> optuna.Study:
    """Opens a study, which is created where there is none, in a journal file or on a server.

    A server that does not answer is an error at once, because its address may be wrong; later on it is waited for.
    """
    with storage_failures(address), contextlib.ExitStack() as stack:
        if is_server(address):
            # One machine after the other creates tables and studies; at once they would collide.
            connection = stack.enter_context(create_engine(_url(address), poolclass=NullPool).connect())
            connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": _CREATION_LOCK})
        storage = _storage(address)
        direction = direction_of(is_maximised)
        opened = optuna.create_study(study_name=name, storage=storage, direction=direction, load_if_exists=True)
        stored = [each.name.lower() for each in opened.directions]
    if stored != [direction]:
        raise InputError(
            f"{without_password(address)}: the study there must {direction} one value, but it has the directions "
            f"{stored}; it is damaged. Use another storage or remove this one to begin its trials again."
        )
    return opened


def direction_of(is_maximised: bool) -> Literal["minimize", "maximize"]:
    """What Optuna calls it."""
    return "maximize" if is_maximised else "minimize"


def load_study(name: str, address: str) -> optuna.Study:
    """Opens a study in a worker."""
    with storage_failures(address):
        storage = _attempts(address)(_storage, address, forks=False)
        return optuna.load_study(study_name=name, storage=storage)


def begin_trial(opened: optuna.Study, user_attrs: dict[str, Any]) -> optuna.Trial:
    """Creates a running trial that carries ``user_attrs`` from its first moment, which `optuna.Study.ask` cannot."""
    begun = create_trial(state=TrialState.RUNNING, user_attrs=user_attrs)
    return optuna.Trial(opened, opened._storage.create_new_trial(opened._study_id, begun))


@contextlib.contextmanager
def storage_failures(address: str) -> Iterator[None]:
    """Turns the message of a database that fails into one sentence."""
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        raise StorageError(f"The storage {without_password(address)} cannot be used: {_reason(error)}") from error


def _cause(error: BaseException | None) -> BaseException | None:
    return error.__cause__ if isinstance(error, StorageInternalError) else error


def _reason(error: BaseException | None) -> str:
    """The message of a database, on one line."""
    cause = _cause(error)
    return str(getattr(cause, "orig", None) or cause).strip().partition("\n")[0]


@contextlib.contextmanager
def held(address: str) -> Iterator[None]:
    """Keeps a journal, but no server, for this process, so that nobody else runs the trials that are running in it."""
    if is_server(address):
        yield
        return
    path = Path(address)
    if path.exists() and not path.is_file():
        raise InputError(
            f"A storage is a file or postgresql://USER@HOST/DATABASE, got '{address}', a folder, a pipe or a device."
        )
    with contextlib.ExitStack() as stack:
        try:
            path.open("ab").close()
            stack.enter_context(FileLock(path.with_name(f".{path.name}.lock"), blocking=False))
        except Timeout as error:
            raise InputError(f"Another command is tuning with {path}. Wait for it, or give it more --jobs.") from error
        except OSError as error:
            raise InputError(f"Cannot write {path}: {error.strerror}.") from error
        yield


def _storage(address: str, forks: bool = True) -> BaseStorage:
    """The storage of the process that forks workers, or of a worker."""
    if is_server(address):
        return _ServerStorage(address, forks)
    try:
        return Journal(Path(address))
    except OSError as error:
        raise InputError(f"Cannot write {address}: {error.strerror}.") from error


def _url(address: str) -> URL:
    if address.partition("?")[0].count("@") > 1:
        # What follows the first would be looked up as a host, and shown.
        raise InputError("In the address of a storage, write an @ of the password as %40, or set PGPASSWORD instead.")
    try:
        url = make_url(address).set(drivername="postgresql+psycopg")
        return url.set(query={**_CONNECTION, **url.query})
    except (ArgumentError, ValueError) as error:
        raise InputError(f"The storage '{without_password(address)}' is not a URL of PostgreSQL.") from error


@contextlib.contextmanager
def without_retries() -> Iterator[None]:
    """Inside, a server that is away is an error at once."""
    token = _retries.set(False)
    try:
        yield
    finally:
        _retries.reset(token)


def _attempts(address: str) -> tenacity.Retrying:
    """Repeats a call while the server is away, up to a limit, after which it is a `StorageError`."""

    def give_up(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        raise StorageError(
            f"The storage {without_password(address)} has not answered for {state.seconds_since_start:.0f} seconds "
            f"({_reason(error)}). Its trials are kept; the same command resumes."
        ) from error

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(_is_away),
        wait=tenacity.wait_exponential(multiplier=0.1, max=2.0),
        stop=lambda state: not _retries.get() or (state.seconds_since_start or 0.0) > RETRY_SECONDS,
        retry_error_callback=give_up,
    )


class _AwayError(Exception):
    """The server cannot be reached. Not one of SQLAlchemy's, after which Optuna would create a trial again itself."""


def _is_away(error: BaseException | None) -> bool:
    """Whether an error may pass when the same is asked again: no connection, a broken one, or no room for it."""
    cause = _cause(error)
    return isinstance(cause, _AwayError | OperationalError) or bool(getattr(cause, "connection_invalidated", False))


def _replace_error(context: ExceptionContext) -> BaseException | None:
    error = context.sqlalchemy_exception
    return _AwayError(_reason(error)) if _is_away(error) else None


def _retried(name: str) -> Callable[..., Any]:
    """A method of the storage that may be called again after a failure, whether or not it was carried out."""

    def call(self: _ServerStorage, *args: Any, **kwargs: Any) -> Any:
        return _attempts(self.address)(getattr(self.database, name), *args, **kwargs)

    return call


_Retried: Any = type("_Retried", (BaseStorage,), {name: _retried(name) for name in BaseStorage.__abstractmethods__})


class _ServerStorage(_Retried):  # type: ignore[misc]
    """Optuna's storage on a server that may be away for a while."""

    def __init__(self, address: str, forks: bool) -> None:
        self.address = address
        # What SQLAlchemy asks about hstore, which nobody needs here, fails in other words than all else. No connection
        # of a process that forks outlives its use, so that none is shared with a child.
        options = {"use_native_hstore": False, **({"poolclass": NullPool} if forks else {})}
        url = _url(address).render_as_string(hide_password=False)
        self.database = RDBStorage(url, engine_kwargs=options, skip_table_creation=not forks)
        event.listen(self.database.engine, "handle_error", _replace_error)
        self._finished: dict[int, dict[int, FrozenTrial]] = {}

    get_trial_id_from_study_id_trial_number = _retried("get_trial_id_from_study_id_trial_number")

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """All trials; those that are finished are read only once."""
        known = self._finished.setdefault(study_id, {})
        missing = (TrialState.RUNNING, TrialState.WAITING) if known else None
        read = _attempts(self.address)(self.database.get_all_trials, study_id, deepcopy=False, states=missing)
        trials = {**known, **{trial.number: trial for trial in read}}
        with contextlib.suppress(KeyError):  # there are no more
            for number in itertools.count():
                if number not in trials:
                    trials[number] = self.get_trial(self.get_trial_id_from_study_id_trial_number(study_id, number))
        known |= {number: trial for number, trial in trials.items() if trial.state.is_finished()}
        kept = [trial for _, trial in sorted(trials.items()) if states is None or trial.state in states]
        return copy.deepcopy(kept) if deepcopy else kept

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Creates a trial, unless an attempt whose answer was lost did."""
        trial = copy.copy(template_trial or create_trial(state=TrialState.RUNNING))
        mark = uuid.uuid4().hex
        trial.system_attrs = {**trial.system_attrs, _MARK: mark}
        attempts = itertools.count()

        def create() -> int:
            for other in self.get_all_trials(study_id, deepcopy=False) if next(attempts) else ():
                if other.system_attrs.get(_MARK) == mark:
                    return int(self.get_trial_id_from_study_id_trial_number(study_id, other.number))
            return self.database.create_new_trial(study_id, trial)

        return _attempts(self.address)(create)

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Begins or ends a trial, unless an attempt whose answer was lost ended it."""
        attempts = itertools.count()

        def change() -> bool:
            if next(attempts) and state.is_finished() and self.get_trial(trial_id).state == state:
                return True
            return self.database.set_trial_state_values(trial_id, state, values)

        return _attempts(self.address)(change)
