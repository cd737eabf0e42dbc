"""``adagpr report`` and ``adagpr plot``, and the page that ``adagpr train`` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import adagpr
from tests.cli.conftest import Ended


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its twin without the graph."""
    folder = tmp_path_factory.mktemp("report") / "run"
    settings = ("--set", "max_epochs=5", "--set", "num_layers=2")
    adagpr("train", "csbm", "--without-graph", "--out", str(folder), *settings)
    return folder


def test_training_writes_the_page_of_both_twins(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "without the graph" in page
    assert 'id="paired"' in page
    assert not (run / "report-history.parquet").exists()


def test_repeating_the_command_builds_the_page_again(run: Path) -> None:
    before = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    settings = ("--set", "max_epochs=5", "--set", "num_layers=2")
    adagpr("train", "csbm", "--without-graph", "--out", str(run), *settings)
    assert (run / "report.html").read_bytes() == before


def test_a_page_of_runs_side_by_side(ended: Callable[..., Ended], run: Path, tmp_path: Path) -> None:
    words = ("report", str(run), str(run / "without-graph"), "-o", "two.html", "--json")
    code, out, _ = ended(tmp_path, *words)
    assert code == 0
    assert json.loads(out)["bytes"] == (tmp_path / "two.html").stat().st_size


def test_pictures_as_files(ended: Callable[..., Ended], run: Path, tmp_path: Path) -> None:
    code, out, _ = ended(tmp_path, "plot", str(run), "-o", "pictures", "--json")
    assert code == 0
    files = [Path(name) for name in json.loads(out)]
    assert {"coefficients.pdf", "evolution.png", "loss.pdf", "filter.png"} <= {file.name for file in files}
    for file in files:
        head = (tmp_path / file).read_bytes()[:5]
        assert head.startswith({"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}[file.suffix[1:]])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("report", "nowhere"), "There is no folder nowhere"),
        (("report", "."), "no complete run"),
        (("plot", "nowhere"), "There is no folder nowhere"),
        (("plot", "{run}", "--only", "coeffs"), "coeffs"),
    ],
)
def test_a_mistake_is_one_sentence(
    ended: Callable[..., Ended], run: Path, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    code, out, err = ended(tmp_path, *(word.format(run=run) for word in words))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
