"""Studies on a PostgreSQL server, as several machines share them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from adagpr.graph import Graph, Split
from adagpr.system import without_machine
from adagpr.tuning import Space, StudyProgress, search
from adagpr.tuning.storage import begin_trial, create_study
from adagpr.tuning.study import Study

Tune = Callable[..., dict[str, Any]]


def test_a_killed_worker_is_replaced_and_a_second_machine_finds_all_trials(
    postgres: str, tmp_path: Path, quick_tune: Tune
) -> None:
    killed: list[int] = []

    def kill(progress: StudyProgress) -> None:
        if progress.pids and not killed:
            os.kill(progress.pids[0], signal.SIGKILL)
            killed.append(progress.pids[0])

    first = quick_tune(tmp_path / "one", storage=postgres, num_trials=4, num_workers=2, on_change=kill)
    assert killed
    assert len(first["trials"]) == 4
    states: list[StudyProgress] = []
    second = quick_tune(tmp_path / "two", storage=postgres, num_trials=4, on_change=states.append)
    assert [progress.num_done for progress in states] == [4]
    assert without_machine(second) == without_machine(first)
    assert "journal.jsonl" not in {path.name for path in (tmp_path / "one").iterdir()}


def test_the_trial_of_a_machine_that_is_gone_is_taken_up(
    postgres: str,
    tmp_path: Path,
    quick_tune: Tune,
    small: tuple[Graph, list[Split]],
    quick_space: Space,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "BEAT_SECONDS", 0.5)
    monkeypatch.setattr(search, "STALE_POLLS", 4)
    study = Study(*small, [0], "adagpr", quick_space, seed=1)
    opened = create_study(study.name, postgres)
    lost = begin_trial(opened, {"place": 1, "worker": {"host": "elsewhere", "pid": 1}})
    quick_space.suggest(lost)
    lost.set_user_attr("beat", 3)
    record = quick_tune(tmp_path / "shared", storage=postgres, seed=1, num_trials=3)
    assert without_machine(record) == without_machine(quick_tune(tmp_path / "alone", seed=1, num_trials=3))
    assert [trial["machine"]["attempts"] for trial in record["trials"]] == [1, 2, 1]
    assert opened.trials[0].state == TrialState.FAIL


def test_trials_that_others_finish_between_two_looks_are_seen(postgres: str) -> None:
    one, other = create_study("looks", postgres), create_study("looks", postgres)
    running = one.ask()
    one.tell(one.ask(), 1.0)
    assert [trial.value for trial in one.trials] == [None, 1.0]
    other.tell(running.number, 0.5)
    other.tell(other.ask(), 2.0)
    other.enqueue_trial({})
    assert [trial.value for trial in one.trials] == [0.5, 1.0, 2.0, None]
    assert [trial.number for trial in one.get_trials(states=(TrialState.COMPLETE,))] == [0, 1, 2]
