from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from adagpr.data import load
from adagpr.data.geom_gcn import graph_from_text, split_from_npz
from adagpr.errors import InputError

EDGES = b"node_id\tnode_id\n0\t1\n1\t1\n2\t0\n"
NODES = b"node_id\tfeature\tlabel\n0\t1,0,0\t1\n2\t0,1,1\t0\n1\t0,0,0\t1\n"


def test_edges_stay_directed_self_loops_stay_and_nodes_go_by_their_number() -> None:
    graph = graph_from_text(EDGES, NODES, "tiny")
    assert graph.adj.toarray().tolist() == [[0, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert isinstance(graph.x, sp.csr_array)
    assert graph.x.toarray().tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]
    assert graph.y.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        (b"a\tb\n0\t1\n", NODES, r"tiny: out1_graph_edges\.txt, line 1: expected the header"),
        (EDGES[:-1], NODES, "the last line is not complete"),
        (EDGES + b"1\n", NODES, r"edges\.txt, line 5: expected 2 whole numbers, got '1'"),
        (EDGES + b"1\t-2\n", NODES, r"line 5: expected 2 whole numbers, got '1\t-2'"),
        (EDGES + b"1\t3\n", NODES, r"edges\.txt: Edge 3 has the target 3, but the nodes are 0 to 2"),
        (EDGES, NODES + b"3\t0,1,0\n", r"label\.txt, line 5: expected 3 fields, got 2"),
        (EDGES, NODES + b"3\t0,2,0\t1\n", "line 5: features must be 0 or 1 between commas"),
        (EDGES, NODES + b"3\t0,1;0\t1\n", "line 5: features must be 0 or 1 between commas"),
        (EDGES, NODES + b"3\t0,1\t1\n", "expected each node once"),
        (EDGES, NODES + b"2\t0,1,0\t1\n", "expected each node once"),
        (EDGES, NODES + b"3\t0,1,0\tx\n", "line 5: expected 2 whole numbers"),
    ],
)
def test_a_wrong_line_is_named(edges: bytes, nodes: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        graph_from_text(edges, nodes, "tiny")


@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_masks_may_be_bool_or_bytes(dtype: type) -> None:
    buffer = io.BytesIO()
    eye: np.ndarray = np.eye(3).astype(dtype)
    np.savez(buffer, train_mask=eye[2], val_mask=eye[0], test_mask=eye[1])
    split = split_from_npz(buffer.getvalue(), "file", "geom-gcn/0")
    assert (split.train.tolist(), split.val.tolist(), split.test.tolist()) == ([2], [0], [1])


def test_a_broken_split_file_is_named() -> None:
    with pytest.raises(InputError, match="file: not a split file with train_mask, val_mask and test_mask"):
        split_from_npz(b"nothing", "file", "geom-gcn/0")


def test_one_split_equals_its_place_among_the_ten(benchmark_root: Path) -> None:
    _, ten = load("wisconsin", "geom-gcn", data_root=benchmark_root)
    _, (one,) = load("wisconsin", "geom-gcn/3", data_root=benchmark_root)
    assert [split.name for split in ten] == [f"geom-gcn/{i}" for i in range(10)]
    assert one.name == "geom-gcn/3"
    assert one.test.tolist() == ten[3].test.tolist()
