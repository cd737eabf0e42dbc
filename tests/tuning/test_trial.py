from __future__ import annotations

import os
import subprocess

import optuna
import pytest
from optuna.trial import TrialState

from adagpr.tuning.search import (
    best_trial,
    effective_trials,
    finished,
    is_abandoned,
    num_to_do,
    requeue,
    signature,
)

optuna.logging.set_verbosity(optuna.logging.CRITICAL)


@pytest.fixture
def study() -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))


def begin(study: optuna.Study, pid: int = 1) -> optuna.Trial:
    trial = study.ask()
    trial.set_user_attr("worker", signature(pid))
    trial.suggest_float("x", 0, 1)
    trial.set_user_attr("drawn", True)
    return trial


def numbers(trials: list[optuna.trial.FrozenTrial]) -> list[int]:
    return [trial.number for trial in trials]


def test_a_trial_that_is_taken_up_again_keeps_its_values_and_its_place(study: optuna.Study) -> None:
    lost, other = begin(study), begin(study, pid=2)
    requeue(study, study.trials[lost.number])
    again = begin(study)
    assert again.params == lost.params
    assert study.trials[lost.number].state == TrialState.FAIL
    assert numbers(effective_trials(study.trials)) == [again.number, other.number]


def test_one_that_is_lost_twice_keeps_them_too(study: optuna.Study) -> None:
    first = begin(study)
    requeue(study, study.trials[0])
    study.ask()
    requeue(study, study.trials[1])
    third = begin(study)
    assert third.params == first.params
    assert numbers(effective_trials(study.trials)) == [2]
    assert study.trials[2].user_attrs["first"] == 0


def test_values_of_which_not_all_were_drawn_are_drawn_anew(study: optuna.Study) -> None:
    study.ask().suggest_float("x", 0, 1)
    requeue(study, study.trials[0])
    assert study.trials[1].system_attrs["fixed_params"] == {}


def test_dying_between_entering_and_failing_loses_and_doubles_nothing(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = begin(study)

    def die(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(study, "tell", die)
        with pytest.raises(KeyboardInterrupt):
            requeue(study, study.trials[0])
    assert numbers(effective_trials(study.trials)) == [1]
    assert num_to_do(study.trials, 1) == 1
    requeue(study, study.trials[0])
    assert len(study.trials) == 2
    assert begin(study).params == lost.params


def test_only_what_nobody_has_begun_is_to_do(study: optuna.Study) -> None:
    study.tell(begin(study), 1.0)
    study.tell(begin(study), state=TrialState.PRUNED)
    study.tell(begin(study), state=TrialState.FAIL)
    begin(study), begin(study)
    requeue(study, study.trials[-1])
    assert numbers(finished(study.trials)) == [0, 1]
    assert num_to_do(study.trials, 10) == 7
    assert num_to_do(study.trials, 2) == 0


def test_of_two_entries_of_a_lost_trial_the_first_counts(study: optuna.Study) -> None:
    lost, other = begin(study), begin(study, pid=2)
    for _ in range(2):
        study.enqueue_trial(lost.params, user_attrs={"retry_of": 0, "first": 0})
    assert numbers(effective_trials(study.trials)) == [2, other.number]
    begin(study)
    requeue(study, study.trials[2])
    assert numbers(effective_trials(study.trials)) == [3, other.number]
    study.tell(begin(study), 1.0)
    assert numbers(finished(study.trials)) == [3]
    assert num_to_do(study.trials, 2) == 0


def test_a_trial_that_ends_although_it_was_entered_again_counts(study: optuna.Study) -> None:
    slow = begin(study)
    study.enqueue_trial(slow.params, user_attrs={"retry_of": 0, "first": 0})
    study.tell(slow, 1.0)
    assert numbers(effective_trials(study.trials)) == [slow.number]
    requeue(study, study.trials[0])
    assert len(study.trials) == 2


def test_a_trial_is_abandoned_when_its_process_is_gone(study: optuna.Study) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    begin(study, pid=os.getpid()), begin(study, pid=gone.pid)
    elsewhere = study.ask()
    elsewhere.set_user_attr("worker", {"host": "elsewhere", "pid": gone.pid})
    assert [is_abandoned(trial) for trial in study.trials] == [False, True, False]


def test_the_best_is_complete_and_the_first_of_equals(study: optuna.Study) -> None:
    assert best_trial([]) is None
    pruned = begin(study)
    pruned.report(0.1, 1)
    study.tell(pruned, state=TrialState.PRUNED)
    for value in (3.0, 2.0, 2.0):
        study.tell(begin(study), value)
    best = best_trial(study.trials)
    assert best is not None
    assert best.number == 2
