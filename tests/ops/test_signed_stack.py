"""The signed stack against a dense formula, in value and gradient, and what it promises beside."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.data import csbm
from adagpr.ops import Operator, SignedLayers, csr_tensor, kernels, operator, signed_stack
from adagpr.ops.norms import Norm
from tests.ops import keep_mask

GRAPH = csbm(num_nodes=40, average_degree=4.0, num_features=6, num_classes=3, directed=True)
NORMS: list[Norm] = ["batch", "layer", "none"]
RATE = 0.3


def operators(count: int, dtype: torch.dtype = torch.float64, blocks: int = 1) -> list[Operator]:
    """One operator, or that of edges forwards and that of edges backwards."""
    forwards = operator(GRAPH, self_loops=False, dtype=dtype)
    backwards = Operator(forwards.transpose, forwards.matrix, "directed", False)
    return [op.repeated(blocks) for op in (forwards, backwards)][:count]


class Case:
    """What learns in a stack, of random numbers, some coefficients zero."""

    def __init__(
        self, num_ops: int = 1, depth: int = 2, blocks: int = 1, hops: int = 4, width: int = 5, rows: int = 0
    ) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        self.x = normal(rows or GRAPH.num_nodes * blocks, width).requires_grad_()
        self.coeffs = normal(depth, num_ops, blocks, hops).requires_grad_()
        self.scales = (1 + 0.3 * normal(depth, blocks, width)).requires_grad_()
        self.shifts = normal(depth, blocks, width).requires_grad_()
        shape, count = ((num_ops + 1) * width, width), depth * blocks
        self.weights = [(normal(*shape) / width**0.5).requires_grad_() for _ in range(count)]
        self.moments = torch.stack([normal(depth, blocks, width), 0.5 + normal(depth, blocks, width).square()], dim=2)

    @property
    def h_0(self) -> Tensor:
        return self.x.relu()

    def to(self, dtype: torch.dtype) -> Case:
        self.x, self.coeffs, self.scales, self.shifts, *self.weights = (
            x.detach().to(dtype).requires_grad_() for x in self.learned
        )
        return self

    @property
    def learned(self) -> list[Tensor]:
        return [self.x, self.coeffs, self.scales, self.shifts, *self.weights]

    def run(self, layers: SignedLayers) -> tuple[Tensor, Tensor | None]:
        return signed_stack(self.h_0, self.coeffs, layers, self.weights, self.scales, self.shifts)

    def outcome(self, layers: SignedLayers) -> list[Tensor]:
        y, moments = self.run(layers)
        used = [x for x in self.learned if x is not self.scales or layers.norm != "none"]
        found = torch.autograd.grad((y * y.detach().cos()).sum(), used)
        return [y.detach(), *([] if moments is None else [moments]), *found]


def generators(rate: float, count: int = 1) -> list[np.random.Generator]:
    return [np.random.Generator(np.random.SFC64(seed)) for seed in range(count)] if rate > 0 else []


def dense(case: Case, layers: SignedLayers) -> Tensor:
    """The formula with dense powers, for one block."""

    def drop(x: Tensor) -> Tensor:
        if layers.rate == 0:
            return x
        mask, scale = keep_mask(tuple(x.shape), layers.rate, layers.generators[0])
        return x * torch.from_numpy(mask) * scale

    y, width = drop(case.h_0), case.x.shape[1]
    for depth, weight in enumerate(case.weights):
        maps = weight.split(width)
        z = y @ maps[-1]
        for op, coeffs, own in zip(layers.operators, case.coeffs[depth, :, 0], maps[:-1], strict=True):
            matrix = op.matrix.to_dense()
            powers = [torch.linalg.matrix_power(matrix, k) @ y for k in range(len(coeffs))]
            z = z + sum(c * power for c, power in zip(coeffs, powers, strict=True)) @ own
        scale, shift = case.scales[depth, 0], case.shifts[depth, 0]
        if layers.norm == "batch":
            moments = None if layers.moments is None else layers.moments[depth, 0]
            mean, var = (None, None) if moments is None else (moments[0], moments[1])
            z = torch.nn.functional.batch_norm(z, mean, var, scale, shift, training=moments is None)
        elif layers.norm == "layer":
            z = torch.nn.functional.layer_norm(z, (width,), scale, shift)
        else:
            z = z + shift
        y = drop(z.relu())
    return y


def assert_near(ours: Sequence[Tensor], theirs: Sequence[Tensor], error: float) -> None:
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=error, atol=error * max(1.0, float(two.abs().max())))


@pytest.mark.parametrize("width", [5, 16])
@pytest.mark.parametrize("rate", [0.0, RATE])
@pytest.mark.parametrize("num_ops", [1, 2])
@pytest.mark.parametrize("norm", [*NORMS, "moments"])
def test_values_and_gradients_are_those_of_the_dense_formula(norm: str, num_ops: int, rate: float, width: int) -> None:
    case = Case(num_ops, width=width)
    layers = SignedLayers(operators(num_ops), "batch", skip_tail=False, rate=rate, generators=generators(rate))
    layers = replace(layers, moments=case.moments) if norm == "moments" else replace(layers, norm=cast("Norm", norm))
    y, moments = case.run(layers)
    oracle = dense(case, replace(layers, generators=generators(rate)))
    assert (moments is not None) is (norm == "batch")
    torch.testing.assert_close(y, oracle, rtol=1e-10, atol=1e-10)
    used = [x for x in case.learned if x is not case.scales or norm != "none"]
    upstream = y.detach().cos()
    assert_near(torch.autograd.grad(y, used, upstream), torch.autograd.grad(oracle, used, upstream), 1e-9)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_gradients_pass_gradcheck(norm: Norm, recompute: bool) -> None:
    case = Case(num_ops=2, hops=3, width=3)
    layers = SignedLayers(operators(2), norm, skip_tail=False, recompute=recompute)

    def function(*learned: Tensor) -> Tensor:
        h, coeffs, scales, shifts, *weights = learned
        return signed_stack(h.relu(), coeffs, layers, weights, scales, shifts)[0]

    assert torch.autograd.gradcheck(function, case.learned if norm != "none" else _without_scales(case))


def _without_scales(case: Case) -> list[Tensor]:
    return [x.detach() if x is case.scales else x for x in case.learned]


def test_moments_are_mean_and_biased_variance_of_each_layer() -> None:
    case, layers = Case(depth=1), SignedLayers(operators(1), "batch", skip_tail=False)
    _, moments = case.run(layers)
    unscaled = replace(layers, norm="none")
    with torch.no_grad():
        case.shifts.fill_(100.0)  # nothing is cut off, and what is added does not change the variance
    z, _ = case.run(unscaled)
    expected = torch.stack([z.mean(0) - 100.0, z.var(0, correction=0)])
    torch.testing.assert_close(moments, expected.view(1, 1, 2, -1), rtol=1e-9, atol=1e-9)
    assert moments is not None
    assert not moments.requires_grad


@pytest.mark.parametrize("rate", [0.0, RATE])
@pytest.mark.parametrize("width", [5, 16])
@pytest.mark.parametrize("norm", NORMS)
def test_blocks_side_by_side_give_what_each_gives_alone(norm: Norm, width: int, rate: float) -> None:
    num_blocks = 3
    together = Case(2, blocks=num_blocks, width=width)
    streams = generators(rate, num_blocks)
    layers = SignedLayers(operators(2, blocks=num_blocks), norm, skip_tail=True, rate=rate, generators=streams)
    found = together.run(layers)[0]
    gradients = torch.autograd.grad((found * found.detach().cos()).sum(), [together.x, *together.weights])
    for block in range(num_blocks):
        one = Case(2, width=width)
        one.x = together.x.chunk(num_blocks)[block].detach().requires_grad_()
        one.coeffs = together.coeffs[:, :, block : block + 1]
        one.scales, one.shifts = (x[:, block : block + 1] for x in (together.scales, together.shifts))
        one.weights = [weight.detach().requires_grad_() for weight in together.weights[block::num_blocks]]
        own = replace(layers, operators=operators(2), generators=generators(rate, num_blocks)[block : block + 1])
        y = one.run(own)[0]
        torch.testing.assert_close(found.chunk(num_blocks)[block], y, rtol=1e-12, atol=1e-12)
        alone = torch.autograd.grad((y * y.detach().cos()).sum(), [one.x, *one.weights])
        beside = [gradients[0].chunk(num_blocks)[block], *gradients[1:][block::num_blocks]]
        assert_near(beside, alone, 1e-11)


@pytest.mark.parametrize("norm", NORMS)
def test_recomputing_gives_the_same_bits(norm: Norm) -> None:
    found = []
    for recompute in (False, True):
        layers = SignedLayers(operators(2), norm, skip_tail=False, recompute=recompute, rate=RATE)
        found.append(Case(2).outcome(replace(layers, generators=generators(RATE))))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_keeping_bfloat16_rounds_gradients_but_neither_result_nor_mask(norm: Norm, recompute: bool) -> None:
    exact = SignedLayers(operators(2), norm, skip_tail=False)
    y, *gradients = Case(2).outcome(exact)
    rounded, *others = Case(2).outcome(replace(exact, saved_dtype=torch.bfloat16, recompute=recompute))
    assert torch.equal(y, rounded)
    for left, right in zip(others, gradients, strict=True):
        # bfloat16 has 8 significant bits.
        torch.testing.assert_close(left, right, rtol=0.03, atol=0.03 * float(right.abs().max()))
    assert not all(torch.equal(left, right) for left, right in zip(others, gradients, strict=True))


@pytest.mark.parametrize("width", [5, 16])
def test_hops_behind_the_last_coefficient_are_left_out_and_get_no_gradient(width: int) -> None:
    case = Case(2, width=width)
    with torch.no_grad():
        case.coeffs[:, 0, :, 2:] = 0.0
        case.coeffs[1, 1] = 0.0
    layers = SignedLayers(operators(2), "batch", skip_tail=True)
    (y, *rest), (full, *others) = case.outcome(layers), case.outcome(replace(layers, skip_tail=False))
    torch.testing.assert_close(y, full, rtol=1e-12, atol=1e-12)
    assert not rest[2][:, 0, :, 2:].any()
    assert not rest[2][1, 1, :, 1:].any()
    assert others[2][:, 0, :, 2:].all()
    assert_near(rest[3:], others[3:], 1e-11)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("num_ops", "hops", "width"), [(1, 1, 5), (2, 1, 16), (1, 2, 16)])
def test_few_hops_and_a_single_row_are_enough(norm: Norm, num_ops: int, hops: int, width: int) -> None:
    layers = SignedLayers(operators(num_ops), norm, skip_tail=False)
    case = Case(num_ops, hops=hops, width=width)
    torch.testing.assert_close(case.run(layers)[0], dense(case, layers), rtol=1e-10, atol=1e-10)
    loop = torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), dtype=torch.float64, check_invariants=False)
    single = Operator(loop.to(torch.float64), loop, "directed", False)
    one = replace(layers, operators=[single] * num_ops)
    case.x = case.x[:1].detach().requires_grad_()
    y = case.run(one)[0]
    # A column of one row has no variance: what is left of it is the shift.
    expected = case.shifts[-1, 0].relu().unsqueeze(0) if norm == "batch" else dense(case, one)
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(y.sum(), case.weights))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("norm", [*NORMS, "moments"])
def test_all_layers_in_one_call_have_the_bits_of_layer_by_layer(
    norm: str, rate: float, dtype: torch.dtype, threads: int
) -> None:
    forwards = operator(csbm(num_nodes=700, average_degree=5.0, num_classes=3, directed=True), dtype=dtype)
    both = [forwards, Operator(forwards.transpose, forwards.matrix, "directed", True), forwards]
    around: kernels.Around = lambda name, arguments, step: step()  # noqa: E731
    for num_ops, blocks, hops, width in [(1, 1, 4, 64), (2, 2, 2, 32), (3, 1, 1, 80), (1, 3, 5, 16)]:
        found = []
        for watched in (False, True):
            case = Case(num_ops, depth=3, blocks=blocks, hops=hops, width=width, rows=700 * blocks).to(dtype)
            ops, streams = [op.repeated(blocks) for op in both[:num_ops]], generators(rate, blocks)
            layers = SignedLayers(ops, "batch", skip_tail=True, rate=rate, generators=streams)
            layers = (
                replace(layers, moments=case.moments) if norm == "moments" else replace(layers, norm=cast("Norm", norm))
            )
            with kernels.compute_threads(threads), kernels.watch_kernels(around) if watched else nullcontext():
                results = case.outcome(layers)
                with torch.no_grad():
                    found.append([*results, case.run(layers)[0]])
            assert layers.supports_fused_stack(case.h_0)
        assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_matrices_that_go_past_the_caches_have_the_same_bits() -> None:
    rows, width = 2**26 // 4 // 64 + 200, 64
    ring = csr_tensor(sp.csr_array((np.ones(rows), np.roll(np.arange(rows), 1), np.arange(rows + 1)), (rows, rows)))
    case, op = Case(depth=2, hops=2, width=width, rows=rows).to(torch.float32), Operator(ring, ring, "directed", False)
    layers, found = SignedLayers([op], "layer", skip_tail=False), []
    for watched in (False, True):
        around: kernels.Around = lambda name, arguments, step: step()  # noqa: E731
        with torch.no_grad(), kernels.watch_kernels(around) if watched else nullcontext():
            found.append(case.run(layers)[0])
    assert torch.equal(*found)
