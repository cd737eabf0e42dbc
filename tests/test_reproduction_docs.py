"""`docs/reproduction.md` says what the records say, and why where they are more than a point from the paper."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
START, END = "<!-- tables: written by benchmarks/reproduction.py -->\n", "<!-- end of tables -->\n"


def page(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "reproduction.py"), "--table", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def made_up(tmp_path: Path) -> list[str | Path]:
    """Two cells of one row, the deeper of which is 1.5 points below its print."""
    for layers, ours in ((2, 80.9), (4, 78.5)):
        record = {"table": 2, "dataset": "cora", "method": "GCN", "layers": layers, "test_acc": ours, "published": 80.0}
        record |= {"num_runs": 3 if layers == 2 else 1, "settings": "chosen" if layers == 2 else "released"}
        record |= {"test_acc_std": 0.0, "settings_from": "here", "runs": [{"split": "public", "test_acc": ours / 100}]}
        (tmp_path / f"table2_gcn_cora-{layers}.json").write_text(json.dumps(record))
    return ["--records", tmp_path, "--reasons", tmp_path / "reasons.toml"]


def test_the_page_has_the_tables_of_the_records() -> None:
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    done = page()
    assert done.returncode == 0, done.stderr
    assert text.partition(START)[2].partition(END)[0].strip() == done.stdout.strip()


def test_what_is_apart_is_bold_and_explained(made_up: list[str | Path], tmp_path: Path) -> None:
    (tmp_path / "reasons.toml").write_text('[[difference]]\ncells = ["table2_gcn_*"]\nwhy = "It is deep."\n')
    text = page(*made_up).stdout
    assert "| GCN | 80.9\\* (80.0) | **78.5**¹ (80.0) |" in text
    assert "- Table 2: GCN on Cora at 4 layers -1.5. It is deep." in text


@pytest.mark.parametrize(
    ("cells", "said"), [("table3_*", "nothing is more than a point apart"), ("", "does not say why")], ids=str
)
def test_reasons_and_differences_must_match(made_up: list[str | Path], tmp_path: Path, cells: str, said: str) -> None:
    reason = f'[[difference]]\ncells = ["{cells}"]\nwhy = "It is deep."\n' if cells else "difference = []\n"
    (tmp_path / "reasons.toml").write_text(reason)
    done = page(*made_up)
    assert done.returncode == 1
    assert said in done.stderr
