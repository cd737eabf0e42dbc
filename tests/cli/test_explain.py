"""``adagpr explain`` on runs that were really trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import adagpr

QUICK = ["--set", "max_epochs=15", "--set", "num_layers=2", "--set", "hidden_channels=8", "--set", "lr=0.05"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of AdaGPR, one without the graph, one of a file and one of another model."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    x, edges = rng.normal(size=(40, 5)), rng.integers(0, 40, (90, 2))
    np.savez(folder / "own.npz", node_features=x, node_labels=np.arange(40) % 2, edges=edges)
    csbm = ["train", "csbm", "--set", "data.num_nodes=60", "--jobs", "1"]
    fixed = ["--set", "projection=fixed", "--set", "fixed_coeffs=[1.0, 0.0]", "--set", "num_coeffs=2"]
    adagpr(*csbm, *QUICK, "--out", str(folder / "adagpr"))
    adagpr(*csbm, *QUICK, *fixed, "--out", str(folder / "alone"))
    adagpr(*csbm, "--model", "mlp", "--set", "max_epochs=1", "--out", str(folder / "mlp"))
    adagpr("train", str(folder / "own.npz"), *QUICK, "--jobs", "1", "--out", str(folder / "file"))
    return folder


def test_json_holds_the_coefficients_and_a_nodes_parts(runs: Path, tmp_path: Path) -> None:
    words = ["explain", str(runs / "adagpr"), "--node", "3", "--json", "--out", str(tmp_path / "tables")]
    found = json.loads(adagpr(*words))
    record = json.loads((runs / "adagpr" / "record.json").read_text())
    assert [part["coefficients"] for part in found["layers"]] == record["coefficients"]
    assert found["val_acc"] == pytest.approx(100 * record["result"]["scores"]["val"]["accuracy"])
    node = found["node"]
    assert node["bias_out"] + node["bias_in"] + sum(node["by_hops"]) == pytest.approx(node["logit"], abs=1e-6)
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == [
        "ablations.parquet",
        "groups.parquet",
        "layers.parquet",
    ]


def test_a_person_reads_tables_and_sentences(runs: Path) -> None:
    lines = adagpr("explain", str(runs / "adagpr"), "--node", "3").splitlines()
    assert lines[0] == "csbm, split random/0: adagpr with 2 layers"
    assert lines[3].split() == ["layer", "hop", "0", "hop", "1", "hop", "2", "hop", "3", "mean", "hop", "farthest"]
    plain = json.loads(adagpr("explain", str(runs / "adagpr"), "--node", "3", "--json"))
    node = plain["node"]
    start = f"Node 3 is predicted as {node['prediction']} with probability {node['probability']:.3f} (its class is "
    assert any(line.startswith(start) for line in lines)
    first = plain["ablations"][0]
    (row,) = (line for line in lines if line.startswith("without the graph"))
    assert row.split()[3:] == [
        f"{first['accuracy']:.1f}",
        "%",
        f"{first['difference']:+.1f}",
        str(first["right_only_with"]),
        str(first["right_only_without"]),
    ]


def test_hops_of_either_sign_and_direction_have_their_names(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # all six have room
    model = ["--model", "adagpr-signed", "--jobs", "1", "--out", str(tmp_path / "signed")]
    trained = adagpr("train", str(runs / "own.npz"), *QUICK, *model).splitlines()
    explained = adagpr("explain", str(tmp_path / "signed"), "--node", "3").splitlines()
    record = json.loads((tmp_path / "signed" / "record.json").read_text())
    row = [f"{value:+.3f}" for value in record["coefficients"][0]]
    for lines in (trained, explained):
        start = lines.index("How much of each hop each layer uses")
        assert lines[start + 1].split() == ["hop", "0", "hop", "1", "hop", "2"] * 2
        assert lines[start + 2].split()[:7] == ["layer", *["forward"] * 3, *["backward"] * 3]
        assert lines[start + 3].split()[1:7] == row
    assert any("below 0, red, it subtracts it" in line for line in trained)
    assert any(line.startswith("shifts of the layers") for line in explained)
    assert any(line.split()[-2:] == ["map", "shift"] for line in explained)
    assert any("keeps hop 0 and own maps" in line for line in explained)


def test_a_network_without_the_graph_is_said_to_be_one(runs: Path) -> None:
    lines = adagpr("explain", str(runs / "alone")).splitlines()
    assert "No layer uses the graph: a prediction reads nothing but its own node." in lines
    assert "Taking out hop 1 changes no bit of any prediction." in lines


def test_the_run_of_a_file_is_explained_also_where_it_has_moved(runs: Path) -> None:
    before = adagpr("explain", str(runs / "file"), "--json")
    (runs / "own.npz").rename(runs / "moved.npz")
    moved = json.loads(adagpr("explain", str(runs / "file"), "--dataset", str(runs / "moved.npz"), "--json"))
    (runs / "moved.npz").rename(runs / "own.npz")
    assert {**moved, "dataset": "own"} == json.loads(before)


def test_texas_shows_the_papers_pattern(benchmark_root: Path, tmp_path: Path) -> None:
    settings = {"num_layers": 4, "num_coeffs": 4, "alpha": 0.5, "theta": 1.0, "dropout": 0.5, "max_epochs": 120}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    adagpr("train", "texas", "--split", "geom-gcn/0", *words, "--jobs", "1", "--out", str(tmp_path / "run"))
    lines = adagpr("explain", str(tmp_path / "run")).splitlines()
    assert [line.split() for line in lines[4:8]] == [
        [layer, "1.000", "0", "0", "0", "0.00", "0"] for layer in ("1", "2", "3", "4")
    ]
    assert lines[8] == "No layer uses the graph: a prediction reads nothing but its own node."
    assert "Taking out hop 1, hop 2, hop 3 changes no bit of any prediction." in lines


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gone"], "gone holds no complete run: there is no record.json in it."),
        (["mlp"], "The model 'mlp' has no layers with coefficients to explain."),
        (["adagpr", "--node", "60"], "There is no node '60' in csbm; its first is '0', its last '59'."),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], sentence: str, runs: Path, ended: Callable[..., tuple[int, str, str]]
) -> None:
    assert ended(runs, "explain", *words) == (2, "", f"Error: {sentence}\n")
