"""What a worker does when another one was faster, and whom nobody runs any more."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from adagpr.graph import Graph, Split
from adagpr.tuning import Space, search
from adagpr.tuning.places import counted, open_places
from adagpr.tuning.search import fail, is_abandoned, signature, stale_trials
from adagpr.tuning.storage import begin_trial, create_study
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
        about = Study(*small, [0], "adagpr", quick_space)
        search.run_some(about, str(tmp_path / "a.jsonl"), tmp_path / "trials", num_trials)
        return [(trial.state.name, trial.value) for trial in study.trials]

    return call


def test_what_another_worker_began_at_the_same_moment_is_given_up(
    study: optuna.Study, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_trial(study, {"place": 0})
    # As if the other one had not begun it yet when this one looked.
    answers = iter([[0], [1], []])
    monkeypatch.setattr(search, "open_places", lambda *arguments: next(answers))
    monkeypatch.setattr(search, "objective", lambda study, trial, folder: 1.0)
    assert work(2) == [("RUNNING", None), ("FAIL", None), ("COMPLETE", 1.0)]


def test_a_worker_that_slept_while_its_trial_was_failed_goes_on_with_the_next(
    study: optuna.Study, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(_: Study, trial: optuna.Trial, folder: Path) -> float:
        if trial.number == 0:
            fail(study, study.trials[0])
        return float(trial.number)

    monkeypatch.setattr(search, "objective", sleep)
    assert work(2) == [("FAIL", None), ("COMPLETE", 1.0), ("COMPLETE", 2.0)]


def test_a_trial_that_is_seen_the_same_often_is_failed(study: optuna.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "STALE_POLLS", 2)
    alive, _ = (begin_trial(study, {"place": place}) for place in range(2))
    polls: search.Polls = Counter()
    counting = []
    for number in range(4):
        alive.set_user_attr("beat", number)
        for trial in stale_trials(study.trials, polls):
            fail(study, trial)
        counting.append(sorted(counted(study.trials)))
    assert counting == [[0, 1], [0, 1], [0], [0]]
    assert open_places(study.trials, 4, 2) == [1]


def test_a_trial_is_abandoned_when_its_process_is_gone(study: optuna.Study) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    workers = [signature(os.getpid()), signature(gone.pid), {"host": "elsewhere", "pid": gone.pid}]
    for place, worker in enumerate(workers):
        begin_trial(study, {"place": place, "worker": worker})
    assert [is_abandoned(trial) for trial in study.trials] == [False, True, False]


def test_other_mistakes_are_not_mistaken_for_that(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_oddly(_: Study, trial: optuna.Trial, folder: Path) -> float:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(search, "objective", fail_oddly)
    with pytest.raises(ValueError, match="a mistake of ours"):
        work(2)


def test_another_attempt_at_a_place_tries_the_same(
    study: optuna.Study, work: Work, quick_space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, Any]] = []

    def draw(_: Study, trial: optuna.Trial, folder: Path) -> float:
        drawn.append(quick_space.suggest(trial))
        if len(drawn) == 1:
            fail(study, study.trials[0])
        return 1.0

    monkeypatch.setattr(search, "objective", draw)
    work(3)
    assert drawn[0] == drawn[1]
    assert len({str(values) for values in drawn}) == 3
