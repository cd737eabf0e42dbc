from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adagpr.benchmarking import SETS, Benchmark, Case, bench, run_case
from adagpr.benchmarking.implementations import implementation_process, step_memory
from adagpr.errors import AdaGPRError, InputError
from adagpr.files import read_json

MODULE = "adagpr.benchmarking.run"

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


@pytest.fixture
def no_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)


def never(case: Case) -> dict[str, Any]:
    raise AssertionError(f"{case.name} was run again")


@pytest.mark.usefixtures("no_dgl")
def test_a_set_is_measured_once_and_read_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETS, "tiny", (TINY,))
    seen: list[str] = []
    (record,) = bench("tiny", tmp_path / "out", on_case=lambda case, _: seen.append(case.name)).records
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
    monkeypatch.setattr(f"{MODULE}.run_case", never)
    assert bench("tiny", tmp_path / "out").records == (record,)
    assert seen == ["tiny"]


def test_a_case_that_changed_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}.run_case", lambda case: {"case": case.plain()})
    monkeypatch.setitem(SETS, "tiny", (TINY,))
    bench("tiny", tmp_path)
    monkeypatch.setitem(SETS, "tiny", (replace(TINY, num_layers=5),))
    assert bench("tiny", tmp_path).records[0]["case"]["num_layers"] == 5


def test_gcn2conv_takes_part_where_coefficients_are_one_hot() -> None:
    case = replace(TINY, num_coeffs=2, fixed_coeffs=(0.0, 1.0), ways=("gcn2conv", "ours"))
    assert run_case(case)["ways"]["gcn2conv"]["largest_difference"] < 1e-5


def test_signed_hops_are_measured_beside_as_a_network_of_their_own() -> None:
    found = run_case(replace(TINY, ways=("adagpr-signed", "ours"), measures_memory=True))["ways"]
    assert found["adagpr-signed"]["ratio"]["median"] > 0
    assert found["adagpr-signed"].keys() == {*found["ours"], "ratio"} - {"largest_difference"}


def test_one_thread_and_several_are_tried() -> None:
    found = run_case(replace(TINY, threads=2, ways=("pyg-csr", "ours")))["ways"]
    assert found["pyg-csr"]["trials"].keys() == {"1", "2"}
    assert found["ours"]["trials"].keys() == {"1", "2"}


def test_a_process_that_is_ended_is_an_error(tmp_path: Path) -> None:
    with implementation_process(TINY, "ours", tmp_path) as ours:
        assert ours.epochs(2, 1) > 0
        ours.process.kill()
        with pytest.raises(AdaGPRError, match="ended with code -9"):
            ours.epochs(1, 1)


def test_memory_is_measured_where_asked() -> None:
    found = run_case(replace(TINY, ways=("ours",), is_timed=False, measures_memory=True))["ways"]["ours"]
    assert found.keys() == {"status", "memory_mb"}
    assert 0 < found["memory_mb"]["step"] < found["memory_mb"]["total"]


def test_memory_that_cannot_be_measured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(case: Case, name: str) -> None:
        raise AdaGPRError("Memory ran out.")

    monkeypatch.setattr(f"{MODULE}.step_memory", fails)
    found = run_case(replace(TINY, ways=("ours",), is_timed=False, measures_memory=True))["ways"]["ours"]
    assert found == {"status": "measured", "memory_failed": "Memory ran out."}


def test_a_step_that_cannot_be_made_says_why() -> None:
    with pytest.raises(AdaGPRError, match=r"memory of pyg-cs ended with code 1: .*Unknown implementation 'pyg-cs'"):
        step_memory(TINY, "pyg-cs")


def test_an_unknown_set_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'headline'"):
        bench("headlines", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_table_has_a_row_per_implementation() -> None:
    seconds = {"median": 0.0215, "lower": 0.02, "upper": 0.1234, "rounds": 7}
    ours: dict[str, Any] = {"status": "measured", "num_threads": 1, "seconds": seconds}
    other = {**ours, "ratio": {"median": 6.0, "lower": 5.5, "upper": 1234.0, "rounds": 7}}
    other["memory_mb"] = {"step": 43.4, "total": 451.0}
    ways = {"dgl": {"status": "not available: no"}, "pyg-csr": other, "ours": ours}
    found = Benchmark(({"case": {"name": "small"}, "ways": ways},))
    assert found.markdown().splitlines()[2:] == [
        "| small | dgl |  | not available: no |  |  |  |",
        "| small | pyg-csr | 1 | 21.5 (20.0 to 123) | 6.00 (5.50 to 1,234) | 43 | 451 |",
        "| small | ours | 1 | 21.5 (20.0 to 123) |  |  |  |",
    ]
