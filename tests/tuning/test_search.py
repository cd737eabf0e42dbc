"""What a worker does when another one was faster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from adagpr.graph import Graph, Split
from adagpr.tuning import Space, search
from adagpr.tuning.search import effective_trials, requeue
from adagpr.tuning.storage import create_study
from adagpr.tuning.study import Study

Work = Callable[[int], list[tuple[str, float | None]]]


@pytest.fixture
def study(tmp_path: Path, small: tuple[Graph, list[Split]], quick_space: Space) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    return create_study(Study(*small, [0], "adagpr", quick_space).name, str(tmp_path / "a.jsonl"))


@pytest.fixture
def work(study: optuna.Study, tmp_path: Path, small: tuple[Graph, list[Split]], quick_space: Space) -> Work:
    """Works in this process towards so many trials; gives back states and values of all that were begun."""

    def call(num_trials: int) -> list[tuple[str, float | None]]:
        search.run_some(Study(*small, [0], "adagpr", quick_space), str(tmp_path / "a.jsonl"), num_trials)
        return [(trial.state.name, trial.value) for trial in study.trials]

    return call


def test_a_trial_too_many_is_given_up_before_it_trains(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if another worker had begun the last trial in between.
    answers = iter([1, 1, 0])
    monkeypatch.setattr(search, "num_to_do", lambda trials, num_trials: next(answers))
    monkeypatch.setattr(search, "objective", lambda study, trial: 1.0)
    assert work(1) == [("COMPLETE", 1.0), ("FAIL", None)]


def test_a_worker_that_slept_while_its_trial_was_taken_up_goes_on_with_the_next(
    study: optuna.Study, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(_: Study, trial: optuna.Trial) -> float:
        if trial.number == 0:
            requeue(study, study.trials[0])
        return float(trial.number)

    monkeypatch.setattr(search, "objective", sleep)
    assert work(2) == [("FAIL", None), ("COMPLETE", 1.0), ("COMPLETE", 2.0)]


def test_a_trial_that_is_seen_unsigned_often_is_taken_up(study: optuna.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "STALE_POLLS", 2)
    study.ask().set_user_attr("worker", {"host": "elsewhere", "pid": 1})
    study.ask()
    polls: search.Polls = Counter()
    numbers = []
    for _ in range(4):
        for trial in search.stale_trials(study.trials, polls, is_shared=False):
            requeue(study, trial)
        numbers.append([trial.number for trial in effective_trials(study.trials)])
    assert numbers == [[0, 1], [0, 1], [0, 2], [0, 2]]


def test_of_two_entries_of_a_lost_trial_one_is_run(
    study: optuna.Study, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.ask()
    requeue(study, study.trials[0])
    study.add_trial(study.trials[1])
    monkeypatch.setattr(search, "objective", lambda study, trial: float(trial.number))
    assert work(2) == [("FAIL", None), ("COMPLETE", 1.0), ("FAIL", None), ("COMPLETE", 3.0)]


def test_other_mistakes_are_not_mistaken_for_that(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Study, trial: optuna.Trial) -> float:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(search, "objective", fail)
    with pytest.raises(ValueError, match="a mistake of ours"):
        work(2)


def test_the_draw_of_a_trial_depends_on_its_place_and_not_on_how_often_it_was_begun(
    study: optuna.Study, work: Work, quick_space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, Any]] = []

    def draw(_: Study, trial: optuna.Trial) -> float:
        drawn.append(quick_space.suggest(trial))
        if len(drawn) == 1:
            requeue(study, study.trials[0])
        return 1.0

    monkeypatch.setattr(search, "objective", draw)
    work(3)
    assert drawn[0] == drawn[1]
    assert len({str(values) for values in drawn}) == 3
