from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.errors import InputError
from adagpr.graph import Graph, Split, compact_features, from_edge_index, from_scipy


def test_edge_index_gives_sources_as_rows_and_counts_edges_once() -> None:
    graph = from_edge_index([[0, 0, 2], [1, 1, 0]], np.eye(3), [0, 1, 0])
    assert graph.adj.toarray().tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]


def test_of_repeated_edges_the_largest_weight_stays() -> None:
    graph = from_edge_index(torch.tensor([[0, 0], [1, 1]]), np.eye(2), [0, 1], edge_weight=[2.0, 5.0])
    assert graph.adj.toarray().tolist() == [[0, 5], [0, 0]]


def test_features_are_kept_sparse_only_where_that_is_smaller() -> None:
    assert isinstance(compact_features(np.eye(10)), sp.csr_array)
    assert isinstance(compact_features(sp.eye_array(10)), sp.csr_array)
    assert isinstance(compact_features(np.ones((3, 3))), torch.Tensor)
    assert isinstance(compact_features(sp.csr_array(np.ones((3, 3)))), torch.Tensor)


def test_every_part_that_training_reads_changes_the_fingerprint() -> None:
    def make(**changes: Any) -> str:
        given = {"adj": [[0, 1], [1, 0]], "x": sp.eye_array(2, 9), "y": [0, 1], "class_names": ["a", "b"], **changes}
        return from_scipy(given.pop("adj"), given.pop("x"), given.pop("y"), **given).fingerprint

    prints = [
        make(),
        make(adj=[[0, 2], [1, 0]]),
        make(x=sp.eye_array(2, 10)),
        make(y=[1, 0]),
        make(class_names=["a", "b", "c"]),
        make(class_names=["a", "c"]),
        make(node_ids=["u", "v"]),
    ]
    assert len(set(prints)) == len(prints)
    assert make() == prints[0] == make(node_ids=[0, 1])


def test_symmetry_looks_at_weights_too() -> None:
    assert from_scipy([[0, 2], [2, 0]], np.eye(2), [0, 1]).is_symmetric
    assert not from_scipy([[0, 2], [1, 0]], np.eye(2), [0, 1]).is_symmetric


BAD: list[tuple[dict[str, Any], str]] = [
    ({"adj": np.zeros((2, 3))}, "adj must be square, got 2 x 3"),
    ({"adj": np.zeros((0, 0)), "x": np.zeros((0, 1)), "y": [0, 1]}, "there are no nodes"),
    ({"adj": [[0, np.inf], [0, 0]]}, "adj holds weights that are NaN or infinite"),
    ({"adj": [[0, -2], [0, 0]]}, "edge weights must not be negative, got -2"),
    ({"adj": np.array([["a", "b"], ["c", "d"]])}, "adj must hold real numbers"),
    ({"x": np.zeros((3, 1))}, "x must have one row for each of 2 nodes"),
    ({"x": np.zeros((2, 0))}, "x has no feature columns"),
    ({"x": [[1.0], [np.nan]]}, "x holds 1 values that are NaN or infinite, the first in row 1"),
    ({"x": sp.csr_array(([np.inf], ([1], [3])), shape=(2, 9))}, "NaN or infinite, the first in row 1"),
    ({"x": [1.0, 2.0]}, "x must be a matrix"),
    ({"y": [-1, -1]}, "every label is missing"),
    ({"y": [1, 1]}, "every known label is 1"),
    ({"y": [0.5, 1.0]}, "y must be whole numbers"),
    ({"y": [0, 1, 0]}, "y must be 2 int64 values"),
    ({"class_names": ["a"]}, r"y must be in \[-1, 0\] for 1 classes"),
    ({"class_names": ["a", "a"]}, "class_names must differ"),
    ({"node_ids": [7, 7]}, "node_ids must differ"),
    ({"node_ids": [1]}, "node_ids must name 2 nodes, got 1"),
    ({"node_ids": np.array([1, "a"], dtype=object)}, "node_ids must be all whole numbers or all texts"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_a_graph_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    given = {"adj": [[0, 1], [1, 0]], "x": [[1.0], [2.0]], "y": [0, 1], **changes}
    with pytest.raises(InputError, match=message):
        from_scipy(given.pop("adj"), given.pop("x"), given.pop("y"), **given)


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        ([[0], [5]], "has the target 5, but the nodes are 0 to 1"),
        ([[-1], [0]], "has the source -1"),
        ([[0.5], [1.0]], "edge_index must be 2 x E integers"),
        ([0, 1], "edge_index must be 2 x E integers"),
    ],
)
def test_edges_that_cannot_be_are_refused(edge_index: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_edge_index(edge_index, np.eye(2), [0, 1])


def test_splits_that_cannot_be_are_refused() -> None:
    one, two, none = torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([], dtype=torch.int64)
    with pytest.raises(InputError, match="no train nodes"):
        Split(none, two, torch.tensor([3]))
    with pytest.raises(InputError, match="1 nodes are in more than one part or twice in one, the first of them node 1"):
        Split(one, torch.tensor([1]), two)
    with pytest.raises(InputError, match="positions must be int64"):
        Split(one.float(), two, two)


def test_a_split_may_leave_out_validation_and_test_nodes(make_graph: Callable[..., Graph]) -> None:
    none = torch.tensor([], dtype=torch.int64)
    Split(torch.tensor([0, 1]), none, none).check(make_graph())


def test_a_frozen_graph_cannot_be_changed() -> None:
    graph = Graph(torch.ones(2, 1), sp.csr_array((2, 2)), torch.tensor([0, 1]), ("a", "b"))
    with pytest.raises(AttributeError):
        graph.name = "other"  # type: ignore[misc]
