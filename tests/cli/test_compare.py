"""``adagpr compare`` on runs that were really trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from adagpr.files import read_json
from tests.cli.command import adagpr

QUICK = ["--set", "data.num_nodes=60", "--set", "max_epochs=8", "--set", "lr=0.1", "--jobs", "1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three splits for each of two models, and one of a single run."""
    folder = tmp_path_factory.mktemp("runs")
    for model in ("gcn", "mlp"):
        for number in range(3):
            out = folder / model / str(number)
            adagpr("train", "csbm", "--model", model, "--split", f"random/{number}", "--out", str(out), *QUICK)
    adagpr("train", "digits", "--model", "mlp", "--set", "max_epochs=1", "--out", str(folder / "digits"))
    return folder


def test_json_holds_the_differences_of_the_records(runs: Path) -> None:
    found = json.loads(adagpr("compare", str(runs / "gcn"), str(runs / "mlp"), "--json"))
    records = [
        [read_json(runs / name / str(i) / "record.json")["result"]["scores"] for i in range(3)]
        for name in ("gcn", "mlp")
    ]
    expected = [100 * (a["test"]["accuracy"] - b["test"]["accuracy"]) for a, b in zip(*records, strict=True)]
    assert [pair["difference"] for pair in found["pairs"]] == pytest.approx(expected, abs=1e-9)
    assert any(expected)
    assert [pair["split"] for pair in found["pairs"]] == ["random/0", "random/1", "random/2"]
    assert found["num_nodes"] == read_json(runs / "gcn" / "0" / "record.json")["data"]["num_test"]
    assert found["p_value"] >= 0.25


def test_a_person_reads_a_table_and_sentences(runs: Path) -> None:
    plain = json.loads(adagpr("compare", str(runs / "gcn"), str(runs / "mlp"), "--json", "--measure", "val_acc"))
    lines = adagpr("compare", str(runs / "gcn"), str(runs / "mlp"), "--measure", "val_acc").splitlines()
    assert lines[0] == "csbm, validation accuracy: A is gcn, B is mlp"
    assert lines[2].split() == ["split", "A", "B", "A", "-", "B"]
    assert [line.split()[0] for line in lines[3:7]] == ["random/0", "random/1", "random/2", "mean"]
    low, high = plain["t_interval"]
    start = f"A less B is {plain['mean_difference']:+.2f} points on average, 95 % interval {low:+.2f} to {high:+.2f} "
    assert lines[8].startswith(start)
    assert lines[9].startswith(
        f"One of {plain['num_nodes']} validation nodes is worth {plain['node_points']:.2f} points"
    )
    assert lines[10] == f"At the 5 % level: no difference shown (p = {plain['p_value']:.4g}, exact sign flips)."
    assert lines[11].startswith("Fewer than 6 pairs")


def test_a_run_is_compared_by_its_seed(runs: Path) -> None:
    lines = adagpr("compare", str(runs / "gcn" / "1"), str(runs / "mlp" / "1")).splitlines()
    assert lines[2].split()[:2] == ["split", "seed"]
    assert lines[3].split()[:2] == ["random/1", "0"]
    assert " points; A won " in lines[6]
    plain = json.loads(adagpr("compare", str(runs / "gcn" / "1"), str(runs / "mlp" / "1"), "--json"))
    assert (plain["t_interval"], plain["bootstrap_interval"]) == (None, None)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gcn", "digits"], "Only runs on one data set can be compared: A has csbm, B has digits."),
        (["gcn/0", "mlp/1"], "There is nothing to pair: A was run on random/0, B on random/1."),
        (["gcn", "gone"], "There is no folder or file gone."),
        (["gcn", "mlp", "--measure", "test-acc"], "Unknown measure 'test-acc'. Did you mean 'test_acc'?"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], sentence: str, runs: Path, ended: Callable[..., tuple[int, str, str]]
) -> None:
    assert ended(runs, "compare", *words) == (2, "", f"Error: {sentence}\n")
