from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn.jknet import JKNet, Jump, join
from adagpr.ops import features, operator, pair_norm


def make(seed: int = 0, **arguments: Any) -> JKNet:
    model = JKNet(**{"in_channels": 12, "hidden_channels": 8, "out_channels": 3, "dropout": 0.0, **arguments})
    model.seed(seed)
    return model.double()


def logits(model: JKNet, graph: Graph) -> Tensor:
    structure = model.structure(graph, dtype=torch.float64)
    out: Tensor = model(features(graph.x, torch.float64), structure)
    return out


def dense_layers(model: JKNet, graph: Graph, scale: float | None) -> list[Tensor]:
    matrix = operator(graph, dtype=torch.float64).matrix.to_dense()
    outputs: list[Tensor] = [torch.as_tensor(graph.x).double()]
    for conv in model.convs:
        z = matrix @ outputs[-1] @ conv.get_parameter("weight").t() + conv.get_parameter("bias")
        outputs.append((z if scale is None else pair_norm(z, scale)).relu())
    return outputs[1:]


@pytest.mark.parametrize("scale", [None, 2.0])
def test_concatenation_equals_the_dense_equation(scale: float | None, make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=4, pair_norm=scale)
    joined = torch.cat(dense_layers(model, make_graph(), scale), 1)
    expected = joined @ model.lin_out.weight.t() + model.lin_out.bias
    torch.testing.assert_close(logits(model, make_graph()), expected, rtol=1e-11, atol=1e-11)


def test_maximum_equals_the_dense_equation(make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=4, jump="max")
    first, *rest = dense_layers(model, make_graph(), None)
    for output in rest:
        first = torch.maximum(first, output)
    expected = first @ model.lin_out.weight.t() + model.lin_out.bias
    torch.testing.assert_close(logits(model, make_graph()), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("jump", ["cat", "max"])
def test_joining_equals_jumping_knowledge_of_torch_geometric(jump: Jump) -> None:
    from torch_geometric.nn import JumpingKnowledge

    outputs = [torch.randn(30, 8, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    assert torch.equal(join(outputs, jump), JumpingKnowledge(jump)(outputs))


@pytest.mark.parametrize("jump", ["cat", "max"])
def test_one_layer_is_a_convolution_and_a_linear_map(jump: Jump, make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=1, jump=jump)
    (output,) = dense_layers(model, make_graph(), None)
    torch.testing.assert_close(logits(model, make_graph()), model.lin_out(output), rtol=1e-11, atol=1e-11)


def test_dropout_drops_an_output_once_for_the_next_layer_and_the_join(make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=1, dropout=0.5)
    model.lin_out.weight.data.copy_(torch.eye(3, 8))
    model.lin_out.bias.data.zero_()
    (output,) = dense_layers(model, make_graph(), None)
    dropped = logits(model, make_graph())
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * output[:, :3][kept])
    assert 0.2 < kept.sum() / (output[:, :3] != 0).sum() < 0.8


def test_drop_edge_acts_in_training_only(make_graph: Callable[..., Graph]) -> None:
    full = logits(make(), make_graph())
    dropping = make(drop_edge=0.5)
    assert not torch.allclose(logits(dropping, make_graph()), full)
    assert torch.equal(logits(dropping.eval(), make_graph()), full)


@pytest.mark.parametrize("jump", ["cat", "max"])
@pytest.mark.parametrize("num_layers", [3, 64])
def test_every_parameter_has_a_finite_gradient(jump: Jump, num_layers: int, make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=num_layers, jump=jump)
    logits(model, make_graph()).square().sum().backward()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in model.parameters())
    assert all(value.grad is not None and value.grad.any() for value in model.convs[0].parameters())


def test_groups_are_convolutions_and_the_last_map() -> None:
    groups = make(num_layers=5).parameter_groups()
    assert {name: len(group) for name, group in groups.items()} == {"convs": 10, "linears": 2}
    assert groups["linears"][0].shape == (3, 40)
    assert make(num_layers=5, jump="max").lin_out.weight.shape == (3, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jump": "lstm"}, "JKNet: jump must be 'cat' or 'max', got 'lstm'"),
        ({"num_layers": 0}, "JKNet: num_layers must be greater than or equal to 1, got 0"),
        ({"pair_norm": -1.0}, "JKNet: pair_norm must be greater than 0, got -1.0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**arguments)
