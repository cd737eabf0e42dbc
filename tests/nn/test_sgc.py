from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.nn.sgc import SGC
from adagpr.ops import SparseFeatures, features, operator


def make(seed: int = 0, **arguments: Any) -> SGC:
    model = SGC(**{"in_channels": 12, "hidden_channels": 8, "out_channels": 3, **arguments})
    model.seed(seed)
    return model.double()


def logits(model: SGC, graph: Graph) -> Tensor:
    structure = model.structure(graph, dtype=torch.float64)
    out: Tensor = model(features(graph.x, torch.float64), structure)
    return out


@pytest.mark.parametrize("num_hops", [0, 1, 2, 5])
@pytest.mark.parametrize("sparse", [True, False])
def test_logits_equal_the_dense_equation(num_hops: int, sparse: bool, make_graph: Callable[..., Graph]) -> None:
    graph, model = make_graph(sparse=sparse), make(num_hops=num_hops)
    power = torch.linalg.matrix_power(operator(graph, dtype=torch.float64).matrix.to_dense(), num_hops)
    x = torch.as_tensor(graph.x.toarray() if sparse else graph.x).double()  # type: ignore[union-attr]
    expected = power @ x @ model.lin.weight.t() + model.lin.bias
    torch.testing.assert_close(logits(model, graph), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("directed", [True, False])
def test_the_model_equals_sgconv_of_torch_geometric(directed: bool, make_graph: Callable[..., Graph]) -> None:
    from torch_geometric.nn import SGConv

    given = make_graph(directed=directed)
    # A self loop of the graph is replaced there and added to here.
    graph = from_scipy(given.adj.toarray() * (1 - np.eye(30)), given.x, given.y)
    ours, theirs = make(num_hops=3), SGConv(12, 3, K=3).double()
    theirs.lin.weight.data.copy_(ours.lin.weight.data)
    theirs.lin.bias.data.copy_(ours.lin.bias.data)
    adj = graph.adj.tocoo()
    # Messages flow from source to target there; row i of the operator reads column j here.
    edge_index = torch.as_tensor([adj.col.tolist(), adj.row.tolist()])
    x = torch.as_tensor(graph.x).double()
    expected = theirs(x, edge_index, torch.from_numpy(adj.data))
    torch.testing.assert_close(logits(ours, graph), expected, rtol=1e-11, atol=1e-11)


def test_sparse_features_stay_sparse_only_without_hops(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(sparse=True)
    op = operator(graph)
    assert isinstance(make(num_hops=0).prepare(graph, op), SparseFeatures)
    assert isinstance(make(num_hops=1).prepare(graph, op), Tensor)


def test_preparing_needs_no_gradient_and_follows_the_operators_precision(make_graph: Callable[..., Graph]) -> None:
    for dtype in (torch.float32, torch.float64):
        structure = make().structure(make_graph(), dtype=dtype)
        assert isinstance(structure, Tensor)
        assert structure.dtype == dtype
        assert not structure.requires_grad


def test_the_forward_pass_does_not_read_x(make_graph: Callable[..., Graph]) -> None:
    model = make()
    structure = model.structure(make_graph(), dtype=torch.float64)
    assert torch.equal(model(None, structure), logits(model, make_graph()))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("num_hops", [0, 2])
def test_dropout_acts_in_training_only(sparse: bool, num_hops: int, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(sparse=sparse)
    full = logits(make(num_hops=num_hops), graph)
    dropping = make(num_hops=num_hops, dropout=0.5)
    assert not torch.allclose(logits(dropping, graph), full)
    assert torch.equal(logits(dropping.eval(), graph), full)


def test_64_hops_run_and_every_parameter_has_a_gradient(make_graph: Callable[..., Graph]) -> None:
    model = make(num_hops=64)
    logits(model, make_graph()).square().sum().backward()
    groups = model.parameter_groups()
    assert list(groups) == ["linears"]
    assert all(value.grad is not None and value.grad.any() for value in groups["linears"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_hops": -1}, "SGC: num_hops must be greater than or equal to 0, got -1"),
        ({"out_channels": 0}, "SGC: out_channels must be greater than or equal to 1, got 0"),
        ({"dropout": 1.0}, "SGC: dropout must be less than 1, got 1.0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**arguments)
