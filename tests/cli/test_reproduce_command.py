from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from adagpr.experiments import catalogue
from adagpr.files import make_folder, read_json, write_json
from tests.cli.command import adagpr

ROW = "hop0_adagpr_texas"
RECORDS = Path(__file__).parents[2] / "results" / "catalogue"
WORDS = ("reproduce", "evolution", "--only", "texas", "--jobs", "2")


def test_the_status_counts_what_is_done_and_names_what_has_begun(tmp_path: Path) -> None:
    row, records = catalogue()["table2_gcn_cora"], tmp_path / "catalogue"
    make_folder(records / "part")
    for cell, folder in zip(row.cells(), (records / "part", records, records), strict=False):
        runs = [{"seed": seed} for seed in range(3)]
        write_json(folder / f"{row.name}-{cell.layers}.json", {"options": cell.options, "runs": runs})
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


@pytest.mark.usefixtures("benchmark_root")
def test_two_commands_in_one_folder_do_no_run_twice(tmp_path: Path) -> None:
    both = [
        subprocess.Popen(_short(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1]
    assert len(_trained(tmp_path)) == 20
    assert sorted(_trained(tmp_path)) == sorted(_complete(tmp_path))
    assert list((tmp_path / "runs").rglob("*.tmp")) == []


@pytest.mark.usefixtures("benchmark_root")
def test_a_killed_command_goes_on_where_it_was(tmp_path: Path) -> None:
    command = [*_short(tmp_path, max_epochs=300), "--jobs", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not _complete(tmp_path):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "evolution.md").exists()
    before = _complete(tmp_path)
    assert 0 < len(before) < 20
    (tmp_path / "trained").unlink(missing_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert sorted([*before, *_trained(tmp_path)]) == sorted(_complete(tmp_path))
    assert "paired over 10 splits" in done.stdout
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
def test_an_interrupted_command_says_whether_it_resumes(tmp_path: Path) -> None:
    command = _short(tmp_path, max_epochs=1500)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list((tmp_path / "runs").glob("*/config.toml")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    if list((tmp_path / "runs").glob("*/checkpoint/state.safetensors")):
        outlook = "The same command resumes from the last checkpoint."
    else:
        outlook = "Nothing was saved yet; the same command starts again."
    assert (process.returncode, told) == (130, f"Stopped. {outlook}\n")


@pytest.mark.usefixtures("benchmark_root")
def test_without_torch_geometric_the_rows_of_gat_are_left_out(tmp_path: Path) -> None:
    words = ["table3", "--only", "table3_gat_texas", "--only", "table3_gcn_texas", "--out", str(tmp_path)]
    script = (
        "import sys; sys.modules['torch_geometric'] = None\n"
        "from adagpr.experiments import catalogue; from adagpr.cli.main import main\n"
        "catalogue()['table3_gcn_texas'].options['max_epochs'] = 2\n"
        "sys.argv = ['adagpr', 'reproduce', *sys.argv[1:]]; main()"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| texas | GCN |" in done.stdout
    assert "GAT" not in done.stdout
    told = [line for line in done.stderr.splitlines() if not line.startswith("Written")]
    assert told == [
        'Left out: the rows of gat. GAT needs torch_geometric, which is not installed. Try: pip install "adagpr[pyg]"'
    ]
    alone = [sys.executable, "-c", script, "table3", "--only", "gat", "--out", str(tmp_path)]
    done = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("Error: GAT needs torch_geometric")) == (2, True)


def _short(out: Path, max_epochs: int = 4) -> list[str]:
    """The real command with trainings of a few epochs, which writes down those that it brought to their end."""
    script = (
        "import sys; from adagpr.experiments import catalogue; from adagpr.cli.main import main\n"
        "from adagpr.training import TrainingRun\n"
        f"for row in catalogue().values(): row.options['max_epochs'] = {max_epochs}\n"
        "finish = TrainingRun.finish\n"
        "def noted(session):\n"
        "    run = finish(session)\n"
        f"    print(run.folder.name, file=open({str(out / 'trained')!r}, 'a'))\n"
        "    return run\n"
        "TrainingRun.finish = noted\n"
        "sys.argv = ['adagpr', *sys.argv[1:]]; main()"
    )
    return [sys.executable, "-c", script, *WORDS, "--out", str(out)]


def _trained(out: Path) -> list[str]:
    return (out / "trained").read_text().split()


def _complete(out: Path) -> list[str]:
    return [path.parent.name for path in (out / "runs").glob("*/record.json")]
