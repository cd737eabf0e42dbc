"""`docs/scaling.md` says what the record and the cost model say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import cost
from benchmarks.cost import Shape, Speeds

ROOT = Path(__file__).parents[1]
MACHINE = {"processor": "abacus", "num_cores": 2, "platform": "none", "python": "3", "torch": "2", "adagpr": "0"}
SPEEDS = Speeds(cached=1e-10, missed=4e-10, dense=5e-11, element=2e-10)


def scaling(*arguments: str | Path) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / "scaling.py"), "--table", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def made_up_size(num_nodes: int, missing: float) -> dict[str, Any]:
    """A size at which every operation takes what `SPEEDS` says, and memory twice what is counted."""
    shape = Shape(num_nodes, 10 * num_nodes, num_features=64, num_classes=8)
    work = cost.operations(shape)
    sparse = work.sparse * (missing * SPEEDS.missed + (1 - missing) * SPEEDS.cached)
    dense, other = work.dense * SPEEDS.dense, work.elements * SPEEDS.element
    counted = sum(value for key, value in cost.memory(shape).items() if key != "features") / 2**20
    return {
        **{key: getattr(shape, key) for key in ("num_nodes", "num_entries", "num_features", "num_classes")},
        "missing": missing,
        "cache": 524288,
        "seconds": {"epoch": sparse + dense + other, "sparse": sparse, "dense": dense, "other": other},
        "memory_mb": 2 * counted,
        "process_mb": 1.0,
    }


def made_up_run(seed: int, border: str) -> dict[str, Any]:
    test_acc, num_bytes, loss = (0.8, 4_000_000, 1.0) if border == "float32" else (0.81, 2_000_000, 1.125)
    return {"seed": seed, "test_acc": test_acc, "bytes_sent": num_bytes, "val_loss": [loss + seed, 0.5]}


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a record that is made up."""
    graph = {"ranks": 2, "epochs": 2, "num_nodes": 10_000, "num_entries": 100_000, "cut": 0.1, "rows": 5}
    options = {"num_layers": 8, "hidden_channels": 64, "max_epochs": 2}
    runs = {border: [made_up_run(seed, border) for seed in (0, 1)] for border in ("float32", "bfloat16")}
    shares = {10_000: 0.2, 100_000: 0.5, 1_000_000: 0.8}
    content = {
        "sizes": {str(count): made_up_size(count, share) for count, share in shares.items()},
        "border": {**graph, "counted": 1280, "sent": 1281},
        "precision": {"options": options, "parts": 8, "ranks": 2, "runs": runs},
        "machine": MACHINE,
    }
    path = tmp_path_factory.mktemp("scaling") / "record.json"
    path.write_text(json.dumps(content))
    return scaling("--record", path)


def test_the_page_is_made_from_the_record() -> None:
    assert (ROOT / "docs" / "scaling.md").read_text() == scaling()


def test_speeds_that_hold_at_every_size_are_found_and_predict_the_largest(made_up: str) -> None:
    assert "| fitted to the smaller sizes | 100 | 400 | 50.0 | 200 |\n" in made_up
    assert "| fitted to all sizes | 100 | 400 | 50.0 | 200 |\n" in made_up
    for entries in ("100,000", "1,000,000", "10,000,000"):
        rows = [line.split(" | ") for line in made_up.splitlines() if line.startswith(f"| {entries} |")]
        (cells,) = [row for row in rows if row[-1] == "1.00 |"]
        assert (cells[2], cells[4], cells[7]) == (cells[3], "1.00", "0.50")


def test_bytes_and_precisions_are_those_of_the_record(made_up: str) -> None:
    text = " ".join(made_up.split("\n"))
    assert "sent 1,281 bytes; the count is 1,280. From" in text
    assert "| mean | 80.00 % | 81.00 % | 4 | 2 |" in text
    assert "differ by at most 1.2e-01. For any two seeds, the largest difference is 1.0e+00 or more." in text
