"""Places: which trials count, which can begin, and what a trial is drawn from.

The n-th trial of a search has the place n, from 0. With a window of w, what place p tries and whether it is pruned
depends on the results of the places up to p - w alone, and it begins when these are there. So at most w trials run at
the same time, and a study ends the same with any number of workers, whoever is faster and whoever is killed.

What Optuna's study holds are attempts: a trial whose worker is gone is failed, and another attempt at its place draws
the same values and continues from the last checkpoint, which is in a folder of the place. Should two be made at the
same moment, by two machines, the first one counts.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

import optuna
from optuna.pruners import MedianPruner
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState

from adagpr.seeding import stream
from adagpr.tuning.space import tidy
from adagpr.tuning.storage import direction_of

# With fewer trials before it a trial is drawn at random, and with fewer complete ones it is not pruned.
_NUM_STARTUP_TRIALS = 10


def counted(trials: Sequence[FrozenTrial]) -> dict[int, FrozenTrial]:
    """The trial that counts at each place: of the attempts at it the first that ended, else the first under way."""
    found: dict[int, FrozenTrial] = {}
    earlier: dict[int, FrozenTrial] = {}
    attempts: list[FrozenTrial] = []
    for trial in sorted(trials, key=lambda trial: trial.number):
        if "place" in trial.user_attrs:
            attempts.append(trial)
        elif _is_done(trial):
            # From before there were places. ``first`` is the number of the first attempt.
            earlier.setdefault(trial.user_attrs.get("first", trial.number), trial)
    found |= enumerate(earlier[number] for number in sorted(earlier))
    for trial in attempts:
        other = found.get(trial.user_attrs["place"])
        if trial.state != TrialState.FAIL and (other is None or (_is_done(trial) and not _is_done(other))):
            found[trial.user_attrs["place"]] = trial
    return found


def _is_done(trial: FrozenTrial) -> bool:
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def finished(trials: Sequence[FrozenTrial]) -> dict[int, FrozenTrial]:
    """The trials that ran to their end or were pruned, by place and in that order."""
    return {place: trial for place, trial in sorted(counted(trials).items()) if _is_done(trial)}


def open_places(trials: Sequence[FrozenTrial], window: int, num_trials: int) -> list[int]:
    """The places at which a trial can begin now: nobody runs them, and the places that they depend on are finished."""
    done, begun = finished(trials), counted(trials)
    first = next(place for place in count() if place not in done)
    return [place for place in range(first, min(first + window, num_trials)) if place not in begun]


def draw_after(
    opened: optuna.Study, before: list[FrozenTrial], seed: int, place: int, is_maximised: bool = False
) -> None:
    """Has the next trial of a study drawn and pruned as if these were all the trials before it."""
    known = optuna.create_study(direction=direction_of(is_maximised))
    known.add_trials(before)
    # Places with the same trials before them never draw the same.
    opened.sampler = _Sampler(known, int(stream(seed, f"search {place}").integers(2**32)))
    opened.pruner = _Pruner(known)


class _Sampler(TPESampler):
    """Draws from what is known, whatever the study holds."""

    def __init__(self, known: optuna.Study, seed: int) -> None:
        super().__init__(seed=seed, n_startup_trials=_NUM_STARTUP_TRIALS, multivariate=True, constant_liar=False)
        self._known = known

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        return super().infer_relative_search_space(self._known, trial)

    def sample_relative(self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, Any]) -> dict[str, Any]:
        return super().sample_relative(self._known, trial, search_space)

    def sample_independent(self, study: optuna.Study, trial: FrozenTrial, *parameter: Any) -> Any:
        return super().sample_independent(self._known, trial, *parameter)


class _Pruner(MedianPruner):
    """Compares with what is known, whatever the study holds."""

    def __init__(self, known: optuna.Study) -> None:
        super().__init__(n_startup_trials=_NUM_STARTUP_TRIALS)
        self._known = known

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        return super().prune(self._known, trial)


def best_place(trials: Sequence[FrozenTrial], is_maximised: bool = False) -> int | None:
    """The place of the complete trial with the lowest value, or the highest, the first of equals."""
    sign = -1 if is_maximised else 1
    values = {place: trial.value for place, trial in finished(trials).items() if trial.state == TrialState.COMPLETE}
    return min(values, key=lambda place: (sign * (values[place] or 0.0), place), default=None)


def plain_trials(trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
    """The finished trials by place as they are in a record; what equal studies may differ in is under ``machine``."""
    attempts = Counter(trial.user_attrs.get("place") for trial in trials)
    return [_plain_trial(place, trial, attempts[place] or 1) for place, trial in finished(trials).items()]


def _plain_trial(place: int, trial: FrozenTrial, num_attempts: int) -> dict[str, Any]:
    result: dict[str, Any] = dict(trial.user_attrs.get("result", {}))
    machine = {**trial.user_attrs.get("worker", {}), "attempts": num_attempts, "seconds": result.pop("seconds", None)}
    for key, moment in (("began_at", trial.datetime_start), ("ended_at", trial.datetime_complete)):
        machine[key] = None if moment is None else moment.astimezone(datetime.UTC).isoformat(timespec="milliseconds")
    return {
        "number": place,
        "state": trial.state.name.lower(),
        "value": trial.value,
        "params": {name: tidy(value) for name, value in trial.params.items()},
        **result,
        "machine": machine,
    }
