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
from adagpr.nn import ppnp
from adagpr.nn.appnp import APPNP
from adagpr.nn.ppnp import PPNP, Resolvent, pagerank_solve
from adagpr.ops import Operator, features, operator


def make(**arguments: Any) -> PPNP:
    model = PPNP(**{"in_channels": 12, "hidden_channels": 8, "out_channels": 3, **arguments})
    model.seed(0)
    return model


def logits(model: PPNP | APPNP, graph: Graph, dtype: torch.dtype = torch.float64) -> Tensor:
    structure = model.structure(graph, dtype=dtype)
    out: Tensor = model.to(dtype)(features(graph.x, dtype), structure)
    return out


def dense_pagerank(op: Operator, alpha: float) -> Tensor:
    matrix = op.matrix.to_dense()
    inverse: Tensor = torch.linalg.inv(torch.eye(len(matrix), dtype=matrix.dtype) - (1 - alpha) * matrix)
    return alpha * inverse


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0])
def test_the_solution_equals_the_dense_inverse(
    alpha: float, directed: bool, self_loops: bool, make_graph: Callable[..., Graph]
) -> None:
    op = operator(make_graph(directed=directed), self_loops=self_loops, dtype=torch.float64)
    h = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    resolvent = Resolvent.from_operator(op, alpha)
    torch.testing.assert_close(pagerank_solve(h, resolvent), dense_pagerank(op, alpha) @ h, rtol=1e-10, atol=1e-10)
    expected = dense_pagerank(op, alpha).T @ h
    torch.testing.assert_close(resolvent.product(h, transposed=True), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("directed", [True, False])
def test_gradients_pass_gradcheck(directed: bool, make_graph: Callable[..., Graph]) -> None:
    resolvent = Resolvent.from_operator(operator(make_graph(8, directed=directed), dtype=torch.float64), 0.2)
    h = torch.randn(8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda signal: pagerank_solve(signal, resolvent), [h])


@pytest.mark.parametrize("directed", [True, False])
def test_is_the_limit_of_appnp(directed: bool, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(directed=directed)
    model = make(alpha=0.2, dropout=0.0)
    approximate = APPNP(12, 8, 3, num_hops=200, alpha=0.2, dropout=0.0)
    approximate.load_state_dict(model.state_dict())
    torch.testing.assert_close(logits(model, graph), logits(approximate, graph), rtol=1e-10, atol=1e-10)


def test_single_precision_stays_single_and_close(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    single = logits(make(dropout=0.0), graph, torch.float32)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), logits(make(dropout=0.0), graph), rtol=1e-5, atol=1e-5)


def test_gradients_reach_every_parameter(make_graph: Callable[..., Graph]) -> None:
    model = make(dropout=0.0)
    logits(model, make_graph()).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    assert list(model.parameter_groups()) == ["first", "rest"]


def test_evaluates_in_inference_mode(make_graph: Callable[..., Graph]) -> None:
    model = make().double().eval()
    with torch.inference_mode():
        inside = logits(model, make_graph())
    assert torch.equal(inside, logits(model, make_graph()).detach())


def test_same_seed_gives_same_bits(make_graph: Callable[..., Graph]) -> None:
    assert torch.equal(logits(make(), make_graph()), logits(make(), make_graph()))


def test_without_edges_the_perceptron_remains() -> None:
    x = np.random.default_rng(0).normal(size=(6, 12))
    graph = from_scipy(sp.csr_array((6, 6)), x, [0, 1, 2, 0, 1, 2])
    model = make(dropout=0.0).double()
    first, second = model.linears
    expected = second(first(features(graph.x, torch.float64)).relu())
    torch.testing.assert_close(logits(model, graph), expected, rtol=1e-12, atol=1e-12)


def test_large_graphs_are_refused(make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppnp, "MAX_NODES", 29)
    with pytest.raises(InputError, match=r"PPNP: exact PageRank takes at most 29 nodes, got 30\. Use 'appnp'"):
        logits(make(), make_graph())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 0.0}, r"PPNP: alpha must be greater than 0, got 0\.0"),
        ({"alpha": 1.5}, r"PPNP: alpha must be less than or equal to 1, got 1\.5"),
        ({"dropout": 1.0}, r"PPNP: dropout must be less than 1, got 1\.0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**arguments)
