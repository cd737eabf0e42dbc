"""Whole studies: killed, continued, extended, read again; and what their record shows."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import TrialState

from adagpr.errors import AdaGPRError, InputError
from adagpr.files import digest, read_json, read_toml, sha256_file, write_json
from adagpr.graph import Graph, Split
from adagpr.system import without_machine
from adagpr.tuning import Space, StudyProgress, places, search
from adagpr.tuning.search import objective
from adagpr.tuning.storage import begin_trial, create_study
from adagpr.tuning.study import Study, blind

Tune = Callable[..., dict[str, Any]]


def journal(folder: Path) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.jsonl")))
    (name,) = optuna.get_all_study_names(storage)
    return optuna.load_study(study_name=name, storage=storage)


def results(record: dict[str, Any]) -> list[Any]:
    """What the trials tried and reached."""
    return [[trial["params"], trial["value"], trial["state"]] for trial in record["trials"]]


def hang_after_first_report(place: int) -> Callable[..., float]:
    """In place of `objective`: the trial at this place never gets past its first report, at its first attempt."""

    def run(study: Study, trial: optuna.Trial, folder: Path) -> float:
        if trial.user_attrs["place"] == place and not any(folder.parent.glob("hung")):
            report = trial.report

            def report_and_hang(value: float, step: int) -> None:
                report(value, step)
                (folder.parent / "hung").touch()
                threading.Event().wait()

            trial.report = report_and_hang  # type: ignore[method-assign]
        return objective(study, trial, folder)

    return run


def hanging(folder: Path, place: int) -> optuna.trial.FrozenTrial | None:
    """The trial that hangs, if it does already."""
    if not (folder / "trials" / "hung").exists():
        return None
    return next(trial for trial in journal(folder).trials if trial.user_attrs["place"] == place)


class Killer:
    """Kills the worker of one trial in its middle."""

    def __init__(self, folder: Path, place: int) -> None:
        self.folder, self.place = folder, place
        self.killed: list[int] = []

    def __call__(self, progress: StudyProgress) -> None:
        trial = hanging(self.folder, self.place)
        if trial is not None and not self.killed:
            assert trial.state == TrialState.RUNNING
            os.kill(trial.user_attrs["worker"]["pid"], signal.SIGKILL)
            self.killed.append(trial.user_attrs["worker"]["pid"])


def test_a_study_with_a_killed_worker_ends_like_any_other(
    tmp_path: Path, quick_tune: Tune, finished_study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = 2
    monkeypatch.setattr(search, "objective", hang_after_first_report(lost))
    killer = Killer(tmp_path, lost)
    record = quick_tune(tmp_path, num_workers=2, on_change=killer)
    assert len(killer.killed) == 1
    assert without_machine(record) == without_machine(read_json(finished_study / "study.json"))
    assert record["trials"][lost]["machine"]["attempts"] > 1
    assert record["trials"][lost]["machine"]["pid"] != killer.killed[0]
    assert all(trial.state != TrialState.RUNNING for trial in journal(tmp_path).trials)


def test_killed_as_a_whole_and_repeated_it_ends_like_any_other(
    tmp_path: Path, quick_tune: Tune, finished_study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "objective", hang_after_first_report(3))
    changes: dict[str, Any] = {"num_workers": 2}
    command = multiprocessing.get_context("fork").Process(target=quick_tune, args=(tmp_path,), kwargs=changes)
    command.start()
    wait_for(lambda: hanging(tmp_path, 3) is not None)
    command.kill()
    command.join()
    workers = {trial.user_attrs["worker"]["pid"] for trial in journal(tmp_path).trials}
    wait_for(lambda: not any(is_alive(pid) for pid in workers))
    assert not (tmp_path / "best.toml").exists()
    record = quick_tune(tmp_path, **changes)
    assert without_machine(record) == without_machine(read_json(finished_study / "study.json"))
    assert record["trials"][3]["machine"]["attempts"] > 1
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == {
        *("best.toml", "index.html", "journal.jsonl", "study.json", "study.toml", "test"),
    }


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


def test_with_any_number_of_workers_and_interrupted_or_not_a_study_ends_the_same(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that draws and pruning depend on what was found.
    monkeypatch.setattr(places, "_NUM_STARTUP_TRIALS", 2)
    whole = quick_tune(tmp_path / "whole", num_trials=10, seed=1)
    assert "pruned" in {trial["state"] for trial in whole["trials"]}

    def interrupt(progress: StudyProgress) -> None:
        if progress.num_done >= 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(search, "objective", hang_after_first_report(5))
        with pytest.raises(KeyboardInterrupt):
            quick_tune(tmp_path / "parts", num_trials=10, seed=1, num_workers=3, on_change=interrupt)
    assert not (tmp_path / "parts" / "best.toml").exists()
    parts = quick_tune(tmp_path / "parts", num_trials=10, seed=1, num_workers=2)
    assert without_machine(parts) == without_machine(whole)
    assert len({str(params) for params, _, _ in results(whole)}) == 10


def test_trials_that_a_killed_command_left_running_are_begun_again(
    tmp_path: Path, quick_tune: Tune, finished_study: Path, small: tuple[Graph, list[Split]], quick_space: Space
) -> None:
    study = create_study(Study(*small, [0], "adagpr", quick_space).name, str(tmp_path / "journal.jsonl"))
    left = begin_trial(study, {"place": 1, "worker": {"host": "elsewhere", "pid": 1}})
    quick_space.suggest(left)
    record = quick_tune(tmp_path)
    assert journal(tmp_path).trials[left.number].state == TrialState.FAIL
    assert without_machine(record) == without_machine(read_json(finished_study / "study.json"))


@pytest.fixture
def old_study(tmp_path: Path) -> Path:
    """A study of 4 trials, of which one was killed, from before trials were written by place."""
    return shutil.copytree(Path(__file__).with_name("before_places"), tmp_path / "old")


def test_a_complete_study_from_before_there_were_places_is_read(old_study: Path, quick_tune: Tune) -> None:
    stored = read_json(old_study / "study.json")
    record = quick_tune(old_study, num_trials=4)
    assert record["best"]["params"] == stored["best"]["params"]
    assert record["best"]["machine"] == {"fixed_at": stored["best"]["fixed_at"]}
    page = (old_study / "index.html").read_text()
    assert stored["test"]["began_at"] in page
    assert "4 complete, 0 pruned, 1 more begun and not counted" in " ".join(page.split())


def test_a_study_from_before_there_were_places_is_continued(old_study: Path, quick_tune: Tune) -> None:
    stored = read_json(old_study / "study.json")
    kept = sorted(
        (trial for trial in stored["trials"] if trial["state"] == "complete"),
        key=lambda trial: trial.get("retry_of", trial["number"]),
    )
    record = quick_tune(old_study, num_trials=6, num_workers=2)
    assert results(record)[:4] == results({"trials": kept})
    assert [trial["number"] for trial in record["trials"]] == list(range(6))
    assert record["earlier_tests"][0]["machine"]["began_at"] == stored["test"]["began_at"]


def test_workers_never_run_more_trials_than_asked_for(tmp_path: Path, quick_tune: Tune) -> None:
    record = quick_tune(tmp_path, num_trials=5, num_workers=4)
    assert len(results(record)) == 5
    assert sum(trial.state != TrialState.FAIL for trial in journal(tmp_path).trials) == 5


def test_a_complete_study_is_read(tmp_path: Path, quick_tune: Tune, finished_study: Path) -> None:
    folder = shutil.copytree(finished_study, tmp_path / "copy")
    stored = read_json(folder / "study.json")
    (folder / "journal.jsonl").unlink()
    (folder / "index.html").unlink()
    assert quick_tune(folder) == stored == quick_tune(folder, num_trials=3)
    assert (folder / "index.html").exists()
    assert not (folder / "journal.jsonl").exists()


@pytest.mark.parametrize(
    ("was", "becomes", "finding"),
    [
        (r'"param_value_internal":[^,]*', '"param_value_internal":1e300', "isn't contained in the distribution"),
        (r'"param_value_internal":[^,]*', '"param_value_internal":[1]', "float-castable value is expected"),
        (r'"param_name":"[^"]*"', '"param_name":null', "must be a valid string, got None"),
        (r'"epochs":\d*,', "", "result.epochs is missing"),
        (r'"values":\[[^]]*\]', '"values":["low"]', "must be a valid number, got 'low'"),
        (r'"place":\d*', '"place":"first"', "place must be a valid integer, got 'first'"),
        (r'"directions":\[1\]', '"directions":[]', "must minimize one value"),
        (r'"directions":\[1\]', '"directions":[2]', "it has the directions ['maximize']"),
        (r'"place":\d*', '"place":99', "the trials must have the numbers 0 to"),
    ],
)
def test_a_journal_with_an_impossible_value_is_refused_by_name(
    was: str, becomes: str, finding: str, tmp_path: Path, quick_tune: Tune, finished_study: Path
) -> None:
    path = shutil.copytree(finished_study, tmp_path / "copy") / "journal.jsonl"
    text, num_changed = re.subn(was, becomes, path.read_text(), count=1)
    path.write_text(text)
    assert num_changed == 1
    with pytest.raises(InputError, match=re.escape(finding)) as refused:
        quick_tune(path.parent, num_trials=7)
    assert str(path) in str(refused.value)


def test_more_trials_can_be_added_and_the_earlier_test_stays_on_record(tmp_path: Path, quick_tune: Tune) -> None:
    first = quick_tune(tmp_path, num_trials=3)
    path = tmp_path / "study.json"
    stored = read_json(path)
    # What is said of the machine may be missing.
    write_json(path, {**stored, "test": {key: stored["test"][key] for key in stored["test"] if key != "machine"}})
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
    best, test = record["best"], record["test"]
    assert best["trials_sha256"] == digest(without_machine(record["trials"]), 64)
    assert best["trials_sha256"] in (finished_study / "best.toml").read_text()
    assert best["best_sha256"] == test["best_sha256"] == sha256_file(finished_study / "best.toml")
    last = max(trial["machine"]["ended_at"] for trial in record["trials"])
    texts = (last, best["machine"]["fixed_at"], test["machine"]["began_at"], test["machine"]["ended_at"])
    moments = [datetime.fromisoformat(text) for text in texts]
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
        context.setattr("adagpr.tuning.final_test.fit_all", refuse)
        with pytest.raises(AdaGPRError, match="no test today"):
            quick_tune(tmp_path, num_trials=2)
    before = read_json(tmp_path / "study.json")
    assert "test" not in before
    record = quick_tune(tmp_path, num_trials=2)
    assert record["best"] == before["best"]
    assert record["test"]["machine"]["began_at"] > record["best"]["machine"]["fixed_at"]


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
    with pytest.raises(InputError, match=r"these keys differ: window\."):
        quick_tune(finished_study, window=2)
    with pytest.raises(InputError, match=r"these keys differ: storage\."):
        quick_tune(finished_study, storage=str(tmp_path / "other.jsonl"))


def test_workers_that_die_again_and_again_end_the_study_with_a_sentence(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "objective", lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))
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
    def fail(study: Study, trial: optuna.Trial, folder: Path) -> float:
        raise InputError("not like this")

    monkeypatch.setattr(search, "objective", fail)
    with pytest.raises(InputError, match="not like this"):
        quick_tune(tmp_path, num_trials=2)


def test_a_bug_in_a_worker_is_not_taken_for_a_killed_one(
    tmp_path: Path, quick_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(study: Study, trial: optuna.Trial, folder: Path) -> float:
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
        ({"window": 0}, "window must be at least 1"),
        ({"tune_on": [1]}, "there is no split 1; the splits are 0 to 0"),
    ],
)
def test_mistakes_write_nothing(changes: dict[str, Any], message: str, tmp_path: Path, quick_tune: Tune) -> None:
    with pytest.raises(InputError, match=message):
        quick_tune(tmp_path / "new", **changes)
    assert not (tmp_path / "new").exists()
