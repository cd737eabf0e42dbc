from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.ops import operator

Direction = Literal["directed", "symmetric"]


def dense_oracle(adj: np.ndarray, direction: Direction, self_loops: bool) -> np.ndarray:
    weights = np.maximum(adj, adj.T) if direction == "symmetric" else adj
    weights = weights + np.eye(len(adj)) * self_loops
    degree = weights.sum(1)
    scale = np.array([1 / np.sqrt(d) if d > 0 else 0.0 for d in degree])
    return np.asarray(np.diag(scale) @ weights @ np.diag(scale))


@pytest.mark.parametrize("direction", ["directed", "symmetric"])
@pytest.mark.parametrize("self_loops", [True, False])
def test_operator_equals_the_dense_formula(
    make_graph: Callable[..., Graph], direction: Direction, self_loops: bool
) -> None:
    graph = make_graph()
    expected = dense_oracle(graph.adj.toarray(), direction, self_loops)
    op = operator(graph, direction, self_loops, torch.float64)
    np.testing.assert_allclose(op.matrix.to_dense().numpy(), expected, atol=1e-14)
    np.testing.assert_allclose(op.transpose.to_dense().numpy(), expected.T, atol=1e-14)


def test_symmetric_operator_shares_its_transpose(make_graph: Callable[..., Graph]) -> None:
    assert operator(make_graph(directed=False)).is_symmetric
    assert operator(make_graph(directed=True), "symmetric").is_symmetric
    assert not operator(make_graph(directed=True)).is_symmetric


def test_without_edges_the_operator_is_the_identity() -> None:
    graph = from_scipy(sp.csr_array((4, 4)), np.eye(4), [0, 1, 0, 1])
    assert torch.equal(operator(graph).matrix.to_dense(), torch.eye(4))
    assert operator(graph, self_loops=False).matrix.to_dense().abs().sum() == 0


def test_isolated_node_keeps_itself_and_without_loops_becomes_zero() -> None:
    graph = from_scipy([[0, 1, 0], [1, 0, 0], [0, 0, 0]], np.eye(3), [0, 1, 0])
    assert operator(graph).matrix.to_dense()[2].tolist() == [0, 0, 1]
    assert operator(graph, self_loops=False).matrix.to_dense()[2].tolist() == [0, 0, 0]


def test_self_loop_of_the_graph_is_added_to() -> None:
    graph = from_scipy([[1, 1], [1, 0]], np.eye(2), [0, 1])
    dense = operator(graph, dtype=torch.float64).matrix.to_dense()
    assert dense[0, 0].item() == pytest.approx(2 / 3)


def test_operator_keeps_its_form_in_another_precision(make_graph: Callable[..., Graph]) -> None:
    op = operator(make_graph(directed=False)).to(torch.float64)
    assert op.is_symmetric
    assert op.matrix.dtype == torch.float64


def test_indices_are_32_bit_so_that_products_reach_mkl(make_graph: Callable[..., Graph]) -> None:
    assert operator(make_graph()).matrix.crow_indices().dtype == torch.int32


def test_negative_weight_is_refused() -> None:
    with pytest.raises(InputError, match="must not be negative, got -1"):
        from_scipy([[0, -1], [1, 0]], np.eye(2), [0, 1])


def test_unknown_direction_is_refused(make_graph: Callable[..., Graph]) -> None:
    with pytest.raises(InputError, match="direction must be 'directed' or 'symmetric'"):
        operator(make_graph(), "both")  # type: ignore[arg-type]
