"""A graph in memory cut into parts: nothing is lost, nothing is added, and the same call goes on or opens."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.data import load
from adagpr.errors import BusyError, InputError
from adagpr.files import folder_lock
from adagpr.graph import Graph, Split, from_scipy
from adagpr.partitioning import Part, Parts, open_parts, partition_graph
from adagpr.partitioning.parts import Method, PartInfo, Rows, write_part
from adagpr.training import describe_data
from tests.ages import are_old, make_old

MakeGraph = Callable[..., Graph]


def split_of(graph: Graph) -> Split:
    nodes = torch.arange(graph.num_nodes)
    return Split(nodes[:10], nodes[10:15], nodes[20:])


def each(parts: Parts) -> list[Part]:
    return [parts[number] for number in range(len(parts))]


def reassembled(parts: Parts) -> tuple[sp.csr_array, np.ndarray, np.ndarray, np.ndarray, list[object]]:
    """Adjacency, features, classes, roles and ids of all parts in the order of the graph."""
    blocks = [part.rows() for part in each(parts)]
    order = np.concatenate([block.position for block in blocks])
    sources, targets, weights = [], [], []
    for part, block in zip(each(parts), blocks, strict=True):
        first, last = parts.manifest.offsets[part.number : part.number + 2]
        entries = block.adj.tocoo()
        numbers = np.concatenate([np.arange(first, last), block.halo])
        sources.append(order[first + entries.coords[0]])
        targets.append(order[numbers[entries.coords[1]]])
        weights.append(entries.data)
    place = np.argsort(order)
    entries = (np.concatenate(weights), (np.concatenate(sources), np.concatenate(targets)))
    x = np.concatenate([b.x.toarray() if isinstance(b.x, sp.csr_array) else b.x.numpy() for b in blocks])[place]
    y = np.concatenate([block.y.numpy() for block in blocks])[place]
    role = np.concatenate([block.role for block in blocks])[place]
    ids = np.concatenate([block.node_ids.to_pylist() for block in blocks]).tolist()
    return sp.csr_array(entries, shape=(len(order),) * 2), x, y, role, [ids[number] for number in place]


def assert_same(parts: Parts, graph: Graph, split: Split) -> None:
    adj, x, y, role, ids = reassembled(parts)
    assert abs(adj - graph.adj).nnz == 0
    assert adj.nnz == graph.num_edges == parts.manifest.num_edges
    assert np.array_equal(x, graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x.numpy())
    assert np.array_equal(y, graph.y.numpy())
    assert [np.flatnonzero(role == number).tolist() for number in (1, 2, 3)] == [
        sorted(index.tolist()) for index in (split.train, split.val, split.test)
    ]
    assert ids == graph.node_ids.tolist()


@pytest.mark.parametrize("method", ["metis", "greedy"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_all_parts_together_are_the_graph(
    tmp_path: Path, make_graph: MakeGraph, method: Method, sparse: bool, directed: bool
) -> None:
    graph = make_graph(directed=directed, sparse=sparse)
    parts = partition_graph(graph, split_of(graph), 4, tmp_path / "parts", method)
    assert_same(parts, graph, split_of(graph))
    assert parts.manifest.is_symmetric == (not directed)
    assert isinstance(parts[0].rows().x, sp.csr_array) == sparse


def test_texts_as_ids_and_nodes_without_edges_are_kept(tmp_path: Path) -> None:
    adj = sp.csr_array(np.diag(np.ones(19), 1) * (np.arange(20) < 12)[:, None])
    names = [f"node {number}é" for number in range(20)]
    graph = from_scipy(adj, np.eye(20, 3) + 1, np.arange(20) % 2, node_ids=names)
    split = Split(torch.arange(4), torch.arange(4, 8), torch.arange(8, 20))
    assert_same(partition_graph(graph, split, 5, tmp_path / "parts"), graph, split)


@pytest.mark.parametrize("method", ["metis", "greedy"])
def test_one_part_is_the_graph_itself(tmp_path: Path, make_graph: MakeGraph, method: Method) -> None:
    graph = make_graph()
    rows = partition_graph(graph, split_of(graph), 1, tmp_path / "parts", method)[0].rows()
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(rows.adj, name), getattr(graph.adj, name))
    assert rows.adj.dtype == graph.adj.dtype
    assert torch.equal(rows.x, graph.x)
    assert torch.equal(rows.y, graph.y)
    assert rows.position.tolist() == list(range(graph.num_nodes))
    assert len(rows.halo) == 0


def test_halo_and_degrees_are_those_of_the_dense_matrix(tmp_path: Path, make_graph: MakeGraph) -> None:
    graph = make_graph()
    parts = partition_graph(graph, split_of(graph), 3, tmp_path / "parts")
    order = np.concatenate([part.rows().position for part in each(parts)])
    dense = graph.adj.toarray()[order][:, order]
    for part in each(parts):
        first, last = parts.manifest.offsets[part.number : part.number + 2]
        rows, elsewhere = part.rows(), dense[first:last].copy()
        elsewhere[:, first:last] = 0
        assert np.array_equal(rows.halo, np.flatnonzero(elsewhere.any(axis=0)))
        numbers = np.concatenate([np.arange(first, last), rows.halo])
        assert np.array_equal(rows.adj.toarray(), dense[first:last][:, numbers])
        assert np.allclose(rows.degree, dense.sum(axis=1)[numbers], rtol=1e-14)
        assert part.info.num_cut == np.count_nonzero(elsewhere)


def test_within_a_part_nodes_keep_their_order_and_columns_ascend(tmp_path: Path, make_graph: MakeGraph) -> None:
    graph = make_graph(num_nodes=60)
    for part in each(partition_graph(graph, split_of(graph), 4, tmp_path / "parts")):
        rows = part.rows()
        assert (np.diff(rows.position) > 0).all()
        assert rows.adj.has_sorted_indices
        assert rows.adj.has_canonical_format


def test_the_manifest_has_the_sums_that_a_run_records(tmp_path: Path) -> None:
    graph, (split,) = load("csbm", seed=3)
    manifest = partition_graph(graph, split, 4, tmp_path / "parts").manifest
    data = describe_data(graph, split)
    assert (manifest.graph_sha256, manifest.split_sha256) == (data["graph_sha256"], data["split_sha256"])
    positions = [index.numpy() for index in (split.train, split.val, split.test)]
    content = b"".join(f"{len(index)}:".encode() + index.tobytes() for index in positions)
    assert manifest.split_sha256 == hashlib.sha256(content).hexdigest()
    assert (manifest.name, manifest.split, manifest.origin) == (graph.name, split.name, graph.origin)
    assert [manifest.num_train, manifest.num_val, manifest.num_test] == [len(index) for index in positions]
    assert manifest.num_nodes == 1000
    assert manifest.class_names == graph.class_names


def test_the_same_call_opens_what_is_complete(tmp_path: Path, make_graph: MakeGraph) -> None:
    graph = make_graph()
    first = partition_graph(graph, split_of(graph), 3, tmp_path)
    files = make_old(tmp_path.rglob("part-*/*"))
    assert partition_graph(graph, split_of(graph), 3, tmp_path).manifest == first.manifest
    assert are_old(files)
    assert sorted(tmp_path.rglob("part-*/*")) == sorted(files)
    assert len(files) == 9
    assert not (tmp_path / ".work").exists()


@pytest.mark.parametrize("change", ["parts", "method", "graph", "split"])
def test_another_partition_in_the_same_folder_is_refused(tmp_path: Path, make_graph: MakeGraph, change: str) -> None:
    graph = make_graph()
    partition_graph(graph, split_of(graph), 3, tmp_path)
    other = make_graph(seed=1) if change == "graph" else graph
    split = replace(split_of(graph), name="another") if change == "split" else split_of(graph)
    with pytest.raises(InputError, match="holds a partition of other data or arguments"):
        partition_graph(
            other, split, 2 if change == "parts" else 3, tmp_path, "greedy" if change == "method" else "metis"
        )


def test_an_interrupted_call_goes_on_and_another_is_refused(
    tmp_path: Path, make_graph: MakeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_graph()
    whole = partition_graph(graph, split_of(graph), 4, tmp_path / "whole")

    def stop_at_two(folder: Path, number: int, rows: Rows, key: str) -> PartInfo:
        if number == 2:
            raise KeyboardInterrupt
        return write_part(folder, number, rows, key)

    monkeypatch.setattr("adagpr.partitioning.cut.write_part", stop_at_two)
    with pytest.raises(KeyboardInterrupt):
        partition_graph(graph, split_of(graph), 4, tmp_path / "stopped")
    with pytest.raises(InputError, match="no complete partition"):
        open_parts(tmp_path / "stopped")
    with pytest.raises(InputError, match="a partition under way of other data"):
        partition_graph(graph, split_of(graph), 5, tmp_path / "stopped")
    first = make_old([tmp_path / "stopped" / "part-00000" / "nodes.arrow"])
    monkeypatch.undo()
    assert partition_graph(graph, split_of(graph), 4, tmp_path / "stopped").manifest == whole.manifest
    assert are_old(first)


def test_a_folder_in_use_is_refused(tmp_path: Path, make_graph: MakeGraph) -> None:
    graph = make_graph()
    with folder_lock(tmp_path), pytest.raises(BusyError, match="Another process"):
        partition_graph(graph, split_of(graph), 3, tmp_path)


def test_a_split_of_another_graph_is_refused(tmp_path: Path, make_graph: MakeGraph) -> None:
    with pytest.raises(InputError, match="but the graph has 30 nodes"):
        partition_graph(make_graph(), split_of(make_graph(num_nodes=50)), 3, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
