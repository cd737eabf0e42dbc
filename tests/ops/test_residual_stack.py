"""The stack in one function against the chain of its layers, in value and gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from adagpr.data import csbm
from adagpr.nn import AdaGPR, BatchedModels
from adagpr.ops import Operator, features, operator, residual_stack
from adagpr.ops.residual_stack import Layers, WeightMaps

GRAPH = csbm(num_nodes=40, average_degree=4.0, num_features=6, num_classes=3, directed=True)
OPERATOR = operator(GRAPH, dtype=torch.float64)
X = features(GRAPH.x, torch.float64)


def model(seed: int = 0, **options: Any) -> AdaGPR:
    arguments = {"num_layers": 3, "num_coeffs": 4, "dropout": 0.5, **options}
    made = AdaGPR(6, 5, 3, **arguments)
    made.seed(seed)
    return made.to(torch.float64)


def by_layers(net: AdaGPR, op: Operator) -> Tensor:
    h_0 = net.lin_in(net.drop_features(X)).relu()
    h = net.drop(h_0)
    for conv in net.layers():
        h = net.drop(conv(h, h_0, op).relu())
    logits: Tensor = net.lin_out(h)
    return logits


def gradients(net: AdaGPR, logits: Tensor) -> list[Tensor]:
    net.zero_grad()
    (logits * logits.detach().cos()).sum().backward()
    return [parameter.grad for parameter in net.parameters() if parameter.grad is not None]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dropout": 0.0},
        {"projection": "softmax"},
        {"projection": "fixed", "fixed_coeffs": [0.0, 1.0, 0.0, 0.0]},
        {"num_coeffs": [1, 4, 2], "alpha": [0.1, 0.5, 0.0]},
        {"alpha": 1.0, "theta": 1.5},
        {"num_coeffs": 1},
        {"weight_maps": "separate", "num_coeffs": [1, 4, 2], "alpha": [0.1, 0.5, 0.0]},
        {"weight_maps": "separate-scaled", "num_coeffs": 2},
        {"weight_maps": "separate-scaled", "alpha": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("training", [True, False])
def test_the_stack_equals_the_chain_of_its_layers(options: dict[str, Any], training: bool) -> None:
    one, other = model(**options).train(training), model(**options).train(training)
    ours, oracle = one(X, OPERATOR), by_layers(other, OPERATOR)
    torch.testing.assert_close(ours, oracle, rtol=1e-11, atol=1e-11)
    for left, right in zip(gradients(one, ours), gradients(other, oracle), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("weight_maps", ["shared", "separate"])
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_pass_gradcheck(recompute: bool, weight_maps: WeightMaps) -> None:
    net = model(weight_maps=weight_maps)
    layers = Layers(OPERATOR, [0.1, 0.2], [0.5, 0.3], skip_tail=False, recompute=recompute, weight_maps=weight_maps)
    generator = torch.Generator().manual_seed(0)
    h_0 = torch.rand(40, 5, dtype=torch.float64, generator=generator).requires_grad_()
    coeffs = torch.rand(2, 1, 4, dtype=torch.float64, generator=generator).requires_grad_()
    weights = [conv.weight.detach().requires_grad_() for conv in net.layers()[:2]]

    def function(h: Tensor, mu: Tensor, *maps: Tensor) -> Tensor:
        return residual_stack(h, mu, layers, maps)

    assert torch.autograd.gradcheck(function, (h_0, coeffs, *weights))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identity_and_factor_of_a_map_add_up_in_the_numbers_that_are_computed_with(dtype: torch.dtype) -> None:
    layers = Layers(OPERATOR, [0.1, 0.1], [0.1, 0.0377], skip_tail=False)
    for identity, factor in layers.shapes(torch.empty(0, dtype=dtype))[:, 0, 0].tolist():
        one = torch.tensor(1.0, dtype=dtype)
        assert torch.tensor(identity, dtype=dtype) == one - torch.tensor(factor, dtype=dtype)


def test_recomputing_gives_the_same_bits() -> None:
    h_0 = torch.rand(40, 5, dtype=torch.float64).requires_grad_()
    coeffs = torch.full((2, 1, 4), 0.25, dtype=torch.float64).requires_grad_()
    weights = [conv.weight for conv in model().layers()[:2]]
    layers = Layers(OPERATOR, [0.1, 0.1], [0.5, 0.3], skip_tail=False)
    found = []
    for recompute in (False, True):
        out = residual_stack(h_0, coeffs, replace(layers, recompute=recompute), weights)
        found.append((out, *torch.autograd.grad(out.sum(), [h_0, coeffs, *weights])))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("recompute", [False, True])
def test_keeping_bfloat16_rounds_gradients_but_neither_result_nor_mask(recompute: bool) -> None:
    exact, rounded = model(), model()
    rounded.saved_dtype, rounded.recompute = torch.bfloat16, recompute
    ours, theirs = rounded(X, OPERATOR), exact(X, OPERATOR)
    assert torch.equal(ours, theirs)
    pairs = list(zip(gradients(rounded, ours), gradients(exact, theirs), strict=True))
    for left, right in pairs:
        # bfloat16 has 8 significant bits.
        torch.testing.assert_close(left, right, rtol=0.02, atol=0.02 * float(right.abs().max()))
    assert not all(torch.equal(left, right) for left, right in pairs)


@pytest.mark.parametrize(
    "options", [{}, {"dropout": 0.0}, {"projection": "softmax"}, {"weight_maps": "separate"}], ids=str
)
@pytest.mark.parametrize("training", [True, False])
def test_batched_models_give_what_each_model_gives_alone(options: dict[str, Any], training: bool) -> None:
    alone = [model(seed, **options).train(training) for seed in range(3)]
    together = [model(seed, **options).train(training) for seed in range(3)]
    logits = BatchedModels(together, OPERATOR)(X, training)
    for net, own in zip(alone, logits, strict=True):
        torch.testing.assert_close(own, net(X, OPERATOR), rtol=1e-12, atol=1e-12)
    # Masks of a second pass continue each model's own stream.
    once_more = BatchedModels(together, OPERATOR)(X, training)
    torch.stack([(item * item.detach().cos()).sum() for item in once_more]).sum().backward()
    for net, copy in zip(alone, together, strict=True):
        for left, right in zip(gradients(net, net(X, OPERATOR)), copy.parameters(), strict=True):
            torch.testing.assert_close(left, right.grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("options", "expected"), [({}, True), ({"pair_norm": 1.0}, False), ({"drop_edge": 0.5}, False)], ids=str
)
def test_which_models_can_be_batched(options: dict[str, Any], expected: bool) -> None:
    assert model(**options).capabilities.batched is expected
