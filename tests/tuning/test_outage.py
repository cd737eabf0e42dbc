"""Studies whose PostgreSQL server is killed and comes back, or whose machines are killed: every trial counts once."""

from __future__ import annotations

import math
import multiprocessing
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from adagpr.errors import StorageError
from adagpr.files import read_json
from adagpr.graph import Graph, Split
from adagpr.system import without_machine
from adagpr.training import Run
from adagpr.tuning import Space, StudyProgress, search, storage
from adagpr.tuning.places import counted, finished
from adagpr.tuning.search import Polls, stale_trials
from adagpr.tuning.storage import begin_trial, create_study
from adagpr.tuning.study import Study
from tests.tuning.postgres import LossyWay, Server, address

Tune = Callable[..., dict[str, Any]]
Begin = Callable[..., list[BaseProcess]]
NUM_TRIALS = 6


@pytest.fixture
def arguments(request: pytest.FixtureRequest, postgres: str, quick_space: Space) -> dict[str, Any]:
    """What the commands of a test are given; the seed, and so the study, is the test's alone."""
    space = quick_space.with_settings({"max_epochs": 24})
    seed = zlib.crc32(request.node.name.encode())
    return {"space": space, "seed": seed, "storage": postgres, "num_trials": NUM_TRIALS}


@pytest.fixture
def study(small: tuple[Graph, list[Split]], arguments: dict[str, Any]) -> optuna.Study:
    """The study of the test's commands."""
    about = Study(*small, [0], "adagpr", arguments["space"], arguments["seed"])
    return create_study(about.name, arguments["storage"])


@pytest.fixture
def begin(
    finished_study: Path,
    quick_tune: Tune,
    arguments: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Begin]:
    """Starts commands with so many workers each, as processes of their own, in folders that are called 0, 1, 2.

    They begin trials when all of them are there, and wait for a server without limit. A finished study has imported
    what they need.
    """
    context = multiprocessing.get_context("fork")
    commands: list[BaseProcess] = []
    monkeypatch.setattr(storage, "RETRY_SECONDS", math.inf)

    def call(*num_workers: int, **changes: Any) -> list[BaseProcess]:
        are_there = context.Event()
        for place, number in enumerate(num_workers):
            options = {**arguments, "num_workers": number, "on_change": lambda _: are_there.wait(), **changes}
            commands.append(context.Process(target=quick_tune, args=(tmp_path / str(place),), kwargs=options))
            commands[-1].start()
        wait_for(lambda: len([*tmp_path.glob("*/study.toml")]) == len(commands))
        are_there.set()
        return commands

    yield call
    for command in commands:
        command.kill()


@dataclass(frozen=True)
class LastTrial:
    """The trial of a study's last place, which begins when others are done, and waits before it trains."""

    has_begun: Event
    may_go_on: Event


@pytest.fixture
def last_trial(monkeypatch: pytest.MonkeyPatch) -> LastTrial:
    """Holds the last trial, so that no study is over before the test has done what it does to it."""
    context = multiprocessing.get_context("fork")
    held = LastTrial(context.Event(), context.Event())
    train = search._train

    def hold(*arguments: Any) -> Run:
        (report,) = [item for item in arguments if isinstance(item, search._Report)]
        if report._trial.user_attrs["place"] == NUM_TRIALS - 1:
            held.has_begun.set()
            held.may_go_on.wait()
        return train(*arguments)

    monkeypatch.setattr(search, "_train", hold)
    return held


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits until something is true."""
    while not condition():
        time.sleep(0.02)


def record_of(command: BaseProcess, folder: Path) -> dict[str, Any]:
    """Waits for a command; its record but for ``machine``, with each trial that was asked for once."""
    command.join()
    assert command.exitcode == 0
    record: dict[str, Any] = without_machine(read_json(folder / "study.json"))
    assert len({str(trial["params"]) for trial in record["trials"]}) == NUM_TRIALS
    assert all(trial["value"] is not None for trial in record["trials"])
    return record


def num_ended(study: optuna.Study) -> int:
    """How often a trial ran to its end."""
    return sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in study.trials)


@pytest.mark.parametrize(("num_workers", "end"), [((3,), Server.stop), ((1, 1, 1), Server.kill)])
def test_a_study_survives_its_server(
    num_workers: tuple[int, ...],
    end: Callable[[Server], None],
    server: Server,
    study: optuna.Study,
    begin: Begin,
    last_trial: LastTrial,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_noticed = multiprocessing.get_context("fork").Event()
    is_away = storage._is_away

    def notice(error: BaseException | None) -> bool:
        if found := is_away(error):
            is_noticed.set()
        return found

    monkeypatch.setattr(storage, "_is_away", notice)
    commands = begin(*num_workers)
    last_trial.has_begun.wait()
    end(server)
    last_trial.may_go_on.set()
    is_noticed.wait()
    assert all(command.is_alive() for command in commands)
    server.start()
    records = [record_of(command, tmp_path / str(place)) for place, command in enumerate(commands)]
    assert all(record == records[0] for record in records)
    assert num_ended(study) == NUM_TRIALS


def test_the_trial_of_a_killed_command_is_run_again_by_the_others(
    study: optuna.Study, begin: Begin, last_trial: LastTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "BEAT_SECONDS", 1)
    monkeypatch.setattr(search, "STALE_POLLS", 8)
    commands = begin(1, 1, 1)
    last_trial.has_begun.wait()
    lost = counted(study.trials)[NUM_TRIALS - 1]
    parent = parent_of(lost.user_attrs["worker"]["pid"])
    (killed,) = [place for place, command in enumerate(commands) if command.pid == parent]
    commands[killed].kill()
    last_trial.may_go_on.set()
    one, other = (record_of(commands[place], tmp_path / str(place)) for place in sorted({0, 1, 2} - {killed}))
    assert one == other
    assert study.trials[lost.number].state == TrialState.FAIL
    assert finished(study.trials)[lost.user_attrs["place"]].number > lost.number


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_lost_answers_neither_double_nor_lose_a_trial(
    lossy_way: LossyWay, study: optuna.Study, begin: Begin, tmp_path: Path
) -> None:
    (command,) = begin(3, storage=address(lossy_way.folder))
    lossy_way.every = 3
    record_of(command, tmp_path / "0")
    assert lossy_way.num_lost > NUM_TRIALS
    assert num_ended(study) == NUM_TRIALS


def test_a_call_whose_answer_is_lost_is_carried_out_once(lossy_way: LossyWay) -> None:
    study = create_study("lossy", address(lossy_way.folder))
    lossy_way.every = 2
    trial = begin_trial(study, {"place": 0})
    trial.suggest_float("x", 0, 1)
    trial.report(0.5, 1)
    study.tell(trial, 0.25)
    (done,) = study.trials
    assert (done.number, done.state, done.value) == (0, TrialState.COMPLETE, 0.25)
    assert (done.params, done.user_attrs, done.intermediate_values) == (trial.params, {"place": 0}, {1: 0.5})
    assert lossy_way.num_lost >= 4


def test_nobody_is_taken_for_dead_because_the_server_was_away(
    server: Server, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "STALE_POLLS", 2)
    monkeypatch.setattr(storage, "RETRY_SECONDS", math.inf)
    study = create_study("away", postgres)
    study.ask()
    polls: Polls = Counter()
    assert stale_trials(study.trials, polls) == []
    server.kill()
    threading.Timer(1.5, server.start).start()
    assert stale_trials(study.trials, polls) == []


def test_a_server_that_stays_away_is_one_sentence_and_the_same_command_goes_on(
    server: Server, quick_tune: Tune, arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(progress: StudyProgress) -> None:
        if progress.num_done:
            server.kill()

    monkeypatch.setattr(storage, "RETRY_SECONDS", 0.0)
    with pytest.raises(StorageError) as caught:
        quick_tune(tmp_path, **arguments, num_workers=3, on_change=kill)
    assert "has not answered for" in str(caught.value)
    assert "\n" not in str(caught.value)
    server.start()
    assert quick_tune(tmp_path, **arguments, num_workers=3)["num_trials"] == NUM_TRIALS


def test_an_interruption_does_not_wait_for_the_server(
    server: Server, quick_tune: Tune, arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "RETRY_SECONDS", math.inf)

    def kill(progress: StudyProgress) -> None:
        if progress.num_done:
            server.kill()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick_tune(tmp_path, **arguments, on_change=kill)
    assert not server.is_running
