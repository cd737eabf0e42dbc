from __future__ import annotations

import json
from pathlib import Path

import pytest

from adagpr.experiments import catalogue
from adagpr.files import make_folder, write_json
from tests.cli.command import adagpr

ROW = "hop0_adagpr_texas"


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
    monkeypatch.setitem(catalogue()[ROW].training, "max_epochs", 2)
    words = ("reproduce", "evolution", "--only", ROW, "--jobs", "1", "--data-root", str(benchmark_root), "--json")
    (found,) = json.loads(adagpr(*words, "--out", str(tmp_path / "out")))
    assert (found["dataset"], found["num_runs"]) == ("texas", 10)
