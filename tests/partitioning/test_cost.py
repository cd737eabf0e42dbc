"""The cost model counts what the code does: operations, bytes in memory and on disk, rows at borders."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from benchmarks import cost
from benchmarks.cost import Operations, Shape, Speeds
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adagpr.benchmarking import Recorder, rmat
from adagpr.data.splits import random_split
from adagpr.graph import Graph
from adagpr.nn import AdaGPR
from adagpr.ops import SparseFeatures, buffer_pool, buffers, features, operator, watch_kernels
from adagpr.partitioning import (
    Group,
    HaloExchange,
    exchanged_operator,
    join,
    partition_graph,
    parts_of_rank,
    stored_operator,
)
from adagpr.training import State, TrainingConfig, TrainingData, training_data
from adagpr.training.partition_strategies import Batches

CHANNELS, LAYERS, COEFFS = 8, 3, 4
CONFIG = TrainingConfig()
WAYS = [(False, 4), (True, 4), (False, 2), (True, 2)]
MakeGraph = Callable[..., Graph]


def model_of(graph: Graph, shape: Shape) -> AdaGPR:
    found = AdaGPR(graph.num_features, CHANNELS, graph.num_classes, LAYERS, COEFFS, projection="softmax")
    found.seed(0)
    found.recompute = shape.recompute
    found.saved_dtype = torch.bfloat16 if shape.kept_size == 2 else None
    return found


def shape_of(graph: Graph, recompute: bool = False, kept_size: int = 4) -> Shape:
    num_values = graph.x.nnz if isinstance(graph.x, sp.csr_array) else None
    num_entries = graph.num_edges - int(np.count_nonzero(graph.adj.diagonal()))
    sizes = (graph.num_nodes, num_entries, graph.num_features, graph.num_classes, CHANNELS, LAYERS)
    num_train = len(random_split(graph.y).train)
    return Shape(*sizes, LAYERS * (COEFFS - 1), num_values, graph.is_symmetric, recompute, kept_size, num_train)


def training(graph: Graph, shape: Shape) -> tuple[State, TrainingData]:
    split = random_split(graph.y)
    inputs = TrainingData(features(graph.x), operator(graph), graph.y, split.train, split.val)
    return State(model_of(graph, shape), CONFIG), inputs


def steps_of(state: State, inputs: TrainingData) -> dict[str, Callable[[], Any]]:
    return {"training": lambda: inputs.step(state), "evaluation": lambda: inputs.measure(state.model)}


def plain_graph(num_nodes: int = 400) -> Graph:
    return rmat(num_nodes, average_degree=6, num_features=12, num_classes=3)


def bytes_of(*tensors: Tensor) -> int:
    parts = [
        [item.values(), item.col_indices(), item.crow_indices()] if item.is_sparse_csr else [item] for item in tensors
    ]
    return sum(part.nbytes for found in parts for part in found)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_multiplications_are_those_that_ran(make_graph: MakeGraph, sparse: bool, recompute: bool) -> None:
    graph = make_graph(sparse=sparse)
    shape = shape_of(graph, recompute)
    assert (shape.num_values is not None) == sparse
    recorder = Recorder()
    recorder.record(steps_of(*training(graph, shape)))
    ran = {"sparse": 0, "dense": 0}
    for item in recorder.found.values():
        ran[item.kind] += item.counts.total() * item.multiplications
    work = cost.operations(shape)
    assert ran == {"sparse": work.sparse, "dense": work.dense}


class Touched(TorchDispatchMode):
    """Counts the elements that operations other than products read and write."""

    products = ("mm", "addmm", "addmm_")
    views = (
        "view",
        "t",
        "transpose",
        "expand",
        "detach",
        "select",
        "slice",
        "split",
        "unsqueeze",
        "unbind",
        "diagonal",
    )
    of_csr = ("values", "crow_indices", "col_indices")
    written_only = ("copy_", "zeros_like", "new_zeros", "zero_")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with self:
            result = func.decompose(*args, **(kwargs or {}))
        if result is not NotImplemented:
            return result
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in (*self.products, *self.views, *self.of_csr) and "empty" not in name:
            read = args[1:] if name in self.written_only else args
            found = [
                item for item in tree_leaves((read, result)) if isinstance(item, Tensor) and item.is_floating_point()
            ]
            self.num_elements += sum(item.numel() for item in found)
        return result


@pytest.mark.parametrize(("recompute", "kept_size"), WAYS)
def test_elements_are_those_that_other_operations_read_and_write(recompute: bool, kept_size: int) -> None:
    graph = plain_graph(4000)
    shape = shape_of(graph, recompute, kept_size)
    steps = steps_of(*training(graph, shape)).values()
    activated = 0

    def around(name: str, arguments: dict[str, Any], run: Callable[[], None]) -> None:
        nonlocal activated
        activated += 2 * arguments["size"] if name in ("drop", "relu_drop") else 0
        run()

    with Touched() as touched, watch_kernels(around):
        _ = [step() for step in steps]
    # Those of the rows that the loss is made of are left out, with all that does not grow with the graph.
    assert touched.num_elements + activated == pytest.approx(cost.operations(shape).elements, rel=0.04)


@pytest.mark.parametrize("directed", [False, True])
def test_the_operator_takes_the_bytes_of_its_tensors(make_graph: MakeGraph, directed: bool) -> None:
    graph = make_graph(directed=directed)
    op = operator(graph)
    stored = [op.matrix] if op.is_symmetric else [op.matrix, op.transpose]
    assert cost.memory(shape_of(graph))["operator"] == bytes_of(*stored)


def test_indices_grow_once_there_are_too_many_entries() -> None:
    small, large = (cost.memory(Shape(1, count - 1, 1, 2))["operator"] for count in (2**31 - 1, 2**31))
    assert large - small > 2**33


@pytest.mark.parametrize("sparse", [False, True])
def test_features_take_the_bytes_of_their_tensors(make_graph: MakeGraph, sparse: bool) -> None:
    graph = make_graph(sparse=sparse)
    x = features(graph.x)
    stored = [x.matrix, x.transpose, x.order] if isinstance(x, SparseFeatures) else [x]
    assert cost.memory(shape_of(graph))["features"] == bytes_of(*stored) + bytes_of(graph.y)


@pytest.mark.parametrize(("recompute", "kept_size"), WAYS)
def test_what_layers_keep_is_what_autograd_saves(recompute: bool, kept_size: int) -> None:
    graph = plain_graph()
    shape = shape_of(graph, recompute, kept_size)
    state, inputs = training(graph, shape)
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.shape == (graph.num_nodes, CHANNELS):
            saved[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = state.model.train()(inputs.x, inputs.structure)
    assert logits.requires_grad
    # The first hidden matrix and what the last map reads are working matrices.
    assert sum(saved.values()) == cost.memory(shape)["kept"] + 2 * shape.matrix


@pytest.mark.parametrize(("recompute", "kept_size"), WAYS)
def test_working_matrices_are_those_that_are_used_again(
    recompute: bool, kept_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = plain_graph()
    shape = shape_of(graph, recompute, kept_size)
    state, inputs = training(graph, shape)
    monkeypatch.setattr(buffers, "_LARGE", 1)
    with buffer_pool():
        _ = [step() for step in steps_of(state, inputs).values()]
        pool = sum(item.nbytes() for item in buffers._kept or [])
    found, selected = cost.memory(shape), 4 * len(inputs.train) * shape.channels
    # The pool also has the rows that the loss is made of and their gradient, and keeps one matrix from step to step.
    assert pool == found["kept"] + found["working"] + shape.matrix + 2 * selected


def test_a_large_graph_takes_the_bytes_of_its_reordered_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = plain_graph()
    assert cost.memory(shape_of(graph))["order"] == 0
    monkeypatch.setattr(import_module("adagpr.ops.operator"), "_LARGE", 1)
    inputs = training_data(graph, random_split(graph.y), CONFIG, model_of(graph, shape_of(graph)))
    assert isinstance(inputs.x, Tensor)
    assert inputs.order is not None
    assert cost.memory(shape_of(graph))["order"] == bytes_of(inputs.x, inputs.y, inputs.order)


def test_parameters_are_those_of_the_model() -> None:
    graph = plain_graph()
    model = model_of(graph, shape_of(graph))
    assert cost.num_parameters(shape_of(graph)) == sum(parameter.numel() for parameter in model.parameters())


def test_processes_hold_the_bytes_of_their_operators(tmp_path: Path) -> None:
    graph, size = plain_graph(), 3
    parts = partition_graph(graph, random_split(graph.y), 6, tmp_path / "parts")
    border = HaloExchange(Group(), torch.empty(0, dtype=torch.int64), [0], [0])
    held = 0
    for rank in range(size):
        op = exchanged_operator(join(parts, parts_of_rank(6, rank, size)), border, True, torch.float32)
        held += bytes_of(op.matrix, op.transpose, op.outer, op.outer_transpose)
    found = cost.shared_memory(shape_of(graph), size, cost.border_rows(parts, size))
    assert size * found["operator"] == pytest.approx(held, rel=1e-3)


def test_border_rows_are_those_of_a_dense_count(make_graph: MakeGraph, tmp_path: Path) -> None:
    graph, size = make_graph(num_nodes=60), 2
    parts = partition_graph(graph, random_split(graph.y), 5, tmp_path / "parts")
    rank = np.empty(graph.num_nodes, dtype=int)
    for number in range(size):
        for part in parts_of_rank(5, number, size):
            rank[parts[part].nodes()["position"].to_numpy()] = number
    dense = graph.adj.toarray() != 0
    read = [(dense[rank == number].any(axis=0) & (rank != number)).sum() for number in range(size)]
    assert cost.border_rows(parts, size) == sum(read)


def test_rows_expected_at_a_random_border_are_found_there() -> None:
    rng, num_nodes, size = np.random.default_rng(0), 6000, 4
    ring = sp.diags_array([1.0] * 4, offsets=[1, 2, 3, 4], shape=(num_nodes, num_nodes), format="csr")
    order = rng.permutation(num_nodes)
    adj = sp.coo_array((ring + ring.T)[order][:, order])
    rank = rng.integers(size, size=num_nodes)
    readers, nodes = rank[adj.coords[0]], adj.coords[1]
    is_cut = readers != rank[nodes]
    rows = len(np.unique(np.stack([readers, nodes])[:, is_cut], axis=1).T)
    shape = Shape(num_nodes, adj.nnz, 1, 2)
    assert cost.expected_border_rows(shape, size, is_cut.mean()) == pytest.approx(rows, rel=0.02)
    assert cost.expected_border_rows(shape, 1, 0.0) == 0.0


def test_parts_and_normalised_rows_take_the_bytes_of_their_files(tmp_path: Path) -> None:
    graph = plain_graph(4000)
    parts = partition_graph(graph, random_split(graph.y), 4, tmp_path / "parts")
    halo = sum(part.num_halo for part in parts.manifest.parts)
    found = cost.disk_space(shape_of(graph), halo)
    files = sum(known["bytes"] for part in parts.manifest.parts for known in part.files.values())
    assert found["parts"] == pytest.approx(files, rel=0.03)
    with stored_operator(parts, True, tmp_path):
        rows = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors") if "rows" in path.parent.name)
    assert found["normalised rows"] == pytest.approx(rows, rel=0.03)


def test_the_evaluation_on_disk_has_so_many_matrices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = plain_graph()
    shape = shape_of(graph)
    parts = partition_graph(graph, random_split(graph.y), 4, tmp_path / "parts")
    monkeypatch.setattr(buffers, "_LARGE", 1)
    with buffer_pool(), stored_operator(parts, True, tmp_path) as stored:
        for _ in Batches(parts, 1, stored, CONFIG).logits_of_parts(model_of(graph, shape)):
            kept = [item.nbytes() for item in buffers._kept or []]
    logits = 4 * graph.num_nodes * graph.num_classes
    assert sum(size for size in kept if size == shape.matrix) + logits == cost.disk_space(shape, 0)["matrices"]


def test_seconds_are_counts_times_speeds() -> None:
    work, speeds = Operations(10, 100, 1000), Speeds(1.0, 3.0, 0.5, 0.25)
    assert cost.seconds(work, speeds) == 30 + 50 + 250
    assert cost.seconds(work, speeds, missing=0.5) == 20 + 50 + 250


def test_a_cache_of_all_rows_misses_none() -> None:
    reads = np.array([5, 1, 3, 1])
    assert [cost.missing_share(reads, count) for count in (0, 1, 4)] == [1.0, 0.5, 0.0]


def test_gradients_go_twice_around_a_ring() -> None:
    shape = shape_of(plain_graph())
    assert cost.gradient_bytes(shape, 1) == 0
    assert cost.gradient_bytes(shape, 5) == 8 * 4 * cost.num_parameters(shape)


def test_a_batch_needs_less_than_the_whole_graph() -> None:
    shape = Shape(1_000_000, 10_000_000, 64, 8)
    assert sum(cost.batch_memory(shape, 10).values()) < sum(cost.memory(shape).values()) / 5
