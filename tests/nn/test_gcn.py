from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn.gcn import GCN, GCNConv, graph_convolution, propagate
from adagpr.ops import Operator, features, operator, pair_norm


def make(seed: int = 0, **arguments: Any) -> GCN:
    model = GCN(**{"in_channels": 12, "hidden_channels": 8, "out_channels": 3, "dropout": 0.0, **arguments})
    model.seed(seed)
    for name, parameter in model.named_parameters():
        # A bias of zero would hide where it is added.
        if name.endswith("bias"):
            parameter.data.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    return model


def logits(model: GCN, graph: Graph, dtype: torch.dtype = torch.float64) -> Tensor:
    out: Tensor = model.to(dtype)(features(graph.x, dtype), model.structure(graph, dtype=dtype))
    return out


def dense_gcn(model: GCN, x: Tensor, matrix: Tensor, scale: float | None = None) -> Tensor:
    h = x
    for i, conv in enumerate(model.convs):
        z = matrix @ h @ conv.get_parameter("weight").t() + conv.get_parameter("bias")
        normed = z if scale is None else pair_norm(z, scale)
        h = normed.relu() if i < len(model.convs) - 1 else z
    return h


@pytest.mark.parametrize("num_layers", [1, 2, 5])
@pytest.mark.parametrize("scale", [None, 2.0])
def test_logits_equal_the_dense_equation(
    num_layers: int, scale: float | None, make_graph: Callable[..., Graph]
) -> None:
    graph = make_graph()
    model = make(num_layers=num_layers, pair_norm=scale).double()
    matrix = operator(graph, dtype=torch.float64).matrix.to_dense()
    expected = dense_gcn(model, features(graph.x, torch.float64), matrix, scale)  # type: ignore[arg-type]
    torch.testing.assert_close(logits(model, graph), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("sizes", [(12, 4), (4, 12)])
def test_the_side_of_the_graph_product_does_not_change_the_layer(
    sizes: tuple[int, int], make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = []

    def watched(h: Tensor, op: Operator) -> Tensor:
        widths.append(h.shape[1])
        return propagate(h, op)

    monkeypatch.setattr("adagpr.nn.gcn.propagate", watched)
    op = operator(make_graph(), dtype=torch.float64)
    x, weight = torch.randn(30, sizes[0]).double(), torch.randn(sizes[1], sizes[0]).double()
    bias = torch.randn(sizes[1]).double()
    expected = op.matrix.to_dense() @ x @ weight.t() + bias
    torch.testing.assert_close(graph_convolution(x, weight, bias, op), expected, rtol=1e-11, atol=1e-11)
    assert widths == [4]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("directed", [True, False])
def test_a_layer_equals_gcnconv_of_torch_geometric(directed: bool, make_graph: Callable[..., Graph]) -> None:
    from torch_geometric.nn import GCNConv as TheirConv

    matrix = operator(make_graph(directed=directed), dtype=torch.float64)
    ours, theirs = GCNConv(5, 7).double(), TheirConv(5, 7, normalize=False).double()
    ours.bias.data.uniform_(-1, 1)
    theirs.lin.weight.data.copy_(ours.weight.data)
    theirs.bias.data.copy_(ours.bias.data)
    x = torch.randn(30, 5, dtype=torch.float64)
    coo = matrix.matrix.to_dense().to_sparse_coo().coalesce()
    # Messages flow from source to target there; row i of the operator reads column j here.
    expected = theirs(x, coo.indices().flip(0), coo.values())
    torch.testing.assert_close(ours(x, matrix), expected, rtol=1e-11, atol=1e-11)


def test_gradients_pass_gradcheck(make_graph: Callable[..., Graph]) -> None:
    op = operator(make_graph(), dtype=torch.float64)
    for sizes in ((3, 2), (2, 3)):
        tensors = [torch.randn(30, sizes[0]), torch.randn(sizes[1], sizes[0]), torch.randn(sizes[1])]
        inputs = [tensor.double().requires_grad_() for tensor in tensors]
        assert torch.autograd.gradcheck(lambda x, weight, bias: graph_convolution(x, weight, bias, op), inputs)


def test_drop_edge_acts_in_training_only(make_graph: Callable[..., Graph]) -> None:
    dropping, plain = make(drop_edge=0.5), make()
    full = logits(plain, make_graph())
    assert not torch.allclose(logits(dropping, make_graph()), full)
    assert torch.equal(logits(dropping.eval(), make_graph()), full)


@pytest.mark.parametrize("scale", [None, 1.0])
def test_64_layers_run_and_reach_every_parameter(scale: float | None, make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=64, pair_norm=scale)
    logits(model, make_graph()).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_every_parameter_of_a_shallow_network_has_a_gradient(make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=3)
    logits(model, make_graph()).square().sum().backward()
    assert [name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()] == []


def test_weights_start_glorot_uniform_and_biases_at_zero() -> None:
    conv = GCNConv(100, 50)
    assert 0.19 < conv.weight.abs().max() <= (6 / 150) ** 0.5
    assert not conv.bias.any()


def test_groups_tell_the_first_layer_from_the_rest() -> None:
    groups = make(num_layers=3).parameter_groups()
    assert [tuple(item.shape) for item in groups["first"]] == [(8, 12), (8,)]
    assert len(groups["rest"]) == 4
    assert list(make(num_layers=1).parameter_groups()) == ["first"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_layers": 0}, "GCN: num_layers must be greater than or equal to 1, got 0"),
        ({"drop_edge": 1.0}, "GCN: drop_edge must be less than 1, got 1.0"),
        ({"pair_norm": 0.0}, "GCN: pair_norm must be greater than 0, got 0.0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**arguments)
