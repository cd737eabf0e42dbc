from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn import AdaGPRConv
from adagpr.ops import Operator, operator

CHANNELS = 5


@pytest.fixture
def op(make_graph: Callable[..., Graph]) -> Operator:
    return operator(make_graph(), dtype=torch.float64)


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(30, CHANNELS, dtype=torch.float64, generator=generator),
        torch.randn(30, CHANNELS, dtype=torch.float64, generator=generator),
    )


def make_conv(**arguments: Any) -> AdaGPRConv:
    conv = AdaGPRConv(**{"channels": CHANNELS, "num_coeffs": 3, "alpha": 0.3, "theta": 0.7, "layer": 2, **arguments})
    conv.reset_parameters(torch.Generator().manual_seed(1))
    return conv.double()


def dense_layer(conv: AdaGPRConv, x: Tensor, x_0: Tensor, op: Operator) -> Tensor:
    matrix = op.matrix.to_dense()
    mixed = sum(
        (mu * torch.linalg.matrix_power(matrix, k) for k, mu in enumerate(conv.coeffs())),
        start=torch.zeros_like(matrix),
    )
    support = (1 - conv.alpha) * mixed @ x + conv.alpha * x_0
    beta = math.log(0.7 / 2 + 1)
    return (1 - beta) * support + beta * support @ conv.weight


@pytest.mark.parametrize("projection", ["exp-sparsemax", "sparsemax", "softmax", "sphericalmax", "entmax-1.5", "fixed"])
def test_the_layer_equals_its_equation(projection: str, op: Operator, inputs: tuple[Tensor, Tensor]) -> None:
    conv = make_conv(projection=projection)
    torch.testing.assert_close(conv(*inputs, op), dense_layer(conv, *inputs, op), rtol=1e-11, atol=1e-11)


def test_equal_coefficients_average_the_powers(op: Operator, inputs: tuple[Tensor, Tensor]) -> None:
    conv = make_conv(projection="fixed", num_coeffs=4)
    assert conv.coeffs().tolist() == [0.25] * 4
    torch.testing.assert_close(conv(*inputs, op), dense_layer(conv, *inputs, op), rtol=1e-11, atol=1e-11)


def test_one_hot_at_hop_zero_does_not_read_the_graph(op: Operator, inputs: tuple[Tensor, Tensor]) -> None:
    conv = make_conv(projection="fixed", fixed_coeffs=[1.0, 0.0, 0.0])
    empty = Operator(torch.zeros(30, 30), torch.zeros(30, 30), "directed", True)
    assert torch.equal(conv(*inputs, op), conv(*inputs, empty))


def test_separate_weights_equal_the_authors_form(op: Operator, inputs: tuple[Tensor, Tensor]) -> None:
    conv = make_conv(projection="fixed", num_coeffs=2, fixed_coeffs=[0.0, 1.0], weight_maps="separate")
    x, x_0 = inputs
    hop = op.matrix.to_dense() @ x
    residual = 0.7 * hop + 0.3 * x_0
    expected = conv.beta * torch.cat([hop, x_0], 1) @ conv.weight + (1 - conv.beta) * residual
    torch.testing.assert_close(conv(x, x_0, op), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weight_maps", ["shared", "separate-scaled"])
@pytest.mark.parametrize("directed", [True, False])
def test_one_hot_at_hop_one_equals_gcn2conv_of_torch_geometric(
    weight_maps: str, directed: bool, make_graph: Callable[..., Graph], inputs: tuple[Tensor, Tensor]
) -> None:
    from torch_geometric.nn import GCN2Conv

    matrix = operator(make_graph(directed=directed), dtype=torch.float64)
    ours = make_conv(projection="fixed", num_coeffs=2, fixed_coeffs=[0.0, 1.0], weight_maps=weight_maps)
    theirs = GCN2Conv(CHANNELS, 0.3, 0.7, 2, shared_weights=weight_maps == "shared", normalize=False).double()
    halves = ours.weight.detach().chunk(1 if weight_maps == "shared" else 2)
    for name, half in zip(("weight1", "weight2"), halves, strict=False):
        getattr(theirs, name).data.copy_(half)
    coo = matrix.matrix.to_dense().to_sparse_coo().coalesce()
    # Messages flow from source to target there; row i of the operator reads column j here.
    edge_index = coo.indices().flip(0)
    torch.testing.assert_close(ours(*inputs, matrix), theirs(*inputs, edge_index, coo.values()), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("weight_maps", ["shared", "separate", "separate-scaled"])
def test_gradients_pass_gradcheck(weight_maps: str, op: Operator, inputs: tuple[Tensor, Tensor]) -> None:
    conv = make_conv(weight_maps=weight_maps)
    assert conv.scores is not None

    def layer(x: Tensor, x_0: Tensor, weight: Tensor, scores: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(conv, {"weight": weight, "scores": scores}, (x, x_0, op))
        return out

    tensors = [*inputs, conv.weight.detach().clone(), conv.scores.detach().clone()]
    assert torch.autograd.gradcheck(layer, [tensor.requires_grad_() for tensor in tensors])


def test_without_theta_the_weight_map_is_plain() -> None:
    assert AdaGPRConv(4, 2, 0.1).beta == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 1.5}, r"AdaGPRConv: alpha must be less than or equal to 1, got 1.5"),
        ({"channels": 0}, "channels must be greater than or equal to 1, got 0"),
        ({"num_coeffs": 2.5}, "num_coeffs must be a whole number, got 2.5"),
        ({"theta": -1.0}, "theta must be greater than 0, got -1.0"),
        ({"projection": "softmin"}, "projection must be 'exp-sparsemax'.*got 'softmin'"),
        ({"fixed_coeffs": [0.5, 0.5, 0.0]}, "fixed_coeffs needs projection 'fixed'"),
        ({"projection": "fixed", "fixed_coeffs": [1.0]}, "fixed_coeffs must hold num_coeffs = 3 values, got 1"),
        ({"alpha": 1.0, "weight_maps": "separate"}, "alpha must be below 1"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_conv(**arguments)


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(InputError, match=r"channels must be .* alpha must be"):
        make_conv(channels=-3, alpha=2)
