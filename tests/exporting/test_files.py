"""The three kinds of files, read back by what reads them."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.torch
import scipy.sparse as sp
import torch

from adagpr.errors import InputError
from adagpr.exporting import Exported, edge_inputs, load_exported
from adagpr.exporting.onnx import to_onnx
from adagpr.exporting.safetensors import description, to_safetensors
from adagpr.exporting.torch import to_torch
from adagpr.graph import Graph
from adagpr.ops import Direction, operator
from adagpr.ops.operator import csr_tensor
from tests.exporting import HOP_0, MIXED, exported, logits, network

MakeGraph = Callable[..., Graph]

BACKWARD = [{"layer": 1, "hops": [1.0], "residual": 0.0, "has_weight_0": False, "backward_hops": [0.0, 1.0]}]


def dense(graph: Graph) -> np.ndarray:
    assert isinstance(graph.x, torch.Tensor)
    return graph.x.float().numpy()


def in_onnxruntime(content: bytes, inputs: dict[str, np.ndarray], num_threads: int = 1) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (found,) = session.run(["logits"], inputs)
    return np.asarray(found)


def test_edges_are_the_entries_of_the_operator(make_graph: MakeGraph) -> None:
    graph = make_graph()
    edges = edge_inputs(graph, "symmetric", False)
    found = np.zeros((30, 30))
    found[edges["edge_target"], edges["edge_source"]] = edges["edge_weight"]
    np.testing.assert_array_equal(found, operator(graph, "symmetric", False).matrix.to_dense().numpy())


@pytest.mark.parametrize("weight_maps", ["shared", "separate", "separate-scaled"])
def test_safetensors_come_back_to_the_bit(weight_maps: str, make_graph: MakeGraph, tmp_path: Path) -> None:
    pruned = exported(network(MIXED, torch.float32, weight_maps=weight_maps))
    content = to_safetensors(pruned)
    (tmp_path / "one.safetensors").write_bytes(content)
    back = load_exported(tmp_path / "one.safetensors")
    graph = make_graph()
    assert back.about == pruned.about
    assert torch.equal(back(graph.x, operator(graph)), pruned(graph.x, operator(graph)))
    assert to_safetensors(back) == content


def test_a_loaded_network_without_hops_takes_features_alone(make_graph: MakeGraph, tmp_path: Path) -> None:
    model = network(HOP_0, torch.float32)
    (tmp_path / "one.safetensors").write_bytes(to_safetensors(exported(model)))
    back = load_exported(str(tmp_path / "one.safetensors"))
    assert not back.needs_graph
    torch.testing.assert_close(back(make_graph().x), logits(model, make_graph()), rtol=1e-5, atol=1e-5)


def test_a_file_from_before_signed_hops_is_still_read(make_graph: MakeGraph, tmp_path: Path) -> None:
    pruned = exported(network(MIXED, torch.float32, weight_maps="separate"))
    plain = json.loads(description(pruned))
    for name in ("directions", "hop_names", "divides_rows", "temperature"):
        del plain[name]
    plain["layers"] = [
        {name: item[name] for name in ("layer", "hops", "residual", "has_weight_0")} for item in plain["layers"]
    ]
    path = tmp_path / "one.safetensors"
    path.write_bytes(safetensors.torch.save(pruned.state_dict(), {"adagpr": json.dumps(plain)}))
    graph = make_graph()
    assert torch.equal(load_exported(path)(graph.x, operator(graph)), pruned(graph.x, operator(graph)))


def changed(exported_: Exported, **values: object) -> bytes:
    """A file whose description is another."""
    plain = {**json.loads(description(exported_)), **values}
    return safetensors.torch.save(exported_.state_dict(), {"adagpr": json.dumps(plain)})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (lambda item: to_safetensors(item)[:-5], "is damaged or no safetensors file"),
        (lambda item: b"", "is damaged or no safetensors file"),
        (lambda item: safetensors.torch.save(item.state_dict()), "was not written by adagpr export"),
        (lambda item: safetensors.torch.save({}, {"adagpr": "{"}), "the description of the network is wrong at"),
        (lambda item: changed(item, version=2), "wrong at version"),
        (lambda item: changed(item, layers=[{}]), "wrong at layers.0.layer"),
        (lambda item: changed(item, surprise=1), "wrong at surprise"),
        (lambda item: changed(item, hidden_channels=9), "'bias_in' should be 9, and is 8."),
        (lambda item: changed(item, layers=[]), "'layers.0.weight' should be missing, and is 8 x 8."),
        (lambda item: changed(item, needs_graph=False), "contradicts itself"),
        (lambda item: changed(item, layers=BACKWARD), "'layers.0.weight_backward' should be 8 x 8, and is missing."),
        (lambda item: changed(item, class_names=["a"]), "1 class names for 3 classes."),
        (lambda item: safetensors.torch.save(item.half().state_dict(), {"adagpr": description(item)}), "all float32"),
    ],
)
def test_a_damaged_file_is_named(content: Callable[[Exported], bytes], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    path.write_bytes(content(exported(network(MIXED, torch.float32))))
    with pytest.raises(InputError, match=sentence):
        load_exported(path)


@pytest.mark.parametrize("weight_maps", ["shared", "separate", "separate-scaled"])
@pytest.mark.parametrize(("num_nodes", "direction"), [(30, "directed"), (47, "symmetric")])
def test_onnxruntime_says_the_same(
    weight_maps: str, num_nodes: int, direction: Direction, make_graph: MakeGraph
) -> None:
    model = network(MIXED, torch.float32, weight_maps=weight_maps)
    content = to_onnx(exported(model, direction))
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    graph = make_graph(num_nodes, seed=num_nodes)
    found = in_onnxruntime(content, {"x": dense(graph), **edge_inputs(graph, direction)})
    np.testing.assert_allclose(found, logits(model, graph, direction).numpy(), rtol=0, atol=1e-5)


def test_many_edges_into_one_node_are_added_on_several_threads(make_graph: MakeGraph) -> None:
    graph = make_graph(1000, seed=1)
    model = network([[0.0, 1.0], [0.5, 0.5]], torch.float32)
    expected = logits(model, graph).numpy()
    content, inputs = to_onnx(exported(model)), {"x": dense(graph), **edge_inputs(graph)}
    for _ in range(3):
        np.testing.assert_allclose(in_onnxruntime(content, inputs, num_threads=4), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_nodes", [1, 5])
def test_onnx_runs_without_any_edge(num_nodes: int) -> None:
    model = network(MIXED, torch.float32)
    x = np.ones((num_nodes, 12), dtype=np.float32)
    none = {"edge_source": np.empty(0, np.int64), "edge_target": np.empty(0, np.int64)}
    found = in_onnxruntime(to_onnx(exported(model)), {"x": x, **none, "edge_weight": np.empty(0, np.float32)})
    empty = csr_tensor(sp.csr_array((num_nodes, num_nodes)))
    np.testing.assert_allclose(found, exported(model)(torch.from_numpy(x), empty).numpy(), rtol=0, atol=1e-5)


def test_onnx_without_hops_takes_features_alone(make_graph: MakeGraph) -> None:
    model = network(HOP_0, torch.float32)
    content = to_onnx(exported(model))
    assert {node.op_type for node in onnx.load_from_string(content).graph.node} == {
        "Gemm",
        "MatMul",
        "Relu",
        "Mul",
        "Add",
    }
    graph = make_graph(41)
    np.testing.assert_allclose(
        in_onnxruntime(content, {"x": dense(graph)}), logits(model, graph).numpy(), rtol=0, atol=1e-5
    )


def test_onnx_takes_a_product_for_every_hop_that_is_left() -> None:
    loaded = onnx.load_from_string(to_onnx(exported(network(MIXED, torch.float32))))
    assert sum(node.op_type == "ScatterElements" for node in loaded.graph.node) == 2 + 0 + 2 + 2 + 3


def test_equal_networks_give_equal_bytes() -> None:
    first, second = (exported(network(MIXED, torch.float32)) for _ in range(2))
    assert to_onnx(first) == to_onnx(second)
    assert to_safetensors(first) == to_safetensors(second)


def test_onnx_carries_the_description() -> None:
    pruned = exported(network(MIXED, torch.float32), "symmetric", False)
    (prop,) = onnx.load_from_string(to_onnx(pruned)).metadata_props
    assert (prop.key, json.loads(prop.value)["direction"]) == ("adagpr", "symmetric")


def test_without_onnx_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"^Exporting to ONNX needs the extra: pip install 'adagpr\[onnx\]'\.$"):
        to_onnx(exported(network(MIXED, torch.float32)))


RUNNER = """
import sys
import torch
from safetensors.torch import load_file, save_file

program = torch.export.load(sys.argv[1]).module()
for name in sys.argv[2:]:
    inputs = load_file(name)
    names = [key for key in ("x", "edge_source", "edge_target", "edge_weight") if key in inputs]
    save_file({"logits": program(*(inputs[key] for key in names))}, name)
assert not any(name.split(".")[0] == "adagpr" for name in sys.modules)
"""


def in_torch(content: bytes, inputs: list[dict[str, np.ndarray]], folder: Path) -> list[torch.Tensor]:
    """The program's logits, computed in a process that knows nothing of this package."""
    (folder / "one.pt2").write_bytes(content)
    for number, item in enumerate(inputs):
        tensors = {name: torch.from_numpy(array) for name, array in item.items()}
        safetensors.torch.save_file(tensors, folder / f"{number}.safetensors")
    names = [f"{number}.safetensors" for number in range(len(inputs))]
    subprocess.run([sys.executable, "-c", RUNNER, "one.pt2", *names], cwd=folder, check=True)
    return [safetensors.torch.load_file(folder / name)["logits"] for name in names]


def test_a_torch_program_runs_without_this_package(make_graph: MakeGraph, tmp_path: Path) -> None:
    pruned = exported(network(MIXED, torch.float32, weight_maps="separate"))
    graphs = [make_graph(30), make_graph(47, seed=5)]
    one = {"edge_source": np.zeros(1, np.int64), "edge_target": np.zeros(1, np.int64), "edge_weight": np.ones(1, "f4")}
    none = {name: array[:0] for name, array in one.items()}
    inputs = [{"x": dense(graph), **edge_inputs(graph)} for graph in graphs]
    inputs += [{"x": dense(graphs[0])[:1], **one}, {"x": dense(graphs[0])[:4], **none}]
    operators = [operator(graph).matrix for graph in graphs]
    operators += [csr_tensor(sp.eye_array(1, format="csr")), csr_tensor(sp.csr_array((4, 4)))]
    found = in_torch(to_torch(pruned), inputs, tmp_path)
    for item, matrix, given in zip(found, operators, inputs, strict=True):
        torch.testing.assert_close(item, pruned(torch.from_numpy(given["x"]), matrix), rtol=0, atol=1e-5)


def test_a_torch_program_without_hops_takes_features_alone(make_graph: MakeGraph, tmp_path: Path) -> None:
    model = network(HOP_0, torch.float32)
    graph = make_graph()
    inputs = [{"x": dense(graph)}, {"x": dense(graph)[:1]}, {"x": np.repeat(dense(graph), 3, axis=0)}]
    all_nodes, one_node, many = in_torch(to_torch(exported(model)), inputs, tmp_path)
    torch.testing.assert_close(all_nodes, logits(model, graph), rtol=0, atol=1e-5)
    torch.testing.assert_close(one_node, all_nodes[:1], rtol=0, atol=1e-5)
    torch.testing.assert_close(many[::3], all_nodes, rtol=0, atol=1e-5)


def test_a_torch_program_holds_no_pickle(tmp_path: Path) -> None:
    (tmp_path / "one.pt2").write_bytes(to_torch(exported(network(MIXED, torch.float32))))
    with zipfile.ZipFile(tmp_path / "one.pt2") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    assert all(not value.startswith((b"PK", b"\x80\x02")) for value in content.values())
    (about,) = (value for name, value in content.items() if name.endswith("adagpr.json"))
    assert json.loads(about)["needs_graph"] is True
