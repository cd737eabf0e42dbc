from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adagpr.experiments import catalogue, runner
from adagpr.files import make_folder, read_json
from adagpr.training import Run, State, TrainingRun, spread
from tests.cli.command import adagpr
from tests.processes import Forked, Gate

ROW = "hop0_adagpr_texas"
RECORDS = Path(__file__).parents[2] / "results" / "catalogue"
WORDS = ("reproduce", "evolution", "--only", "texas")


def test_the_status_counts_what_is_done_and_names_what_has_begun(tmp_path: Path) -> None:
    row, records = catalogue()["table2_gcn_cora"], tmp_path / "catalogue"
    make_folder(records / "part")
    for cell, folder in zip(row.cells(), (records / "part", records, records), strict=False):
        shutil.copy(RECORDS / f"{row.name}-{cell.layers}.json", folder)
    shown = adagpr("reproduce", "table2", "--only", "gcn", "--status", "--out", str(tmp_path)).splitlines()
    assert [line.split() for line in shown[1:3]] == [
        ["method", "cora", "citeseer", "pubmed"],
        ["GCN", "2/6", "0/6", "0/6"],
    ]
    assert shown[-2:] == ["In all 2 done, 1 part, 15 missing, 0 failed.", "part: table2_gcn_cora:2"]


def test_the_data_root_is_where_files_are_read_from(
    benchmark_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADAGPR_DATA", str(tmp_path))
    monkeypatch.setitem(catalogue()[ROW].options, "max_epochs", 2)
    words = ("reproduce", "evolution", "--only", ROW, "--jobs", "1", "--data-root", str(benchmark_root), "--json")
    (found,) = json.loads(adagpr(*words, "--out", str(tmp_path / "out")))
    assert (found["dataset"], found["num_runs"]) == ("texas", 10)


@pytest.fixture
def trainings(benchmark_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Has the trainings of commands forked from the test end after 4 epochs; gives those that came to their end."""

    def noted(run: TrainingRun) -> Run:
        done = finish(run)
        assert done.folder is not None
        with (tmp_path / "trained").open("a") as file:
            file.write(f"{done.folder.name}\n")
        return done

    finish = TrainingRun.finish
    monkeypatch.setattr(TrainingRun, "finish", noted)
    for row in catalogue().values():
        monkeypatch.setitem(row.options, "max_epochs", 4)
    return lambda: (tmp_path / "trained").read_text().split()


def test_two_commands_in_one_folder_do_no_run_twice(
    trainings: Callable[[], list[str]], gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trains the first row while the second trains the other row and finds those runs taken."""

    def waiting(*arguments: Any) -> None:
        spread(*arguments)
        looked.wait()

    with Gate() as looked:
        with monkeypatch.context() as patch:
            patch.setattr(State, "tell", gate.before_call(2, State.tell))
            first = Forked(tmp_path, *WORDS, "--jobs", "1", "--out", str(tmp_path), name="first")
        gate.await_processes()
        monkeypatch.setattr(runner, "spread", waiting)
        monkeypatch.setattr(runner, "_WAIT", 0.0)
        second = Forked(tmp_path, *WORDS, "--jobs", "2", "--out", str(tmp_path), name="second")
        looked.await_processes()
        assert len(trainings()) == 10
        gate.let_pass()
        assert first.ended() == 0
        # It looks once more at what was taken, which is now complete.
        looked.let_pass()
        looked.await_processes()
        looked.let_pass()
        assert second.ended() == 0
    assert first.output == second.output
    assert len(trainings()) == 20
    assert sorted(trainings()) == sorted(_complete(tmp_path))
    assert list((tmp_path / "runs").rglob("*.tmp")) == []


def test_a_killed_command_goes_on_where_it_was(
    trainings: Callable[[], list[str]], gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*WORDS, "--jobs", "1", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "finish", gate.before_call(13, TrainingRun.finish))
        process = Forked(tmp_path, *command)
    gate.await_processes()
    process.kill()
    assert process.ended() == -signal.SIGKILL
    assert not (tmp_path / "evolution.md").exists()
    assert len(_complete(tmp_path)) == 12
    done = Forked(tmp_path, *command)
    assert done.ended() == 0
    assert len(trainings()) == 20
    assert sorted(trainings()) == sorted(_complete(tmp_path))
    assert "paired over 10 splits" in done.output
    for kind in ("md", "tex", "csv", "json", "pdf", "png", "svg"):
        assert (tmp_path / f"evolution.{kind}").stat().st_size > 0
    curve = read_json(tmp_path / "evolution-texas.json")
    assert np.shape(curve["coefficients"])[1:] == (4, 4)


@pytest.mark.usefixtures("benchmark_root")
@pytest.mark.parametrize(
    ("width", "left_out"), [(80, "table, runs, difference, settings"), (100, "settings"), (140, "")]
)
def test_a_narrow_terminal_shows_fewer_columns_and_cuts_none(
    width: int, left_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "table3_incepgcn-drop_chameleon"
    for file in RECORDS.glob(f"{name}-*.json"):
        make_folder(tmp_path / "catalogue")
        shutil.copy(file, tmp_path / "catalogue")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    shown = adagpr("reproduce", "table3", "--only", name, "--jobs", "1", "--out", str(tmp_path))
    assert "IncepGCN(Drop)" in shown
    assert "ours lower" in shown
    assert "…" not in shown
    assert (f"columns: {left_out}." in shown) == bool(left_out)
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("benchmark_root")
@pytest.mark.parametrize(
    ("owner", "name", "outlook"),
    [
        (TrainingRun, "__init__", "Nothing was saved yet; the same command starts again."),
        (State, "tell", "The same command resumes from epoch 2 in 20 runs."),
    ],
)
def test_an_interrupted_command_says_whether_it_resumes(
    owner: type, name: str, outlook: str, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in catalogue().values():
        monkeypatch.setitem(row.options, "max_epochs", 10**7)
        monkeypatch.setitem(row.options, "patience", None)
    monkeypatch.setattr(owner, name, gate.before_call(1, getattr(owner, name)))
    process = Forked(tmp_path, *WORDS, "--jobs", "2", "--out", str(tmp_path / "out"))
    gate.await_processes(2)
    process.kill(signal.SIGINT)
    # A training that is under way ends after a checkpoint, for which it must go on.
    gate.let_pass(2 if owner is State else 0)
    assert (process.ended(), process.errors) == (130, f"Stopped. {outlook}\n")
    assert (tmp_path / "out").exists() == (owner is State)


@pytest.mark.usefixtures("benchmark_root")
def test_without_torch_geometric_the_rows_of_gat_are_left_out(tmp_path: Path) -> None:
    words = ["table3", "--only", "table3_gat_texas", "--only", "table3_gcn_texas", "--out", str(tmp_path)]
    script = (
        "import sys; sys.modules['torch_geometric'] = None\n"
        "from adagpr.experiments import catalogue; from adagpr.cli.main import main\n"
        "catalogue()['table3_gcn_texas'].options['max_epochs'] = 2\n"
        "sys.argv = ['adagpr', 'reproduce', *sys.argv[1:]]; main()"
    )
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| texas | GCN |" in done.stdout
    assert "GAT" not in done.stdout
    told = [line for line in done.stderr.splitlines() if not line.startswith("Written")]
    assert told == [
        'Left out: the rows of gat. GAT needs torch_geometric, which is not installed. Try: pip install "adagpr[pyg]"'
    ]
    status = subprocess.run([*command, "--status"], capture_output=True, text=True, check=True)
    assert (status.stderr.splitlines(), status.stdout.splitlines()[-1][:13]) == (told, "In all 1 done")
    alone = [sys.executable, "-c", script, "table3", "--only", "gat", "--out", str(tmp_path)]
    done = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("Error: GAT needs torch_geometric")) == (2, True)


def _complete(out: Path) -> list[str]:
    return [path.parent.name for path in (out / "runs").glob("*/record.json")]
