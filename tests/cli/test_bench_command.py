from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adagpr.benchmarking import CATEGORIES, SETS, Case
from adagpr.cli.main import app


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("tiny", "csbm:100", 2, 8, 3, ("pyg-csr", "ours"), threads=1, rounds=3)
    monkeypatch.setitem(SETS, "tiny", (case,))


def test_a_set_is_compared_and_its_records_kept(tmp_path: Path) -> None:
    first = CliRunner().invoke(app, ["bench", "tiny", "--out", str(tmp_path)], catch_exceptions=False)
    assert first.exit_code == 0
    assert [line.split(" | ")[1] for line in first.stdout.splitlines()[2:]] == ["pyg-csr", "ours"]
    before = (tmp_path / "tiny.json").read_bytes()
    again = CliRunner().invoke(app, ["bench", "tiny", "--out", str(tmp_path), "--json"], catch_exceptions=False)
    assert json.loads(again.stdout) == [json.loads(before)]
    assert (tmp_path / "tiny.json").read_bytes() == before


def test_a_profile_is_a_table_a_record_and_a_figure(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "tiny", "--profile", "--json", "--out", str(tmp_path)])
    assert done.exit_code == 0
    found = json.loads(done.stdout)["tiny"]
    assert list(found["parts"]) == list(CATEGORIES)
    assert found == json.loads((tmp_path / "profile-tiny.json").read_text())
    flame_graph = json.loads((tmp_path / "profile-tiny.speedscope.json").read_text())
    assert flame_graph["profiles"][0]["endValue"] == 1e3 * found["seconds"]
    assert "limit (products alone)" in done.stderr
