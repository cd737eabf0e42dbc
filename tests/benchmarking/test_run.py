from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adagpr.benchmarking import SETS, Case, run, run_case, run_set, time_to_accuracy
from adagpr.benchmarking.ways import way_process
from adagpr.errors import AdaGPRError, InputError
from adagpr.experiments import experiment
from adagpr.files import read_json

GENERAL = ("dense-powers", "gather-scatter", "pyg-csr", "pyg-edge-index")
TINY = Case(
    "tiny",
    "csbm:300",
    num_layers=2,
    hidden_channels=8,
    num_coeffs=3,
    ways=("dgl", *GENERAL, "ours"),
    threads=1,
    rounds=3,
    budget=1.0,
)
PAPERS = next(cell for cell in experiment("table2_adagpr_cora").cells() if cell.layers == 8)


@pytest.fixture
def no_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)


def never(case: Case) -> dict[str, Any]:
    raise AssertionError(f"{case.name} was run again")


@pytest.mark.usefixtures("no_dgl")
def test_a_set_is_measured_once_and_read_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETS, "tiny", (TINY,))
    seen: list[str] = []
    (record,) = run_set("tiny", tmp_path / "out", lambda case, found: seen.append(f"{case.name} {found['format']}"))
    assert record.keys() == {"format", "case", "data", "ways", "machine"}
    assert record["data"] == {"num_nodes": 300, "num_edges": 3000, "num_features": 64}
    assert record["ways"]["dgl"].keys() == {"status"}
    assert record["ways"]["dgl"]["status"].startswith("not available: ")
    keys = {"status", "num_threads", "trials", "largest_difference", "seconds"}
    assert record["ways"]["ours"].keys() == keys
    assert all(record["ways"][way].keys() == keys | {"ratio"} for way in GENERAL)
    assert all(record["ways"][way]["largest_difference"] < 1e-5 for way in GENERAL)
    assert record["ways"]["ours"]["seconds"].keys() == {"median", "lower", "upper", "rounds"}
    assert {"processor", "num_cores", "torch", "seconds"} <= record["machine"].keys()
    assert read_json(tmp_path / "out" / "tiny.json") == record
    monkeypatch.setattr(run, "run_case", never)
    assert run_set("tiny", tmp_path / "out") == [record]
    assert seen == ["tiny 1"]


def test_a_case_that_changed_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run_case", lambda case: {"case": case.plain()})
    monkeypatch.setitem(SETS, "tiny", (TINY,))
    run_set("tiny", tmp_path)
    monkeypatch.setitem(SETS, "tiny", (replace(TINY, num_layers=5),))
    assert run_set("tiny", tmp_path)[0]["case"]["num_layers"] == 5


def test_gcn2conv_takes_part_where_coefficients_are_one_hot() -> None:
    case = replace(TINY, num_coeffs=2, fixed_coeffs=(0.0, 1.0), ways=("gcn2conv", "ours"))
    assert run_case(case)["ways"]["gcn2conv"]["largest_difference"] < 1e-5


def test_rivals_try_all_threads_and_ours_its_own() -> None:
    found = run_case(replace(TINY, threads=2, ways=("pyg-csr", "ours")))["ways"]
    assert found["pyg-csr"]["trials"].keys() == {"1", "2"}
    assert found["ours"]["trials"].keys() == {"1"}


def test_a_process_that_is_ended_is_an_error(tmp_path: Path) -> None:
    with way_process(TINY, "ours", tmp_path) as way:
        assert way.epochs(2, 1) > 0
        way.process.kill()
        with pytest.raises(AdaGPRError, match="ended with code -9"):
            way.epochs(1, 1)


def test_memory_is_measured_where_asked() -> None:
    found = run_case(replace(TINY, ways=("ours",), is_timed=False, measures_memory=True))["ways"]["ours"]
    assert found.keys() == {"status", "memory_mb"}
    assert 0 < found["memory_mb"]["step"] < found["memory_mb"]["total"]


def test_memory_that_cannot_be_measured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: str) -> None:
        raise AdaGPRError("Memory ran out.")

    monkeypatch.setattr(run, "peak_memory", fails)
    found = run_case(replace(TINY, ways=("ours",), is_timed=False, measures_memory=True))["ways"]["ours"]
    assert found == {"status": "measured", "memory_failed": "Memory ran out."}


def headline(seconds: dict[str, float], **changes: Any) -> dict[str, Any]:
    case = {"graph": "cora", "num_layers": 8, "hidden_channels": 32, "num_coeffs": 4, **changes}
    return {"case": case, "ways": {way: {"seconds": {"median": value}} for way, value in seconds.items()}}


def test_time_to_accuracy_is_the_best_epoch_times_the_time_of_an_epoch() -> None:
    training = {"dataset": "cora", "options": PAPERS.options, "runs": [{"best_epoch": 1000, "test_acc": 0.847}]}
    timing = headline({"ours": 0.02, "pyg-csr": 0.16})
    found = time_to_accuracy("cora", ["ours", "pyg-csr"], 84.8, training=training, timing=timing)
    assert found == {
        "dataset": "cora",
        "target": 84.8,
        "test_acc": 84.7,
        "best_epoch": 1000,
        "seconds": {"ours": 20.0, "pyg-csr": 160.0},
    }
    with pytest.raises(InputError, match="timing must be that of the same network on cora"):
        time_to_accuracy("cora", ["ours"], 84.8, training=training, timing=headline({"ours": 1.0}, num_layers=64))
    with pytest.raises(InputError, match="training must be the record of table2_adagpr_cora"):
        time_to_accuracy("cora", ["ours"], 84.8, training={**training, "options": {}}, timing=timing)
