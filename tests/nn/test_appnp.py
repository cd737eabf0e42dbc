from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.nn.appnp import APPNP, pagerank_coeffs
from adagpr.ops import Operator, features, operator


def make(**arguments: Any) -> APPNP:
    model = APPNP(**{"in_channels": 12, "hidden_channels": 8, "out_channels": 3, **arguments})
    model.seed(0)
    return model


def logits(model: APPNP, graph: Graph, dtype: torch.dtype = torch.float64) -> Tensor:
    structure = model.structure(graph, dtype=dtype)
    out: Tensor = model.to(dtype)(features(graph.x, dtype), structure)
    return out


def perceptron(model: APPNP, graph: Graph) -> Tensor:
    first, second = model.linears
    out: Tensor = second(first(features(graph.x, torch.float64)).relu())
    return out


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.7, 1.0])
def test_logits_equal_the_power_iteration(alpha: float, directed: bool, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(directed=directed)
    model = make(alpha=alpha, num_hops=4, dropout=0.0).double()
    matrix = operator(graph, dtype=torch.float64).matrix.to_dense()
    h = perceptron(model, graph)
    z = h
    for _ in range(4):
        z = (1 - alpha) * matrix @ z + alpha * h
    torch.testing.assert_close(logits(model, graph), z, rtol=1e-11, atol=1e-11)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("directed", [True, False])
def test_propagation_equals_appnp_of_torch_geometric(directed: bool, make_graph: Callable[..., Graph]) -> None:
    from torch_geometric.nn import APPNP as Theirs  # noqa: N811

    graph = make_graph(directed=directed)
    model = make(dropout=0.0).double()
    coo = operator(graph, dtype=torch.float64).matrix.to_dense().to_sparse_coo().coalesce()
    theirs = Theirs(K=10, alpha=0.1, normalize=False)
    # Messages flow from source to target there; row i of the operator reads column j here.
    expected = theirs(perceptron(model, graph), coo.indices().flip(0), coo.values())
    torch.testing.assert_close(logits(model, graph), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_coefficients_sum_to_one(alpha: float) -> None:
    coeffs = pagerank_coeffs(alpha, 10)
    assert len(coeffs) == 11
    assert coeffs.sum().item() == pytest.approx(1.0, abs=1e-15)


def test_coefficients_are_shown_as_one_layer() -> None:
    assert make(num_hops=2, alpha=0.5).coefficients().tolist() == [[0.5, 0.25, 0.25]]


def test_groups_separate_the_first_map_from_the_rest() -> None:
    groups = make(num_layers=3).parameter_groups()
    assert {name: [tuple(item.shape) for item in group] for name, group in groups.items()} == {
        "first": [(8, 12), (8,)],
        "rest": [(8, 8), (8,), (3, 8), (3,)],
    }
    assert list(make(num_layers=1).parameter_groups()) == ["first"]


def test_gradients_reach_every_parameter(make_graph: Callable[..., Graph]) -> None:
    model = make(dropout=0.0)
    logits(model, make_graph()).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_same_seed_gives_same_bits_with_dropped_edges(make_graph: Callable[..., Graph]) -> None:
    runs = [logits(make(drop_edge=0.5), make_graph()) for _ in range(2)]
    assert torch.equal(runs[0], runs[1])


def test_dropped_edges_are_drawn_anew_at_each_step_and_not_in_evaluation(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    model = make(dropout=0.0, drop_edge=0.5)
    assert not torch.equal(logits(model, graph), logits(model, graph))
    kept = make(dropout=0.0)
    torch.testing.assert_close(logits(model.eval(), graph), logits(kept, graph), rtol=0, atol=0)


@pytest.mark.parametrize("self_loops", [True, False])
def test_without_edges_only_the_node_itself_is_read(self_loops: bool) -> None:
    x = np.random.default_rng(0).normal(size=(6, 12))
    graph = from_scipy(sp.csr_array((6, 6)), x, [0, 1, 2, 0, 1, 2])
    model = make(dropout=0.0).double()
    op: Operator = operator(graph, self_loops=self_loops, dtype=torch.float64)
    # An empty operator leaves only hop 0, whose weight is alpha.
    share = 1.0 if self_loops else 0.1
    out = model(features(graph.x, torch.float64), op)
    torch.testing.assert_close(out, share * perceptron(model, graph), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 1.5}, "APPNP: alpha must be less than or equal to 1, got 1.5"),
        ({"num_hops": 0}, "APPNP: num_hops must be greater than or equal to 1, got 0"),
        ({"drop_edge": 1.0}, "APPNP: drop_edge must be less than 1, got 1.0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**arguments)


def test_arguments_are_kept_under_their_own_names() -> None:
    assert make(alpha=0.3).arguments["alpha"] == 0.3
    assert "num_hops=10, alpha=0.3" in repr(make(alpha=0.3))
