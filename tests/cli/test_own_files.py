"""Commands leave alone what is not theirs, and where they fail they leave nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import adagpr
from adagpr.experiments import runner
from adagpr.training import resolve
from tests.cli.conftest import Ended

SMALL = ("--set", "num_layers=1", "--set", "hidden_channels=4", "--set", "max_epochs=2")
CSBM = ("csbm", "--set", "data.num_nodes=120")
GREEDY = ("--method", "greedy")
TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv")
# Files that look like ours or are where ours are.
FOREIGN = (
    *(".notes.tmp", ".x.tmp", ".probe.1", ".a.json.1.tmp", "b.1.adagpr-tmp", "lock", ".lock.bak", "notes.adagpr-tmp"),
    *("record.json.bak", "journal.jsonl.bak", "config.toml.orig", "my.pdf", "figures/coefficients.svg", "work/columns"),
    *("checkpoint/notes.txt", "checkpoint/.state.tmp", ".work/notes.txt", ".work/edges.csv", "parts-old/manifest.json"),
    *("part-00000/notes.txt", "rows-mine/0.safetensors", "runs/notes.txt", "catalogue/part/notes.txt"),
    *("catalogue/failed/notes.txt", "predictions.parquet.old", "trial-0/checkpoint/notes.txt", "seed-0/.notes.tmp"),
    *("foo.lock", "checkpoint.bak"),
)
WRITING = {
    "train": ("train", *CSBM, *SMALL, "--out", "out"),
    "train twice": ("train", *CSBM, *SMALL, "--seed", "0", "--seed", "1", "--jobs", "1", "--out", "out"),
    "train in batches": ("train", "--partitions", "parts", "--batch-parts", "1", *SMALL, "--out", "out"),
    "predict": ("predict", "run", *TABLES, "--out", "out/p.parquet"),
    "tune": ("tune", *CSBM, *SMALL, "--trials", "1", "--jobs", "1", "--out", "out"),
    "partition": ("partition", "csbm", "--parts", "2", "--out", "out"),
    "partition out of core": ("partition", *TABLES, "--label", "label", "--parts", "2", *GREEDY, "--out", "out"),
    "reproduce": ("reproduce", "table3", "--only", "table3_gcn_texas", "--jobs", "1", "--out", "out"),
    "export": ("export", "run", "--out", "out/m.safetensors"),
    "report": ("report", "run", "--out", "out/page.html"),
    "plot": ("plot", "run", "--only", "training", "--out", "out"),
}
FAILING = (
    ("train", "nowhere", "--out", "out/run"),
    ("train", *CSBM, "--set", "lr=-1", "--out", "out/run"),
    ("train", *CSBM, *SMALL, "--model", "geom-gcn", "--out", "out/run"),
    ("train", *TABLES, "--label", "nothing", "--out", "out/run"),
    ("train", "--partitions", "nowhere", "--out", "out/run"),
    ("train", "--partitions", "parts", "--model", "gcn", "--out", "out/run"),
    ("train", "--partitions", "parts", "--batch-parts", "9", "--out", "out/run"),
    ("predict", "run", "--nodes", "edges.csv", "--edges", "edges.csv", "--out", "out/p.parquet"),
    ("predict", "run", *TABLES, "--out", "out/p.csv"),
    ("tune", *CSBM, "--trials", "1", "--set", "lr=-1", "--out", "out/study"),
    ("tune", *CSBM, "--trials", "1", "--space", "nowhere.toml", "--out", "out/study"),
    ("tune", *CSBM, "--trials", "1", "--storage", "nowhere/journal.jsonl", "--out", "out/study"),
    ("partition", "csbm", "--parts", "100000", "--out", "out/parts"),
    ("partition", *TABLES, "--label", "label", "--parts", "2", *GREEDY, "--memory", "1kB", "--out", "out/p"),
    ("partition", *TABLES, "--label", "label", "--parts", "999", *GREEDY, "--out", "out/p"),
    ("reproduce", "table9", "--out", "out/all"),
    ("reproduce", "--only", "nothing", "--out", "out/all"),
    ("reproduce", "table3", "--only", "table3_gcn_texas", "--data-root", "empty", "--out", "out/all"),
    ("export", "run", "--format", "nothing", "--out", "out/m"),
    ("export", "nowhere", "--out", "out/m.safetensors"),
    ("report", "nowhere", "--out", "out/page.html"),
    ("plot", "run", "--only", "nothing", "--out", "out/figures"),
    ("explain", "run", "--node", "nobody", "--out", "out/tables"),
    ("bench", "nothing", "--out", "out/bench"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tables, a run on them, and a graph in parts."""
    folder: Path = tmp_path_factory.mktemp("place")
    chance = np.random.default_rng(0)
    ends = chance.integers(0, 60, (150, 2))
    table = {"id": np.arange(60), "size": chance.normal(size=60), "label": np.arange(60) % 3}
    pacsv.write_csv(pa.table(table), folder / "nodes.csv")
    pacsv.write_csv(pa.table({"source": ends[:, 0], "target": ends[:, 1]}), folder / "edges.csv")
    graph, splits = adagpr.load("tables", nodes=folder / "nodes.csv", edges=folder / "edges.csv", label="label")
    adagpr.fit(graph, splits[0], out=folder / "run", num_layers=1, hidden_channels=4, max_epochs=2)
    adagpr.partition("csbm", parts=2, out=folder / "parts")
    (folder / "empty").mkdir()
    return folder


def stamps(folder: Path, names: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    return {name: ((folder / name).read_text(), (folder / name).stat().st_mtime_ns) for name in names}


@pytest.mark.parametrize("name", WRITING)
def test_files_of_others_are_left_alone(
    name: str,
    place: Path,
    tmp_path: Path,
    ended: Callable[..., Ended],
    benchmark_root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    for file in FOREIGN:
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        (out / file).write_text(f"mine: {file}")
    before = stamps(out, FOREIGN)
    # Few epochs of what the paper trains for hundreds.
    many_epochs: Callable[..., Any] = resolve
    few = {"max_epochs": 2}
    monkeypatch.setattr(runner, "resolve", lambda *given: many_epochs(*given[:3], {**given[3], **few}))
    words = [str(out / word.removeprefix("out/")) if word.startswith("out/") else word for word in WRITING[name]]
    words[-1] = str(out) if words[-1] == "out" else words[-1]
    for _ in range(2):
        code, _, errors = ended(place, *words)
        assert (code, errors.count("Error")) == (0, 0), errors
        assert stamps(out, FOREIGN) == before


@pytest.mark.parametrize("words", FAILING, ids=" ".join)
def test_a_command_that_fails_leaves_nothing(words: tuple[str, ...], place: Path, ended: Callable[..., Ended]) -> None:
    before = sorted(place.rglob("*"))
    code, _, errors = ended(place, *words)
    assert code in (1, 2), errors
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("file", ["model.safetensors", "predictions.parquet"])
def test_a_file_of_another_is_not_written_over(file: str, tmp_path: Path, ended: Callable[..., Ended]) -> None:
    (tmp_path / file).write_text("mine")
    code, _, errors = ended(tmp_path, "train", *CSBM, *SMALL, "--out", str(tmp_path))
    assert (code, errors) == (2, f"Error: {tmp_path} holds {file} of something else. Choose another folder.\n")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(file, "mine")]
