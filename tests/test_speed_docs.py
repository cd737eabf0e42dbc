"""`docs/speed.md` says what the records of the benchmark say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adagpr.benchmarking import SETS, Case

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
START, END = "<!-- tables: written by benchmarks/speed.py -->\n", "<!-- end of tables -->\n"
MACHINE = {"processor": "abacus", "num_cores": 2, "platform": "none", "python": "3", "torch": "2", "adagpr": "0"}


def speed(*arguments: str | Path) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / "speed.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def spread(value: float) -> dict[str, float]:
    return {"median": value, "lower": value, "upper": value, "rounds": 3}


def made_up(case: Case) -> dict[str, Any]:
    """Ours takes a second for each fixed coefficient in use, else nodes^1.5 seconds, and the others thrice that."""
    num_nodes = int(case.graph.partition(":")[2] or 2708)
    seconds = sum(coeff > 0 for coeff in case.fixed_coeffs or ()) or num_nodes**1.5
    entry: dict[str, Any] = {"status": "measured", "num_threads": 1, "largest_difference": 0.0}
    entry |= {"seconds": spread(3 * seconds), "ratio": spread(3.0), "memory_mb": {"step": 12.0, "total": 34.0}}
    ways: dict[str, Any] = dict.fromkeys(case.ways, entry)
    ways["ours"] = {key: value for key, value in entry.items() if key != "ratio"} | {"seconds": spread(seconds)}
    data = {"num_nodes": num_nodes, "num_edges": 10 * num_nodes, "num_features": 64}
    return {"format": 1, "case": case.plain(), "data": data, "ways": ways, "machine": MACHINE}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A folder with a record of every case, and a profile of all whose products are looked at."""
    folder = tmp_path / "records"
    folder.mkdir()
    half = {"training": 0.25, "evaluation": 0.25}
    parts = {"sparse products": half, "dense products": half}
    profile = {"seconds": 2.0, "limit_share": 0.4, "num_threads": 1, "parts": parts}
    for case in (case for cases in SETS.values() for case in cases):
        (folder / f"{case.name}.json").write_text(json.dumps(made_up(case)))
    for case in SETS["products"]:
        (folder / f"profile-{case.name}.json").write_text(json.dumps(profile))
    return folder


def test_the_page_and_its_figures_are_made_from_the_records(tmp_path: Path) -> None:
    shutil.copy(DOCS / "speed.md", tmp_path)
    speed("--docs", tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in DOCS.glob("speed*")}


def test_table_prints_what_stands_between_the_marks() -> None:
    page = (DOCS / "speed.md").read_text()
    assert page.partition(START)[2].partition(END)[0] == f"\n{speed('--table')}\n"


def test_every_part_is_made_where_all_is_recorded(records: Path) -> None:
    text = speed("--table", "--records", records)
    assert text.count("### ") == 14
    assert "| pyg-csr | 3.00 | 3.00 | 3.00 | 3.00 | 3.00 | 3.00 |\n" in text  # six depths
    assert "| fitted exponent | 1.50 |\n" in text
    assert "R2 = 1.000 and adds 1,000 ms for each hop." in " ".join(text.split("\n"))
    assert "| Cora | 32 | 1 | 2,000 | 25 % | 25 % | 50 % | 40 % |\n" in text
    assert "| ours | 12 (34) | 12 (34) | 12 (34) | 12 (34) |\n" in text


def test_a_figure_is_written_for_every_sweep(records: Path, tmp_path: Path) -> None:
    (tmp_path / "speed.md").write_text(f"before\n{START}old\n{END}after\n")
    speed("--docs", tmp_path, "--records", records)
    names = ("layers", "coeffs", "channels", "nodes", "edges")
    assert {path.name for path in tmp_path.glob("*.svg")} == {f"speed-{name}.svg" for name in names}
    page = (tmp_path / "speed.md").read_text()
    assert page.startswith(f"before\n{START}\n### Side by side\n")
    assert page.endswith(f"\n{END}after\n")
    assert "old" not in page


def test_parts_without_records_are_left_out(records: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    few.mkdir()
    shutil.copy(records / "layers-2.json", few)
    headings = [line for line in speed("--table", "--records", few).splitlines() if line.startswith("#")]
    assert headings == ["### By layers", "### Many runs at once", "### The machine"]
