"""`export` on runs that were really trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import scipy.sparse as sp
import torch

from adagpr.data import csbm, load
from adagpr.errors import InputError, StorageError
from adagpr.exporting import FORMATS, edge_inputs, export, load_exported
from adagpr.graph import Graph, Split
from adagpr.ops import features, operator
from adagpr.training import Run, fit

OPTIONS: dict[str, Any] = {"num_layers": 3, "num_coeffs": 3, "hidden_channels": 8, "max_epochs": 15, "lr": 0.05}


@pytest.fixture(scope="module")
def data() -> tuple[Graph, Split]:
    graph, splits = load("csbm", num_nodes=90, num_classes=3, num_features=10)
    return graph, splits[0]


@pytest.fixture(scope="module")
def run(data: tuple[Graph, Split], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(*data, out=tmp_path_factory.mktemp("run"), direction="symmetric", **OPTIONS)


def test_the_report_adds_up(run: Run, tmp_path: Path) -> None:
    report = export(run, out=tmp_path / "new" / "one.safetensors")
    assert report.num_bytes == (tmp_path / "new" / "one.safetensors").stat().st_size
    assert report.before.sparse_products == sum(item.products for item in report.layers) == 6
    assert report.after.sparse_products == sum(item.products_left for item in report.layers)
    rows = run.record["coefficients"]
    assert [item.hops for item in report.layers] == [tuple(k for k, mu in enumerate(row) if mu) for row in rows]
    assert report.measured is not None
    assert report.measured.max_difference < 1e-5
    assert report.measured.multiply_adds == report.before.total(90, report.measured.num_entries)


def test_the_file_says_what_the_run_was(run: Run, tmp_path: Path, data: tuple[Graph, Split]) -> None:
    export(run, out=tmp_path / "one.safetensors")
    back = load_exported(tmp_path / "one.safetensors")
    assert back.about.class_names == data[0].class_names
    assert (back.about.direction, back.about.self_loops) == ("symmetric", True)
    assert [list(row) for row in back.about.coefficients] == run.record["coefficients"]
    assert len(back.about.config_sha256) == 64
    predicted = back(features(data[0].x), operator(data[0], "symmetric")).argmax(1)
    names = [data[0].class_names[number] for number in predicted.tolist()]
    assert names == run.predictions["prediction"].to_pylist()


@pytest.mark.parametrize("format_", FORMATS)
def test_by_default_the_file_is_in_the_runs_folder(format_: Any, run: Run) -> None:
    assert run.folder is not None
    report = export(run.folder, format_)
    assert report.path == str(run.folder / f"exported{FORMATS[format_][0]}")
    assert Path(report.path).stat().st_size == report.num_bytes > 0


@pytest.mark.parametrize("scaling", ["rows", "standardise"])
@pytest.mark.parametrize("format_", FORMATS)
def test_exported_networks_take_features_as_they_come(
    format_: Any, scaling: str, data: tuple[Graph, Split], tmp_path: Path
) -> None:
    graph, split = data
    assert isinstance(graph.x, torch.Tensor)
    x = graph.x * torch.logspace(-2, 2, 10) + 3
    x[4] = 0
    graph = graph.with_features(x)
    run = fit(graph, split, feature_scaling=scaling, **OPTIONS)
    report = export(run, format_, tmp_path / "one", graph=graph)
    assert report.measured is not None
    assert report.measured.max_difference < 1e-4
    with torch.no_grad():
        expected = run.model.eval()(features(run.scaled(graph).x), operator(graph))
    found = {"safetensors": _in_safetensors, "onnx": _in_onnx, "torch": _in_torch}[format_](tmp_path / "one", graph)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def _in_safetensors(path: Path, graph: Graph) -> torch.Tensor:
    # As sparse features, for which it must say the same.
    return torch.as_tensor(load_exported(path)(features(sp.csr_array(graph.x)), operator(graph)))


def _in_onnx(path: Path, graph: Graph) -> torch.Tensor:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.as_tensor(session.run(None, _inputs(graph))[0])


def _in_torch(path: Path, graph: Graph) -> torch.Tensor:
    program = torch.export.load(str(path)).module()
    return torch.as_tensor(program(*map(torch.from_numpy, _inputs(graph).values())))


def _inputs(graph: Graph) -> dict[str, np.ndarray]:
    assert isinstance(graph.x, torch.Tensor)
    return {"x": graph.x.numpy(), **edge_inputs(graph)}


def test_a_graph_in_memory_is_measured_where_it_is_given(tmp_path: Path) -> None:
    graph = csbm(num_nodes=40, seed=9)
    split = Split(torch.arange(20), torch.arange(20, 30), torch.arange(30, 40), "own")
    run = fit(graph, split, num_layers=1, max_epochs=2)
    path = tmp_path / "one.safetensors"
    left_out = export(run, out=path)
    assert left_out.measured is None
    assert left_out.remarks[0].startswith(
        "Nothing was measured, because the run's graph could not be loaded. This is not the graph of"
    )
    assert export(run, out=path, graph=graph).measured is not None
    with pytest.raises(InputError, match="This is not the graph of the run"):
        export(run, out=path, graph=csbm(num_nodes=40, seed=8))
    with pytest.raises(InputError, match="This run is kept in no folder, so the file to write must be given"):
        export(run)


def test_a_failed_write_leaves_the_old_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.safetensors"
    path.write_text("old")

    def full(path: Path, content: bytes) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match="the disk is full"):
        export(run, out=path)
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["one.safetensors"]


def test_the_runs_own_files_are_not_written_over(run: Run) -> None:
    assert run.folder is not None
    before = (run.folder / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="belongs to the run itself"):
        export(run, out=run.folder / "." / "model.safetensors")
    with pytest.raises(InputError, match="is a folder; give the name of a file in it"):
        export(run, out=run.folder)
    assert (run.folder / "model.safetensors").read_bytes() == before


def test_layers_that_nothing_reads_are_said_to_be_left_out(data: tuple[Graph, Split], tmp_path: Path) -> None:
    run = fit(*data, **{**OPTIONS, "alpha": [0.1, 1.0, 0.1], "max_epochs": 2})
    report = export(run, out=tmp_path / "one.safetensors")
    assert [item.kept for item in report.layers] == [False, True, True]
    assert report.layers[1].hops == ()
    assert report.layers[1].products_left == 0


def test_cora_in_onnxruntime_is_ours_to_five_digits(benchmark_root: Path, tmp_path: Path) -> None:
    graph, splits = load("cora", "public", data_root=benchmark_root)
    run = fit(graph, splits[0], num_layers=8, hidden_channels=32, max_epochs=5)
    report = export(run, "onnx", tmp_path / "cora.onnx", graph=graph)
    assert [item.name for item in report.inputs] == ["x", "edge_source", "edge_target", "edge_weight"]
    session = onnxruntime.InferenceSession(report.path, providers=["CPUExecutionProvider"])
    x = graph.x.numpy() if isinstance(graph.x, torch.Tensor) else graph.x.toarray()
    (found,) = session.run(None, {"x": x.astype(np.float32), **edge_inputs(graph)})
    with torch.no_grad():
        expected = run.model.eval()(features(graph.x), operator(graph))
    np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-5)


def test_pruned_texas_runs_with_no_graph(benchmark_root: Path, tmp_path: Path) -> None:
    graph, splits = load("texas", "geom-gcn", data_root=benchmark_root)
    fixed: dict[str, Any] = {"num_coeffs": 4, "projection": "fixed", "fixed_coeffs": [1.0, 0.0, 0.0, 0.0]}
    run = fit(graph, splits[0], num_layers=4, alpha=0.5, theta=1.0, max_epochs=30, **fixed)
    report = export(run, "onnx", tmp_path / "texas.onnx", graph=graph)
    assert [item.name for item in report.inputs] == ["x"]
    assert (report.before.sparse_products, report.after.sparse_products, report.after.per_edge) == (12, 0, 0)
    session = onnxruntime.InferenceSession(report.path, providers=["CPUExecutionProvider"])
    x = graph.x.numpy() if isinstance(graph.x, torch.Tensor) else graph.x.toarray()
    (found,) = session.run(None, {"x": x.astype(np.float32)})
    predicted = [graph.class_names[number] for number in np.asarray(found).argmax(1)]
    assert predicted == run.predictions["prediction"].to_pylist()
