"""``adagpr export`` on runs that were really trained."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from adagpr.data import load
from adagpr.exporting import load_exported
from adagpr.ops import features
from adagpr.training import load_run
from tests.cli.command import adagpr

QUICK = ["--set", "max_epochs=15", "--set", "num_layers=2", "--set", "hidden_channels=8", "--set", "lr=0.05"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of AdaGPR, one without the graph, one with PairNorm and one of another model."""
    folder = tmp_path_factory.mktemp("runs")
    csbm = ["train", "csbm", "--set", "data.num_nodes=60", "--jobs", "1"]
    fixed = ["--set", "projection=fixed", "--set", "num_coeffs=2"]
    adagpr(*csbm, *QUICK, *fixed, "--set", "fixed_coeffs=[0.4, 0.6]", "--out", str(folder / "adagpr"))
    adagpr(*csbm, *QUICK, *fixed, "--set", "fixed_coeffs=[1.0, 0.0]", "--out", str(folder / "alone"))
    adagpr(*csbm, *QUICK, "--set", "pair_norm=1.0", "--out", str(folder / "normed"))
    adagpr(*csbm, "--model", "mlp", "--set", "max_epochs=1", "--out", str(folder / "mlp"))
    return folder


def test_a_person_reads_what_is_left_and_what_that_saves(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.safetensors"
    lines = adagpr("export", str(runs / "alone"), "-o", str(out)).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["layer", "hops", "used", "products", "left"],
        ["1", "0", "1", "0"],
        ["2", "0", "1", "0"],
    ]
    assert "sparse products 2 0 100.0 %" in [" ".join(line.split()) for line in lines]
    assert "No layer uses the graph, so it runs without one." in lines
    assert lines[-1] == f"Written: {out} ({out.stat().st_size:,} bytes)"


def test_a_network_that_reads_the_graph_says_how_its_operator_is_made(runs: Path, tmp_path: Path) -> None:
    printed = adagpr("export", str(runs / "adagpr"), "--format", "onnx", "-o", str(tmp_path / "one.onnx"))
    assert "edge_target [num_edges] int64" in printed
    assert "The operator is that of direction 'directed' with self loops; adagpr.edge_inputs gives" in printed


def test_a_network_that_reads_edges_both_ways_says_so(runs: Path, tmp_path: Path) -> None:
    signed = ["train", "csbm", "--set", "data.num_nodes=60", "--jobs", "1", "--model", "adagpr-signed"]
    adagpr(*signed, *QUICK[:-2], "--set", "directions=both", "--out", str(tmp_path / "run"))
    printed = adagpr("export", str(tmp_path / "run"), "--format", "onnx")
    assert "0, 1, 2 forward; 0, 1, 2 backward" in printed
    assert "without self loops that is divided at both ends of an edge, read both ways; adagpr.edge_inputs" in printed


@pytest.mark.parametrize("format_", ["safetensors", "onnx", "torch"])
def test_json_holds_the_whole_report(format_: str, runs: Path, tmp_path: Path) -> None:
    words = ["export", str(runs / "adagpr"), "--format", format_, "--json", "-o", str(tmp_path / "one")]
    found = json.loads(adagpr(*words))
    assert (found["format"], found["path"]) == (format_, str(tmp_path / "one"))
    assert (found["before"]["sparse_products"], found["after"]["sparse_products"]) == (2, 2)
    assert found["measured"]["max_difference"] < 1e-5
    assert [part["hops"] for part in found["layers"]] == [[0, 1], [0, 1]]


def test_a_run_whose_data_are_gone_is_still_exported(runs: Path, tmp_path: Path) -> None:
    record = json.loads((runs / "adagpr" / "record.json").read_text())
    moved = tmp_path / "run"
    moved.mkdir()
    for path in (runs / "adagpr").iterdir():
        if path.is_file() and path.name != "config.toml":
            (moved / path.name).write_bytes(path.read_bytes())
    record["config"]["data"]["name"] = "gone.npz"
    (moved / "record.json").write_text(json.dumps(record))
    found = json.loads(adagpr("export", str(moved), "--json"))
    assert found["measured"] is None
    assert found["remarks"][0].startswith(
        "Nothing was measured, because the run's graph could not be loaded. The run's data cannot be "
    )
    assert (moved / "exported.safetensors").exists()


def test_pruned_texas_runs_with_no_graph(benchmark_root: Path, tmp_path: Path) -> None:
    settings = {"num_layers": 4, "num_coeffs": 4, "alpha": 0.5, "theta": 1.0, "max_epochs": 20}
    fixed = {"projection": "fixed", "fixed_coeffs": "[1.0, 0.0, 0.0, 0.0]"}
    words = [word for key, value in (settings | fixed).items() for word in ("--set", f"{key}={value}")]
    run, out = str(tmp_path / "run"), str(tmp_path / "texas.safetensors")
    adagpr("train", "texas", "--split", "geom-gcn/0", *words, "--jobs", "1", "--out", run)
    printed = adagpr("export", run, "-o", out)
    assert "sparse products 12 0 100.0 %" in [" ".join(line.split()) for line in printed.splitlines()]
    graph, _ = load("texas", data_root=benchmark_root)
    with torch.no_grad():
        predicted = load_exported(out)(features(graph.x)).argmax(1).tolist()
    names = [graph.class_names[number] for number in predicted]
    assert names == load_run(run).predictions["prediction"].to_pylist()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gone"], "gone holds no complete run: there is no record.json in it."),
        (["mlp"], "The model 'mlp' cannot be exported: only adagpr, adagpr-signed and gcnii can."),
        (["normed"], "A network with PairNorm cannot be exported: it reads all nodes at once between its layers."),
        (["adagpr", "--format", "onix"], "Unknown format 'onix'. Did you mean 'onnx'?"),
        (["adagpr", "-o", "mlp"], "mlp is a folder; give the name of a file in it."),
        (
            ["adagpr", "-o", "adagpr/record.json"],
            "adagpr/record.json belongs to the run itself and is not written over.",
        ),
        (["adagpr", "-o", "mlp/record.json/one"], "Cannot write to the folder mlp/record.json: File exists."),
        (
            ["adagpr", "--dataset", "texas.npz"],
            "The run's data cannot be loaded again, so give them: load: num_nodes: only csbm and tables take "
            "options, not 'texas.npz'.",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_no_file(
    words: list[str], sentence: str, runs: Path, ended: Callable[..., tuple[int, str, str]]
) -> None:
    before = sorted(runs.rglob("*"))
    assert ended(runs, "export", *words) == (2, "", f"Error: {sentence}\n")
    assert sorted(runs.rglob("*")) == before


def test_without_onnx_the_extra_is_named(
    runs: Path, ended: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    before = sorted(runs.rglob("*"))
    sentence = "Error: Exporting to ONNX needs the extra: pip install 'adagpr[onnx]'.\n"
    assert ended(runs, "export", "adagpr", "--format", "onnx") == (2, "", sentence)
    assert sorted(runs.rglob("*")) == before
