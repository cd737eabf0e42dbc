"""The trials of a study: which count, which may begin, and how one is taken up again whose worker is gone.

A trial that nobody runs any more is entered again, with the values it tried, and then failed; the new one says of which
it is the continuation. Whatever moment a process dies at, counting `effective_trials` gives the right number: a trial
that was entered again does not count, whether or not it was failed already.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from adagpr.tuning.space import tidy

__all__ = [
    "best_trial",
    "effective_trials",
    "finished",
    "is_abandoned",
    "num_to_do",
    "of_worker",
    "plain_trial",
    "requeue",
    "signature",
]


def effective_trials(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that count towards those asked for: of a trial and those that continue it one, in the first's place.

    That is the one that ended, or else the one that is to end. Several are possible where two machines entered a trial
    again at the same moment, or where its worker was not dead; the first of them counts.
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
    return [trial for trial in effective_trials(trials) if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]


def num_to_do(trials: Sequence[FrozenTrial], num_trials: int) -> int:
    """How many trials nobody has begun yet, those that are to be taken up again included."""
    begun = [trial for trial in effective_trials(trials) if trial.state != TrialState.WAITING]
    return max(num_trials - len(begun), 0)


def of_worker(trials: Sequence[FrozenTrial], worker: dict[str, Any] | None) -> list[FrozenTrial]:
    """The running trials that a worker has signed; for none, those that nobody signed."""
    return [trial for trial in trials if trial.state == TrialState.RUNNING and trial.user_attrs.get("worker") == worker]


def signature(pid: int | None) -> dict[str, Any]:
    """What a worker signs its trials with."""
    return {"host": platform.node(), "pid": pid}


def is_abandoned(trial: FrozenTrial) -> bool:
    """Whether a trial is running for a worker of this machine that no longer exists."""
    worker = trial.user_attrs.get("worker")
    if trial.state != TrialState.RUNNING or worker is None or worker["host"] != platform.node():
        return False
    with contextlib.suppress(PermissionError):
        try:
            os.kill(worker["pid"], 0)
        except ProcessLookupError:
            return True
    return False


def requeue(study: optuna.Study, trial: FrozenTrial) -> None:
    """Enters a trial again, once, so that whichever worker is free runs it; and fails it where it is still running."""
    retries = [other for other in study.get_trials(deepcopy=False) if other.user_attrs.get("retry_of") == trial.number]
    if not retries:
        # Whoever died before all values were drawn has tried none of them.
        params = trial.params if "drawn" in trial.user_attrs else trial.system_attrs.get("fixed_params", {})
        origin = {"retry_of": trial.number, "first": trial.user_attrs.get("first", trial.number)}
        study.enqueue_trial(params, user_attrs=origin)
    # On a server another machine may have been faster.
    with contextlib.suppress(UpdateFinishedTrialError):
        study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def best_trial(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The complete trial with the lowest value, the first of equals."""
    complete = [trial for trial in finished(trials) if trial.state == TrialState.COMPLETE]
    return min(complete, key=lambda trial: (trial.value, trial.number), default=None)


def plain_trial(trial: FrozenTrial) -> dict[str, Any]:
    """A trial as it stands in a record; what two equal studies may differ in is under ``machine``."""
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
