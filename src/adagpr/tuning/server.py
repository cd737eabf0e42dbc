"""A PostgreSQL server that may be away for a while: calls wait for it, and what they do is done once.

A server that is killed and started again has kept every transaction that it committed, and nothing else. Each call of
Optuna's storage is one transaction, and is repeated until the server answers. If the server committed the first one and
only the answer was lost, then

* a trial is not created again: it carries a mark, which is looked for in the transaction that would create it;
* a trial that was ended stays ended, with the value it has;
* a waiting trial that was begun is left alone, because another worker may have begun it; if nobody signs it, it is
  taken up again;
* all other calls write what is there already.
"""

from __future__ import annotations

import contextlib
import copy
import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.storages._rdb.models import TrialHeartbeatModel, TrialModel, TrialSystemAttributeModel
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import OperationalError, PendingRollbackError, SQLAlchemyError
from sqlalchemy.orm import Session

from adagpr.errors import StorageError

__all__ = ["Patience", "PatientStorage", "reason", "without_waiting"]

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_SECONDS = 120.0

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_MARK = "adagpr:entry"

_waits: ContextVar[bool] = ContextVar("waits", default=True)


@contextlib.contextmanager
def without_waiting() -> Iterator[None]:
    """Inside, a server that is away is an error at once."""
    token = _waits.set(False)
    try:
        yield
    finally:
        _waits.reset(token)


def reason(error: Exception) -> str:
    """What a database said, on one line."""
    cause = _cause(error)
    return str(getattr(cause, "orig", None) or cause).strip().partition("\n")[0]


def _cause(error: BaseException) -> BaseException:
    return error.__cause__ or error if isinstance(error, StorageInternalError) else error


def _is_away(error: Exception) -> bool:
    """Whether an error may pass when the same is asked again: no connection, a broken one, or no room for it."""
    cause = _cause(error)
    if isinstance(cause, PendingRollbackError):  # Optuna repeats some queries on the connection that just broke
        return True
    return isinstance(cause, OperationalError) or bool(getattr(cause, "connection_invalidated", False))


class Patience:
    """Repeats calls while a server is away, up to a limit.

    Args:
        name: The server's address as it may be printed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._away_since: float | None = None
        self._heard_since = time.monotonic()

    @property
    def seconds_heard(self) -> float:
        """How long the server has answered without a break."""
        return 0.0 if self._away_since is not None else time.monotonic() - self._heard_since

    def call(self, function: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Calls a function until the server answers.

        Args:
            function: What to call.
            again: What to call instead once an attempt has failed, which may have been carried out nevertheless.

        Raises:
            StorageError: The server was away for longer than the limit.
        """
        pause, since = _FIRST_PAUSE, None
        while True:
            try:
                result = function()
            except (StorageInternalError, SQLAlchemyError) as error:
                if not _is_away(error):
                    raise
                since = since or self._note_absence()
                self._check_limit(since, error)
            else:
                self._note_answer()
                return result
            function = again or function
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _note_absence(self) -> float:
        self._away_since = self._away_since or time.monotonic()
        return self._away_since

    def _note_answer(self) -> None:
        if self._away_since is not None:
            self._away_since, self._heard_since = None, time.monotonic()

    def _check_limit(self, since: float, error: Exception) -> None:
        if not _waits.get() or time.monotonic() - since > PATIENCE_SECONDS:
            raise StorageError(
                f"The storage {self._name} has not answered for {time.monotonic() - since:.0f} seconds "
                f"({reason(error)}). Its trials are kept; the same command goes on."
            ) from error


def _patient(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method of the storage that may be called again after a failure, whether or not it was carried out."""

    @wraps(method)
    def call(self: PatientStorage, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._patience.call(partial(method, self, *args, **kwargs))

    return call


class PatientStorage(RDBStorage):
    """Optuna's storage on a server that may be away for a while.

    Args:
        url: Address for SQLAlchemy.
        patience: Who waits for the server.
        user_attrs: What a trial that a worker creates carries from its first moment; none for the process that starts
            workers, which alone looks for silent ones.
        options: What else `optuna.storages.RDBStorage` takes.
    """

    def __init__(self, url: str, patience: Patience, user_attrs: dict[str, Any] | None, **options: Any) -> None:
        self._patience, self._user_attrs = patience, user_attrs
        super().__init__(url, **options)

    create_new_study = _patient(RDBStorage.create_new_study)
    get_study_id_from_name = _patient(RDBStorage.get_study_id_from_name)
    get_study_name_from_id = _patient(RDBStorage.get_study_name_from_id)
    get_study_directions = _patient(RDBStorage.get_study_directions)
    get_study_user_attrs = _patient(RDBStorage.get_study_user_attrs)
    get_study_system_attrs = _patient(RDBStorage.get_study_system_attrs)
    get_trial = _patient(RDBStorage.get_trial)
    get_trial_id_from_study_id_trial_number = _patient(RDBStorage.get_trial_id_from_study_id_trial_number)
    set_trial_intermediate_value = _patient(RDBStorage.set_trial_intermediate_value)
    set_trial_user_attr = _patient(RDBStorage.set_trial_user_attr)
    set_trial_system_attr = _patient(RDBStorage.set_trial_system_attr)
    # Optuna keeps what it has read in a cache in front of the storage, which calls these.
    _get_trials = _patient(RDBStorage._get_trials)
    _set_trial_param = _patient(RDBStorage._set_trial_param)

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        begun = create_trial(state=TrialState.RUNNING, user_attrs=self._user_attrs)
        trial = begun if template_trial is None else copy.copy(template_trial)
        trial.system_attrs = {**trial.system_attrs, _MARK: uuid.uuid4().hex}
        return self._patience.call(partial(super()._create_new_trial, study_id, trial))

    def _get_prepared_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None, session: Session
    ) -> TrialModel:
        """Optuna asks for the trial to be committed, holding the study's lock, and again after a failure.

        A trial that runs is committed with a beat. Without one, nobody would miss it.
        """
        mark = "" if template_trial is None else json.dumps(template_trial.system_attrs[_MARK])
        attribute = TrialSystemAttributeModel
        marked = session.query(TrialModel).join(attribute).filter(TrialModel.study_id == study_id)
        found: TrialModel | None = marked.filter(attribute.key == _MARK, attribute.value_json == mark).one_or_none()
        if found is not None:
            return found
        trial = super()._get_prepared_new_trial(study_id, template_trial, session)
        if trial.state == TrialState.RUNNING:
            session.add(TrialHeartbeatModel(trial_id=trial.trial_id))
        return trial

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Begins or ends a trial. One that is begun beats before its worker can sign it."""
        once = partial(super().set_trial_state_values, trial_id, state, values)

        def again() -> bool:
            try:
                return once()
            except UpdateFinishedTrialError:
                trial = self.get_trial(trial_id)
                if trial.state != state or trial.values != (None if values is None else list(values)):
                    raise
                return True

        is_done = self._patience.call(once, again)
        if is_done and state == TrialState.RUNNING:
            self._patience.call(partial(super().record_heartbeat, trial_id))
        return is_done

    def record_heartbeat(self, trial_id: int) -> None:
        """Says that a trial is running; where that does not come through, the next beat will."""
        with contextlib.suppress(StorageError), without_waiting():
            self._patience.call(partial(super().record_heartbeat, trial_id))

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        """The trials whose workers are silent; while the server is away nobody is heard, and all have time after it.

        In a worker there are none, because Optuna would fail them before they are entered again.
        """
        if self._user_attrs is not None:
            return []
        found = self._patience.call(partial(super()._get_stale_trial_ids, study_id))
        return found if self._patience.seconds_heard > (self.grace_period or 0) else []
