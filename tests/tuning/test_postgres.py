"""Studies on a PostgreSQL server, as several machines share them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adagpr.graph import Graph, Split
from adagpr.tuning import Space, StudyProgress, storage
from adagpr.tuning.objective import Study
from adagpr.tuning.storage import create_study

Tune = Callable[..., dict[str, Any]]


def test_a_killed_worker_is_replaced_and_a_second_machine_finds_all_trials(
    postgres: str, tmp_path: Path, quick_tune: Tune
) -> None:
    killed: list[int] = []

    def kill(standing: StudyProgress) -> None:
        if standing.pids and not killed:
            os.kill(standing.pids[0], signal.SIGKILL)
            killed.append(standing.pids[0])

    first = quick_tune(tmp_path / "one", storage=postgres, num_trials=4, num_workers=2, on_change=kill)
    assert killed
    assert sum(trial["state"] in ("complete", "pruned") for trial in first["trials"]) == 4
    standings: list[StudyProgress] = []
    second = quick_tune(tmp_path / "two", storage=postgres, num_trials=4, on_change=standings.append)
    assert [standing.num_done for standing in standings] == [4]
    assert second["best"]["trials_sha256"] == first["best"]["trials_sha256"]
    assert second["test"]["test_acc"] == first["test"]["test_acc"]
    assert "journal.jsonl" not in {path.name for path in (tmp_path / "one").iterdir()}


def test_the_trial_of_a_machine_that_is_gone_is_taken_up(
    postgres: str,
    tmp_path: Path,
    quick_tune: Tune,
    small: tuple[Graph, list[Split]],
    quick_space: Space,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "HEARTBEAT_SECONDS", 1)
    monkeypatch.setattr(storage, "GRACE_SECONDS", 2)
    task = Study(*small, [0], "adagpr", quick_space, seed=1)
    study = create_study(task.name, postgres)
    with pytest.warns(UserWarning, match="Heartbeat"):
        lost = study.ask()
    lost.set_user_attr("worker", {"host": "elsewhere", "pid": 1})
    quick_space.suggest(lost)
    lost.set_user_attr("drawn", True)
    study._storage.record_heartbeat(lost._trial_id)  # type: ignore[attr-defined]
    started = time.monotonic()
    record = quick_tune(tmp_path, storage=postgres, seed=1, num_trials=3)
    assert time.monotonic() - started > 1.0
    assert record["num_trials"] == 3
    (again,) = [trial for trial in record["trials"] if trial.get("retry_of") == 0]
    assert again["params"] == record["trials"][0]["params"]
    assert record["trials"][0]["state"] == "fail"
