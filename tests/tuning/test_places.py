"""Which attempts count, which places are open, and what a trial is drawn from."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from adagpr.tuning import places
from adagpr.tuning.places import best_place, counted, draw_after, finished, open_places, plain_trials
from adagpr.tuning.storage import begin_trial

optuna.logging.set_verbosity(optuna.logging.CRITICAL)


@pytest.fixture
def study() -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))


def begin(study: optuna.Study, place: int) -> optuna.Trial:
    return begin_trial(study, {"place": place})


def numbers(study: optuna.Study) -> dict[int, int]:
    """The number of the attempt that counts at each place."""
    return {place: trial.number for place, trial in counted(study.trials).items()}


def test_the_place_of_a_failed_attempt_is_free_for_another(study: optuna.Study) -> None:
    lost = begin(study, 0)
    begin(study, 1)
    assert open_places(study.trials, 4, 3) == [2]
    study.tell(lost, state=TrialState.FAIL)
    assert open_places(study.trials, 4, 3) == [0, 2]
    begin(study, 0)
    assert numbers(study) == {0: 2, 1: 1}
    assert open_places(study.trials, 4, 3) == [2]


def test_of_two_attempts_the_first_counts_until_one_ends(study: optuna.Study) -> None:
    first, second = begin(study, 0), begin(study, 0)
    assert numbers(study) == {0: first.number}
    study.tell(second, 1.0)
    assert numbers(study) == {0: second.number}
    study.tell(first, 1.0)
    assert numbers(study) == {0: first.number}


def test_no_more_trials_than_the_window_run_and_none_before_its_time(study: optuna.Study) -> None:
    trials = [begin(study, place) for place in open_places(study.trials, 3, 9)]
    assert len(trials) == 3
    for late in trials[1:]:
        study.tell(late, 1.0)
        assert open_places(study.trials, 3, 9) == []
    study.tell(trials[0], state=TrialState.PRUNED)
    assert open_places(study.trials, 3, 9) == [3, 4, 5]
    assert open_places(study.trials, 3, 4) == [3]
    assert open_places(study.trials, 1, 9) == [3]


def test_trials_are_written_by_place_and_attempts_under_machine(study: optuna.Study) -> None:
    lost, other = begin(study, 0), begin(study, 1)
    study.tell(other, 2.0)
    study.tell(lost, state=TrialState.FAIL)
    study.tell(begin(study, 0), 1.0)
    written = plain_trials(study.trials)
    assert [(trial["number"], trial["value"], trial["state"]) for trial in written] == [
        (0, 1.0, "complete"),
        (1, 2.0, "complete"),
    ]
    assert [trial["machine"]["attempts"] for trial in written] == [2, 1]


def test_the_best_is_complete_and_the_first_of_equals(study: optuna.Study) -> None:
    assert best_place([]) is None
    pruned = begin(study, 0)
    pruned.report(0.1, 1)
    study.tell(pruned, state=TrialState.PRUNED)
    for place, value in ((3, 2.0), (1, 3.0), (2, 2.0)):
        study.tell(begin(study, place), value)
    assert best_place(study.trials) == 2


def test_trials_from_before_there_were_places_are_in_the_order_of_their_first_attempts(study: optuna.Study) -> None:
    lost, other, unfinished = study.ask(), study.ask(), study.ask()
    study.tell(other, 2.0)
    study.tell(lost, state=TrialState.FAIL)
    study.enqueue_trial({}, user_attrs={"retry_of": 0, "first": 0})
    again = study.ask()
    study.tell(again, 1.0)
    assert numbers(study) == {0: again.number, 1: other.number}
    study.tell(unfinished, state=TrialState.FAIL)
    assert open_places(study.trials, 4, 3) == [2]
    new = begin(study, 2)
    assert numbers(study) == {0: again.number, 1: other.number, 2: new.number}


def draw(study: optuna.Study, place: int, value: float, is_maximised: bool = False) -> tuple[dict[str, Any], bool]:
    """What the trial at a place tries, and whether it is pruned at this value, with a window of 2."""
    done = finished(study.trials)
    draw_after(study, [done[number] for number in range(place - 1)], 0, place, is_maximised)
    trial = begin(study, place)
    trial.suggest_float("x", 0, 1)
    trial.suggest_categorical("y", ["a", "b", "c"])
    trial.report(value, 1)
    return trial.params, trial.should_prune()


def test_what_a_trial_tries_and_whether_it_is_pruned_depends_on_the_places_before_alone(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_NUM_STARTUP_TRIALS", 3)
    other = optuna.create_study()
    # In the other study trials end in another order, one was begun in vain, and one is running that is much better.
    order = [1, 0, 3, 2, 4]
    study.add_trials([trial_at(place) for place in range(5)])
    begin(other, 7).report(-9.0, 1)
    other.tell(begin(other, 0), state=TrialState.FAIL)
    other.add_trials([trial_at(place) for place in order])
    drawn = draw(study, 5, 2.5), draw(study, 4, 2.5)
    assert drawn == (draw(other, 5, 2.5), draw(other, 4, 2.5))
    # Not pruned above 0, 1 and 2, but above the median of 0 to 3.
    assert [is_pruned for _, is_pruned in drawn] == [True, True]
    assert [draw(study, place, 0.5)[1] for place in (5, 4)] == [False, False]
    assert drawn[0][0] != drawn[1][0]


def test_where_the_highest_value_is_best_trials_below_the_median_are_pruned(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_NUM_STARTUP_TRIALS", 3)
    study.add_trials([trial_at(place) for place in range(5)])
    assert (best_place(study.trials), best_place(study.trials, is_maximised=True)) == (0, 4)
    assert [draw(study, 5, value, is_maximised=True)[1] for value in (0.5, 2.5)] == [True, False]


def trial_at(place: int) -> optuna.trial.FrozenTrial:
    distributions: dict[str, Any] = {
        "x": optuna.distributions.FloatDistribution(0, 1),
        "y": optuna.distributions.CategoricalDistribution(["a", "b", "c"]),
    }
    return optuna.trial.create_trial(
        value=float(place),
        params={"x": place / 10, "y": "abc"[place % 3]},
        distributions=distributions,
        intermediate_values={1: float(place)},
        user_attrs={"place": place},
    )
