from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.nn import AdaGPRConv
from adagpr.nn.appnp import APPNP
from adagpr.nn.gprgnn import GPRGNN, initial_coeffs
from adagpr.ops import features, operator

GAMMA = [0.5, -0.25, 0.0, 0.125]


def make(seed: int = 0, **arguments: Any) -> GPRGNN:
    model = GPRGNN(**{"in_channels": 12, "hidden_channels": 8, "out_channels": 3, **arguments})
    model.seed(seed)
    return model


def plain(**arguments: Any) -> GPRGNN:
    return make(**{"dropout": 0.0, "propagation_dropout": 0.0, **arguments}).double()


def logits(model: GPRGNN | APPNP, graph: Graph, dtype: torch.dtype = torch.float64) -> Tensor:
    out: Tensor = model.to(dtype)(features(graph.x, dtype), operator(graph, dtype=dtype))
    return out


def perceptron(model: GPRGNN, graph: Graph) -> Tensor:
    first, second = model.linears
    out: Tensor = second(first(features(graph.x, torch.float64)).relu())
    return out


@pytest.mark.parametrize("directed", [True, False])
def test_logits_equal_the_sum_of_dense_powers(directed: bool, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(directed=directed)
    model = plain(num_hops=3, init="given", init_coeffs=GAMMA)
    matrix = operator(graph, dtype=torch.float64).matrix.to_dense()
    mixed = sum(
        (gamma * torch.linalg.matrix_power(matrix, k) for k, gamma in enumerate(GAMMA)),
        start=torch.zeros_like(matrix),
    )
    torch.testing.assert_close(logits(model, graph), mixed @ perceptron(model, graph), rtol=1e-11, atol=1e-11)


def test_propagation_is_an_adagpr_layer_without_residual_and_weights(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    model = plain(num_hops=3, init="given", init_coeffs=GAMMA)
    conv = AdaGPRConv(3, 4, alpha=0.0, projection="fixed", fixed_coeffs=GAMMA).double()
    conv.weight.data.copy_(torch.eye(3))
    h = perceptron(model, graph)
    expected = conv(h, h, operator(graph, dtype=torch.float64))
    torch.testing.assert_close(logits(model, graph), expected, rtol=1e-12, atol=1e-12)


def test_starts_as_appnp(make_graph: Callable[..., Graph]) -> None:
    model = make(init_alpha=0.2, dropout=0.0, propagation_dropout=0.0)
    appnp = APPNP(12, 8, 3, alpha=0.2, dropout=0.0)
    appnp.load_state_dict({name: value for name, value in model.state_dict().items() if name != "coeffs"})
    ours, theirs = logits(model, make_graph()), logits(appnp, make_graph())
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"init": "sgc", "init_alpha": 2}, [0.0, 0.0, 1.0, 0.0]),
        ({"init": "ppr", "init_alpha": 0.5}, [0.5, 0.25, 0.125, 0.125]),
        ({"init": "ppr", "init_alpha": 0.0}, [0.0, 0.0, 0.0, 1.0]),
        ({"init": "ppr", "init_alpha": 1.0}, [1.0, 0.0, 0.0, 0.0]),
        ({"init": "nppr", "init_alpha": -0.5}, [8 / 15, -4 / 15, 2 / 15, -1 / 15]),
        ({"init": "given", "init_coeffs": GAMMA}, GAMMA),
    ],
)
def test_coefficients_start_as_in_the_authors_code(arguments: dict[str, Any], expected: list[float]) -> None:
    coefficients = make(num_hops=3, **arguments).coefficients()
    assert coefficients.shape == (1, 4)
    assert coefficients[0].tolist() == pytest.approx(expected, abs=1e-7)


def test_random_coefficients_have_absolute_sum_one_and_follow_the_seed() -> None:
    one, same, other = (make(seed, init="random").coefficients() for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert one.abs().sum().item() == pytest.approx(1.0, abs=1e-6)
    draws = [initial_coeffs("random", 3, 0.0, None, torch.Generator().manual_seed(seed)) for seed in range(20)]
    assert min(draw.min().item() for draw in draws) < -0.3
    assert math.isclose(draws[0].abs().sum().item(), 1.0)


def test_a_coefficient_of_zero_still_gets_its_gradient(make_graph: Callable[..., Graph]) -> None:
    model = plain(init="sgc", init_alpha=0)
    logits(model, make_graph()).square().sum().backward()
    assert model.coeffs.grad is not None
    assert model.coeffs.grad.abs().min() > 0
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_groups_separate_coefficients_from_linear_maps() -> None:
    groups = make().parameter_groups()
    assert {name: len(group) for name, group in groups.items()} == {"linears": 4, "coeffs": 1}
    assert [tuple(item.shape) for item in groups["coeffs"]] == [(11,)]


def test_propagation_dropout_acts_only_while_training(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    model = make(dropout=0.0, propagation_dropout=0.5)
    assert not torch.equal(logits(model, graph), logits(model, graph))
    assert torch.equal(logits(model.eval(), graph), logits(plain(), graph))
    assert torch.equal(logits(make(), graph), logits(make(), graph))


def test_without_edges_hops_add_up() -> None:
    x = np.random.default_rng(0).normal(size=(6, 12))
    graph = from_scipy(sp.csr_array((6, 6)), x, [0, 1, 2, 0, 1, 2])
    model = plain(num_hops=3, init="given", init_coeffs=GAMMA)
    torch.testing.assert_close(logits(model, graph), 0.375 * perceptron(model, graph), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"init": "given"}, "init_coeffs and init 'given' need each other, got None and 'given'"),
        ({"init_coeffs": GAMMA}, "init_coeffs and init 'given' need each other, got .* and 'ppr'"),
        ({"init": "given", "init_coeffs": [1.0]}, r"init_coeffs must hold num_hops \+ 1 = 11 values, got 1"),
        ({"init": "sgc"}, r"init_alpha must be a hop from 0 to 10 with init 'sgc', got 0\.1"),
        ({"init": "ppr", "init_alpha": -0.1}, r"init_alpha must be in \[0, 1\] with init 'ppr', got -0\.1"),
        ({"init": "nppr", "init_alpha": 2.0}, r"init_alpha must be in \[-1, 1\] with init 'nppr', got 2\.0"),
        ({"init": "ws"}, "GPRGNN: init must be 'sgc'.*got 'ws'"),
    ],
)
def test_starts_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**arguments)
