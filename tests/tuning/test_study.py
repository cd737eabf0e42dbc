"""Whole studies: killed, continued, extended, read again; and what their record shows."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import TrialState

from adagpr.errors import AdaGPRError, InputError
from adagpr.files import digest, read_json, read_toml, sha256_file
from adagpr.graph import Graph, Split
from adagpr.tuning import Space, StudyProgress, search
from adagpr.tuning.search import effective_trials, objective
from adagpr.tuning.storage import create_study
from adagpr.tuning.study import Study, blind

Tune = Callable[..., dict[str, Any]]
COUNTED = ("complete", "pruned")


def journal(folder: Path) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.jsonl")))
    (name,) = optuna.get_all_study_names(storage)
    return optuna.load_study(study_name=name, storage=storage)


def results(record: dict[str, Any]) -> list[Any]:
    """What the counted trials tried and reached, in the order of their places."""
    trials = sorted(record["trials"], key=lambda trial: trial.get("retry_of", trial["number"]))
    return [[trial["params"], trial["value"], trial["state"]] for trial in trials if trial["state"] in COUNTED]


def hang_after_first_report(number: int) -> Callable[..., float]:
    """In place of `objective`: the trial with this number never gets past its first report."""

    def run(study: Study, trial: optuna.Trial) -> float:
        if trial.number == number:
            report = trial.report

            def report_and_hang(value: float, step: int) -> None:
                report(value, step)
                threading.Event().wait()

            trial.report = report_and_hang  # type: ignore[method-assign]
        return objective(study, trial)

    return run


class Killer:
    """Kills the worker of one trial in its middle."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self.killed: list[int] = []

    def __call__(self, progress: StudyProgress) -> None:
        for trial in journal(self.folder).trials[self.number : self.number + 1] if progress.pids else ():
            if trial.intermediate_values and not self.killed:
                assert trial.state == TrialState.RUNNING
                os.kill(trial.user_attrs["worker"]["pid"], signal.SIGKILL)
                self.killed.append(trial.user_attrs["worker"]["pid"])


def test_a_study_with_a_killed_worker_ends_complete(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = 2
    monkeypatch.setattr(search, "objective", hang_after_first_report(lost))
    killer = Killer(tmp_path, lost)
    record = quick_tune(tmp_path, num_workers=2, on_change=killer)
    assert len(killer.killed) == 1
    by_number = {trial["number"]: trial for trial in record["trials"]}
    assert sum(trial["state"] in COUNTED for trial in record["trials"]) == record["num_trials"] == 6
    assert by_number[lost]["state"] == "fail"
    (again,) = [trial for trial in record["trials"] if trial.get("retry_of") == lost]
    assert again["params"] == by_number[lost]["params"]
    assert again["state"] in COUNTED
    assert by_number[lost]["machine"]["pid"] == killer.killed[0] != again["machine"]["pid"]
    assert all(trial.state != TrialState.RUNNING for trial in journal(tmp_path).trials)


def test_killed_as_a_whole_and_repeated_it_ends_complete(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "objective", hang_after_first_report(3))
    changes: dict[str, Any] = {"num_workers": 2}
    command = multiprocessing.get_context("fork").Process(target=quick_tune, args=(tmp_path,), kwargs=changes)
    command.start()

    def is_under_way() -> bool:
        trials = journal(tmp_path).trials
        return len(trials) > 3 and bool(trials[3].intermediate_values) and trials[2].state == TrialState.COMPLETE

    wait_for(lambda: (tmp_path / "study.toml").exists() and is_under_way())
    command.kill()
    command.join()
    before = journal(tmp_path).trials
    workers = {trial.user_attrs["worker"]["pid"] for trial in before if "worker" in trial.user_attrs}
    wait_for(lambda: not any(is_alive(pid) for pid in workers))
    assert not (tmp_path / "best.toml").exists()
    left = [trial.number for trial in before if trial.state == TrialState.RUNNING]
    assert left
    record = quick_tune(tmp_path, **changes)
    assert len(results(record)) == record["num_trials"] == 6
    assert [trial["retry_of"] for trial in record["trials"] if "retry_of" in trial] == left
    done = [trial.number for trial in before if trial.state == TrialState.COMPLETE]
    assert [record["trials"][number]["value"] for number in done] == [before[number].value for number in done]
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == {
        *("best.toml", "index.html", "journal.jsonl", "study.json", "study.toml", "test"),
    }


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_interrupted_study_ends_with_the_trials_of_an_uninterrupted_one(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quick_tune(tmp_path / "whole", num_trials=12)
    numbers = count()

    def hang_in_the_fifth(*arguments: Any) -> float:
        if next(numbers) == 4:
            threading.Event().wait()
        return objective(*arguments)

    def interrupt(progress: StudyProgress) -> None:
        if progress.num_done == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(search, "objective", hang_in_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        quick_tune(tmp_path / "parts", num_trials=12, on_change=interrupt)
    monkeypatch.undo()
    assert not (tmp_path / "parts" / "best.toml").exists()
    parts = quick_tune(tmp_path / "parts", num_trials=12)
    assert results(parts) == results(whole)
    assert len({str(params) for params, _, _ in results(whole)}) == 12
    assert parts["best"]["params"] == whole["best"]["params"]
    assert parts["test"]["test_acc"] == whole["test"]["test_acc"]


def test_trials_that_a_killed_command_left_running_are_taken_up(
    tmp_path: Path, quick_tune: Tune, small: tuple[Graph, list[Split]], quick_space: Space
) -> None:
    study = create_study(Study(*small, [0], "adagpr", quick_space).name, str(tmp_path / "journal.jsonl"))
    signed, unsigned = study.ask(), study.ask()
    signed.set_user_attr("worker", {"host": "elsewhere", "pid": 1})
    quick_space.suggest(signed)
    signed.set_user_attr("drawn", True)
    record = quick_tune(tmp_path, num_trials=4)
    states = [trial.state.name for trial in journal(tmp_path).trials]
    assert states[:2] == ["FAIL", "FAIL"]
    assert len(results(record)) == 4
    assert [trial.get("retry_of") for trial in record["trials"]][:4] == [None, None, 0, 1]
    assert record["trials"][2]["params"] == record["trials"][0]["params"]
    assert unsigned.number == 1


def test_workers_never_run_more_trials_than_asked_for(tmp_path: Path, quick_tune: Tune) -> None:
    record = quick_tune(tmp_path, num_trials=5, num_workers=4)
    assert len(results(record)) == 5
    assert len(effective_trials(journal(tmp_path).trials)) == 5


def test_a_complete_study_is_read(tmp_path: Path, quick_tune: Tune, finished_study: Path) -> None:
    folder = shutil.copytree(finished_study, tmp_path / "copy")
    stored = read_json(folder / "study.json")
    (folder / "journal.jsonl").unlink()
    (folder / "index.html").unlink()
    assert quick_tune(folder) == stored == quick_tune(folder, num_trials=3)
    assert (folder / "index.html").exists()
    assert not (folder / "journal.jsonl").exists()


def test_more_trials_can_be_added_and_the_earlier_test_stays_on_record(tmp_path: Path, quick_tune: Tune) -> None:
    first = quick_tune(tmp_path, num_trials=3)
    more = quick_tune(tmp_path, num_trials=5)
    assert results(more)[:3] == results(first)
    assert len(results(more)) == 5
    assert first["earlier_tests"] == []
    (earlier,) = more["earlier_tests"]
    assert earlier["num_trials"] == 3
    assert earlier["best"] == first["best"]
    assert quick_tune(tmp_path, num_trials=5) == more


def test_the_record_shows_that_no_trial_had_a_test_label(
    finished_study: Path, small: tuple[Graph, list[Split]]
) -> None:
    graph, (split,) = small
    record = read_json(finished_study / "study.json")
    hidden = blind(graph, split)[0].fingerprint
    assert hidden != graph.fingerprint
    assert record["shown"] == [
        {"split": "random/0", "num_labels": 48, "num_hidden": 12, "graph_sha256": hidden},
    ]
    assert [trial["graph_sha256"] for trial in record["trials"]] == [[hidden]] * 6
    compared = [{key: value for key, value in trial.items() if key != "machine"} for trial in record["trials"]]
    best, test = record["best"], record["test"]
    assert best["trials_sha256"] == digest(compared, 64)
    assert best["trials_sha256"] in (finished_study / "best.toml").read_text()
    assert best["best_sha256"] == test["best_sha256"] == sha256_file(finished_study / "best.toml")
    last = max(trial["machine"]["ended_at"] for trial in record["trials"])
    moments = [datetime.fromisoformat(text) for text in (last, best["fixed_at"], test["began_at"], test["ended_at"])]
    assert moments == sorted(moments)
    # With all labels back the same training reaches the same loss: the hidden ones had no part in it.
    assert test["tuned_val_loss"] == best["value"] == min(trial["value"] for trial in record["trials"])
    assert [run["num_test_seen"] for run in test["runs"]] == [0]


def test_the_choice_is_on_disk_before_the_test_begins(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AdaGPRError("no test today")

    with monkeypatch.context() as context:
        context.setattr("adagpr.tuning.study.fit_all", refuse)
        with pytest.raises(AdaGPRError, match="no test today"):
            quick_tune(tmp_path, num_trials=2)
    before = read_json(tmp_path / "study.json")
    assert "test" not in before
    record = quick_tune(tmp_path, num_trials=2)
    assert record["best"] == before["best"]
    assert record["test"]["began_at"] > record["best"]["fixed_at"]


def test_the_best_configuration_is_one_that_train_takes(finished_study: Path) -> None:
    record = read_json(finished_study / "study.json")
    best = read_toml(finished_study / "best.toml")
    assert best["data"]["name"] == "csbm"
    assert best["data"]["num_nodes"] == 60
    assert best["data"]["split"] == "random/0"
    assert {key: (best["model"] | best["training"])[key] for key in record["best"]["params"]} == record["best"][
        "params"
    ]


def test_a_folder_of_another_study_is_refused_by_key(
    tmp_path: Path, quick_tune: Tune, finished_study: Path, quick_space: Space
) -> None:
    with pytest.raises(InputError, match=r"holds another study; these keys differ: seed\."):
        quick_tune(finished_study, seed=1)
    with pytest.raises(InputError, match=r"these keys differ: space\.fixed\.max_epochs\."):
        quick_tune(finished_study, space=quick_space.with_settings({"max_epochs": 9}))
    with pytest.raises(InputError, match=r"these keys differ: storage\."):
        quick_tune(finished_study, storage=str(tmp_path / "other.jsonl"))


def test_workers_that_die_again_and_again_end_the_study_with_a_sentence(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "objective", lambda study, trial: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(AdaGPRError, match="Workers were killed 3 times before another trial was done"):
        quick_tune(tmp_path, num_trials=2)
    monkeypatch.undo()
    assert len(results(quick_tune(tmp_path, num_trials=2))) == 2


def test_a_system_that_cannot_fork_runs_the_same_trials_in_one_process(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = quick_tune(tmp_path / "forked", num_trials=3)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    single = quick_tune(tmp_path / "single", num_trials=3)
    assert results(single) == results(forked)
    assert {trial["machine"]["pid"] for trial in single["trials"]} == {os.getpid()}


def test_an_error_in_a_worker_is_the_caller_s(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(study: Study, trial: optuna.Trial) -> float:
        raise InputError("not like this")

    monkeypatch.setattr(search, "objective", fail)
    with pytest.raises(InputError, match="not like this"):
        quick_tune(tmp_path, num_trials=2)


def test_a_bug_in_a_worker_is_not_taken_for_a_killed_one(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(study: Study, trial: optuna.Trial) -> float:
        raise LookupError("a mistake of ours")

    monkeypatch.setattr(search, "objective", fail)
    with pytest.raises(LookupError, match="a mistake of ours") as caught:
        quick_tune(tmp_path, num_trials=2)
    assert "in fail" in caught.value.__notes__[0]


def test_a_study_without_a_complete_trial_says_so(tmp_path: Path, quick_tune: Tune, quick_space: Space) -> None:
    with pytest.raises(AdaGPRError, match="None of the 2 trials was complete"):
        quick_tune(tmp_path, num_trials=2, space=quick_space.with_settings({"lr": 1e30}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_trials": 0}, "num_trials must be at least 1"),
        ({"tune_on": [1]}, "there is no split 1; the splits are 0 to 0"),
    ],
)
def test_mistakes_write_nothing(changes: dict[str, Any], message: str, tmp_path: Path, quick_tune: Tune) -> None:
    with pytest.raises(InputError, match=message):
        quick_tune(tmp_path / "new", **changes)
    assert not (tmp_path / "new").exists()
