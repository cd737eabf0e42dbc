from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn.incepgcn import IncepGCN
from adagpr.ops import features, operator


def make(seed: int = 0, **arguments: Any) -> IncepGCN:
    model = IncepGCN(**{"in_channels": 12, "hidden_channels": 8, "out_channels": 3, "dropout": 0.0, **arguments})
    model.seed(seed)
    return model.double()


def logits(model: IncepGCN, graph: Graph) -> Tensor:
    structure = model.structure(graph, dtype=torch.float64)
    out: Tensor = model(features(graph.x, torch.float64), structure)
    return out


def gradients(model: IncepGCN, graph: Graph) -> list[Tensor]:
    logits(model, graph).square().sum().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def dense_layer(conv: nn.Module, matrix: Tensor, h: Tensor) -> Tensor:
    return matrix @ h @ conv.get_parameter("weight").t() + conv.get_parameter("bias")


@pytest.mark.parametrize("num_layers", [3, 4, 7])
def test_logits_equal_the_dense_equation(num_layers: int, make_graph: Callable[..., Graph]) -> None:
    graph, model = make_graph(), make(num_layers=num_layers)
    for value in model.parameters():
        value.data.add_(0.05)
    matrix = operator(graph, dtype=torch.float64).matrix.to_dense()
    h_0 = dense_layer(model.conv_in, matrix, torch.as_tensor(graph.x).double()).relu()
    joined = [h_0]
    for branch in model.branches:
        h = h_0
        for conv in branch.children():
            h = dense_layer(conv, matrix, h).relu()
        joined.append(h)
    expected = dense_layer(model.conv_out, matrix, torch.cat(joined, 1))
    torch.testing.assert_close(logits(model, graph), expected, rtol=1e-11, atol=1e-11)


def test_branches_are_of_every_depth_and_share_nothing() -> None:
    model = make(num_layers=6)
    assert [len(list(branch.children())) for branch in model.branches] == [1, 2, 3, 4]
    assert len(list(model.parameters())) == 2 * (1 + 10 + 1)
    assert model.conv_out.weight.shape == (3, 5 * 8)


@pytest.mark.parametrize("drop_edge", [0.0, 0.3])
def test_computing_branches_again_does_not_change_a_bit(
    drop_edge: float, make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    again, plain = (make(num_layers=6, dropout=0.5, drop_edge=drop_edge) for _ in range(2))
    found, then = gradients(again, make_graph()), logits(again, make_graph())
    monkeypatch.setattr("adagpr.nn.incepgcn._Recomputed.apply", lambda function, _, *tensors: function(*tensors))
    pairs = zip(found, gradients(plain, make_graph()), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert torch.equal(then, logits(plain, make_graph()))


def test_evaluating_between_the_passes_does_not_change_a_bit(make_graph: Callable[..., Graph]) -> None:
    straight, interrupted = make(dropout=0.5), make(dropout=0.5)
    expected = gradients(straight, make_graph())
    loss = logits(interrupted, make_graph()).square().sum()
    interrupted.eval()
    loss.backward()
    found = [parameter.grad for parameter in interrupted.parameters() if parameter.grad is not None]
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert not interrupted.training


def test_no_matrix_of_a_branch_is_kept_for_the_backward_pass(make_graph: Callable[..., Graph]) -> None:
    def kept(num_layers: int) -> int:
        shapes: list[tuple[int, ...]] = []

        def pack(tensor: Tensor) -> Tensor:
            shapes.append(tuple(tensor.shape))
            return tensor

        model = make(num_layers=num_layers, dropout=0.5)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            assert logits(model, make_graph()).requires_grad
        return shapes.count((30, 8))

    # One more a branch: the output of the input convolution, which all of them start from.
    assert kept(12) - kept(6) == 6


def test_drop_edge_acts_in_training_only(make_graph: Callable[..., Graph]) -> None:
    full = logits(make(), make_graph())
    dropping = make(drop_edge=0.5)
    assert not torch.allclose(logits(dropping, make_graph()), full)
    assert torch.equal(logits(dropping.eval(), make_graph()), full)


def test_every_parameter_has_a_gradient(make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=5)
    found = gradients(model, make_graph())
    assert len(found) == len(list(model.parameters()))
    assert all(gradient.any() for gradient in found)


def test_64_layers_run(make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=64, hidden_channels=2)
    found = gradients(model, make_graph())
    assert len(found) == 2 * (64 * 61 // 2 + 3)
    assert all(gradient.isfinite().all() for gradient in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_layers": 2}, "IncepGCN: num_layers must be greater than or equal to 3, got 2"),
        ({"dropout": 1.0}, "IncepGCN: dropout must be less than 1, got 1.0"),
        ({"hidden_channels": 0}, "IncepGCN: hidden_channels must be greater than or equal to 1, got 0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**arguments)
