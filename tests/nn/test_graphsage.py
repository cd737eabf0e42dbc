from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.nn.graphsage import GraphSAGE, SAGEConv, mean_operator
from adagpr.ops import Operator, features, operator

Direction = Literal["directed", "symmetric"]


def make(seed: int = 0, **arguments: Any) -> GraphSAGE:
    model = GraphSAGE(**{"in_channels": 12, "hidden_channels": 8, "out_channels": 3, "dropout": 0.0, **arguments})
    model.seed(seed)
    return model.double()


def logits(model: GraphSAGE, graph: Graph) -> Tensor:
    structure = model.structure(graph, dtype=torch.float64)
    out: Tensor = model(features(graph.x, torch.float64), structure)
    return out


def means(graph: Graph, direction: Direction = "directed") -> Operator:
    return mean_operator(graph, operator(graph, direction, dtype=torch.float64))


@pytest.mark.parametrize("direction", ["directed", "symmetric"])
def test_the_operator_equals_the_dense_formula(direction: Direction, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    adj = graph.adj.toarray()
    weights = np.maximum(adj, adj.T) if direction == "symmetric" else adj
    expected = np.array([row / row.sum() if row.any() else row for row in weights])
    found = means(graph, direction)
    np.testing.assert_allclose(found.matrix.to_dense().numpy(), expected, atol=1e-14)
    np.testing.assert_allclose(found.transpose.to_dense().numpy(), expected.T, atol=1e-14)
    assert found.direction == direction
    assert not found.self_loops


def test_a_node_without_neighbours_has_a_zero_row_and_a_self_loop_counts() -> None:
    graph = from_scipy([[0, 1, 1], [0, 0, 0], [1, 0, 1]], np.eye(3), [0, 1, 0])
    assert means(graph).matrix.to_dense().tolist() == [[0, 0.5, 0.5], [0, 0, 0], [0.5, 0, 0.5]]


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("hidden_channels", [5, 20])
def test_logits_equal_the_dense_equation(
    num_layers: int, hidden_channels: int, make_graph: Callable[..., Graph]
) -> None:
    graph, model = make_graph(), make(num_layers=num_layers, hidden_channels=hidden_channels)
    matrix = means(graph).matrix.to_dense()
    h = torch.as_tensor(graph.x).double()
    for i, conv in enumerate(model.convs):
        conv.get_parameter("bias").data.uniform_(-1, 1)
        own, neigh = conv.get_parameter("weight_self"), conv.get_parameter("weight_neigh")
        z = h @ own.t() + matrix @ h @ neigh.t() + conv.get_parameter("bias")
        h = z.relu() if i < num_layers - 1 else z
    torch.testing.assert_close(logits(model, graph), h, rtol=1e-11, atol=1e-11)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sizes", [(12, 7), (7, 12)])
def test_a_layer_equals_sageconv_of_torch_geometric(sizes: tuple[int, int], make_graph: Callable[..., Graph]) -> None:
    from torch_geometric.nn import SAGEConv as TheirConv

    weighted = make_graph()
    graph = from_scipy(weighted.adj > 0, weighted.x, weighted.y)
    ours, theirs = SAGEConv(*sizes).double(), TheirConv(*sizes).double()
    ours.bias.data.uniform_(-1, 1)
    theirs.lin_r.weight.data.copy_(ours.weight_self.data)
    theirs.lin_l.weight.data.copy_(ours.weight_neigh.data)
    theirs.lin_l.bias.data.copy_(ours.bias.data)
    x = torch.randn(30, sizes[0], dtype=torch.float64)
    adj = graph.adj.tocoo()
    # Messages flow from source to target there; row i of the operator reads column j here.
    edge_index = torch.as_tensor([adj.col.tolist(), adj.row.tolist()])
    torch.testing.assert_close(ours(x, means(graph)), theirs(x, edge_index), rtol=1e-11, atol=1e-11)


def test_gradients_pass_gradcheck(make_graph: Callable[..., Graph]) -> None:
    conv, op = SAGEConv(3, 2).double(), means(make_graph())
    names = [name for name, _ in conv.named_parameters()]

    def layer(x: Tensor, *values: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(conv, dict(zip(names, values, strict=True)), (x, op))
        return out

    tensors = [torch.randn(30, 3).double(), *(value.detach().clone() for value in conv.parameters())]
    assert torch.autograd.gradcheck(layer, [tensor.requires_grad_() for tensor in tensors])


def test_weights_start_glorot_uniform_and_biases_at_zero() -> None:
    conv = SAGEConv(100, 50)
    assert all(0.19 < weight.abs().max() <= 0.2 for weight in (conv.weight_self, conv.weight_neigh))
    assert not conv.bias.any()


@pytest.mark.parametrize("num_layers", [2, 64])
def test_every_parameter_has_a_gradient(num_layers: int, make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=num_layers)
    logits(model, make_graph()).square().sum().backward()
    groups = model.parameter_groups()
    assert list(groups) == ["convs"]
    assert all(value.grad is not None and value.grad.isfinite().all() for value in groups["convs"])
    assert all(value.grad is not None and value.grad.any() for value in model.convs[0].parameters())


def test_dropout_acts_in_training_only(make_graph: Callable[..., Graph]) -> None:
    full = logits(make(), make_graph())
    dropping = make(dropout=0.5)
    assert not torch.allclose(logits(dropping, make_graph()), full)
    assert torch.equal(logits(dropping.eval(), make_graph()), full)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_layers": 0}, "GraphSAGE: num_layers must be greater than or equal to 1, got 0"),
        ({"dropout": -0.1}, "GraphSAGE: dropout must be greater than or equal to 0, got -0.1"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**arguments)
