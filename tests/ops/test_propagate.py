from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagpr.benchmarking import Recorder
from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.ops import Operator, gpr_propagate, operator


def dense_powers(h: Tensor, coeffs: Tensor, op: Operator) -> Tensor:
    matrix = op.matrix.to_dense()
    power = torch.eye(len(matrix), dtype=h.dtype)
    total = torch.zeros_like(h)
    for weight in coeffs:
        total = total + weight * (power @ h)
        power = power @ matrix
    return total


def random_case(num_nodes: int, density: float, num_coeffs: int, seed: int) -> tuple[Tensor, Tensor, Operator, Tensor]:
    rng = np.random.default_rng(seed)
    adj = sp.random_array((num_nodes, num_nodes), density=density, rng=rng, format="csr")
    graph = from_scipy(adj, rng.normal(size=(num_nodes, 3)), [0, 1] + [0] * (num_nodes - 2))
    h = torch.from_numpy(rng.normal(size=(num_nodes, 3)))
    coeffs = torch.from_numpy(rng.normal(size=num_coeffs))
    return h, coeffs, operator(graph, dtype=torch.float64), torch.from_numpy(rng.normal(size=(num_nodes, 3)))


def values_and_gradients(function: Callable[..., Tensor], h: Tensor, coeffs: Tensor, seed: Tensor) -> list[Tensor]:
    h, coeffs = h.clone().requires_grad_(), coeffs.clone().requires_grad_()
    out = function(h, coeffs)
    (out * seed).sum().backward()
    assert h.grad is not None
    assert coeffs.grad is not None
    return [out.detach(), h.grad, coeffs.grad]


@settings(max_examples=60)
@given(
    num_nodes=st.integers(2, 25),
    density=st.floats(0, 0.6),
    num_coeffs=st.integers(1, 9),
    seed=st.integers(0, 10_000),
    zeros=st.integers(0, 9),
)
def test_propagation_agrees_with_dense_powers_in_value_and_gradient(
    num_nodes: int, density: float, num_coeffs: int, seed: int, zeros: int
) -> None:
    h, coeffs, op, weights = random_case(num_nodes, density, num_coeffs, seed)
    coeffs[max(0, num_coeffs - zeros) :] = 0
    ours = values_and_gradients(partial(gpr_propagate, op=op), h, coeffs, weights)
    oracle = values_and_gradients(partial(dense_powers, op=op), h, coeffs, weights)
    for one, other in zip(ours, oracle, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_gradients_pass_gradcheck_on_an_unsymmetric_operator() -> None:
    h, coeffs, op, _ = random_case(9, 0.4, 4, 3)
    assert not op.is_symmetric
    assert torch.autograd.gradcheck(partial(gpr_propagate, op=op), (h.requires_grad_(), coeffs.requires_grad_()))


@pytest.mark.parametrize("num_coeffs", [1, 2, 3, 4, 5])
def test_what_is_added_enters_the_sum_and_gets_the_whole_gradient(num_coeffs: int) -> None:
    h, coeffs, op, weights = random_case(12, 0.3, num_coeffs, 4)
    plus = (2 * weights).requires_grad_()
    before = h.clone()
    without = values_and_gradients(partial(gpr_propagate, op=op), h, coeffs, weights)
    ours = values_and_gradients(partial(gpr_propagate, op=op, plus=plus), h, coeffs, weights)
    torch.testing.assert_close(ours[0], without[0] + plus, rtol=1e-12, atol=1e-12)
    for one, other in zip(ours[1:], without[1:], strict=True):
        assert torch.equal(one, other)
    assert plus.grad is not None
    assert torch.equal(plus.grad, weights)
    assert torch.equal(h, before)


@pytest.mark.parametrize("needs", [(True, False), (False, True)])
def test_gradient_of_one_input_alone_equals_that_of_both(needs: tuple[bool, bool]) -> None:
    h, coeffs, op, weights = random_case(12, 0.3, 5, 1)
    both = values_and_gradients(partial(gpr_propagate, op=op), h, coeffs, weights)[1:]
    inputs = [h.clone().requires_grad_(needs[0]), coeffs.clone().requires_grad_(needs[1])]
    (gpr_propagate(inputs[0], inputs[1], op) * weights).sum().backward()
    wanted = needs.index(True)
    torch.testing.assert_close(inputs[wanted].grad, both[wanted], rtol=1e-12, atol=1e-12)


def test_skipping_the_tail_changes_nothing_inside_the_support() -> None:
    h, coeffs, op, weights = random_case(12, 0.3, 6, 2)
    coeffs[1] = 0
    coeffs[4:] = 0
    full = values_and_gradients(partial(gpr_propagate, op=op), h, coeffs, weights)
    short = values_and_gradients(partial(gpr_propagate, op=op, skip_tail=True), h, coeffs, weights)
    torch.testing.assert_close(short[0], full[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(short[1], full[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(short[2][:4], full[2][:4], rtol=1e-12, atol=1e-12)
    assert short[2][4:].tolist() == [0, 0]
    assert full[2][4:].abs().min() > 0


def test_skipped_hops_cost_no_product() -> None:
    h, coeffs, op, weights = random_case(12, 0.3, 8, 2)
    coeffs[2:] = 0
    recorder = Recorder()
    step = partial(values_and_gradients, partial(gpr_propagate, op=op, skip_tail=True), h, coeffs, weights)
    recorder.record({"both ways": step})
    assert sum(item.counts.total() for item in recorder.found.values()) == 2


def test_all_zero_coefficients_give_zero() -> None:
    h, coeffs, op, _ = random_case(5, 0.3, 3, 2)
    assert gpr_propagate(h, torch.zeros_like(coeffs), op, skip_tail=True).abs().sum() == 0


def test_one_hot_at_hop_one_is_the_bare_product(make_graph: Callable[..., Graph]) -> None:
    op = operator(make_graph())
    h = torch.randn(30, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(gpr_propagate(h, torch.tensor([0.0, 1.0]), op), op.multiply(h, torch.empty_like(h)))


def test_permuting_nodes_permutes_the_result(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    order = np.random.default_rng(1).permutation(30)
    moved = from_scipy(graph.adj[order][:, order], graph.x[order], graph.y[order])
    coeffs = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    x = torch.as_tensor(graph.x).double()
    one = gpr_propagate(x, coeffs, operator(graph, dtype=torch.float64))[order]
    other = gpr_propagate(x[order], coeffs, operator(moved, dtype=torch.float64))
    torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


def test_wrong_shapes_are_refused(make_graph: Callable[..., Graph]) -> None:
    op = operator(make_graph())
    with pytest.raises(InputError, match="h must have 30 rows"):
        gpr_propagate(torch.zeros(29, 2), torch.ones(2), op)
    with pytest.raises(InputError, match="coeffs must be a vector"):
        gpr_propagate(torch.zeros(30, 2), torch.ones(2, 2, 2), op)
    with pytest.raises(InputError, match="coeffs must be a vector"):
        gpr_propagate(torch.zeros(30, 2), torch.ones(4, 2), op)
