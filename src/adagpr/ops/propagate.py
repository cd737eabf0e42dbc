r"""Generalized PageRank of a signal, ``sum_k coeffs[k] A^k h``, without powers of ``A``.

Forward ``K - 1`` sparse products, each added to the sum with its weight. Backward by the same recurrence,

.. math:: g_0 = g, \quad g_k = A^\top g_{k-1}, \quad
          \frac{\partial}{\partial \mu_k} = \langle g_k, h \rangle, \quad
          \frac{\partial}{\partial h} = \sum_k \mu_k g_k

which needs nothing from the forward pass but ``h``: memory does not grow with ``K``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.errors import InputError
from adagpr.ops import kernels
from adagpr.ops.buffers import matrix_like
from adagpr.ops.operator import Operator

# The weights of one hop, one for each block of rows; a model alone has one block.
Weights = list[float]


def _scale(h: Tensor, weights: Weights) -> Tensor:
    """Each block of rows times its weight."""
    if len(weights) == 1:
        return torch.mul(h, weights[0], out=matrix_like(h))
    blocks = h.view(len(weights), -1)
    return (blocks * h.new_tensor(weights).unsqueeze(1)).view_as(h)


def _add(total: Tensor, h: Tensor, weights: Weights) -> None:
    """Adds each block of ``h`` times its weight to ``total``."""
    if len(weights) == 1:
        total.add_(h, alpha=weights[0])
    else:
        blocks = h.view(len(weights), -1)
        total.view_as(blocks).addcmul_(blocks, h.new_tensor(weights).unsqueeze(1))


def weighted_hops(
    op: Operator,
    h: Tensor,
    mu: list[Weights],
    spare: list[Tensor],
    plus: Tensor | None = None,
    share: float = 1.0,
    transposed: bool = False,
) -> Tensor:
    """``share * plus + sum_k mu[k] A^k h``.

    Args:
        op: The operator ``A``.
        h: The signal.
        mu: The weights of each hop.
        spare: Matrices like ``h`` that are written over; filled here where they do not suffice.
        plus: A matrix that is added, or none.
        share: Its weight.
        transposed: Whether ``A`` is the transpose of the operator.
    """
    if kernels.supports_dense(h):
        return _hops_from_the_last(op, h, mu, spare, plus, share, transposed)
    _fill(spare, min(2, len(mu) - 1), h)
    if plus is None and len(mu) == 2 and set(mu[0]) == {0.0} and set(mu[1]) == {1.0}:
        return op.multiply(h, matrix_like(h), transposed)
    total = _scale(h, mu[0])
    if plus is not None:
        total.add_(plus, alpha=share)
    power = h
    for k, weights in enumerate(mu[1:]):
        power = op.multiply(power, spare[k % 2], transposed)
        if set(weights) != {0.0}:
            _add(total, power, weights)
    return total


def _hops_from_the_last(
    op: Operator, h: Tensor, mu: list[Weights], spare: list[Tensor], plus: Tensor | None, share: float, transposed: bool
) -> Tensor:
    """`weighted_hops` by Horner's rule, ``mu[0] h + A (mu[1] h + A (...))``: a hop adds as it multiplies."""
    _fill(spare, min(1, len(mu) - 2), h)
    turns = (matrix_like(h), spare[0] if spare else h)
    matrix = op.single_matrix(transposed)
    if matrix is not None and kernels.supports_csr(matrix, h):
        return kernels.weighted_hops(matrix, h, mu, *turns, plus, share)
    # Rows that lie in several places are one block. As in the kernel, hops without weight at the end are left out.
    (*rest, (last,)) = without_tail(mu)
    if not rest:
        return kernels.add_hop(h, last, h, 0.0, turns[0], plus, share)
    x, factor, power = h, last, matrix_like(h)
    for k, (own,) in reversed(list(enumerate(rest))):
        op.multiply(x, power, transposed)
        x = kernels.add_hop(power, factor, h, own, turns[k % 2], plus if k == 0 else None, share)
        factor = 1.0
    return x


def weighted_hops_gradients(
    op: Operator,
    grad: Tensor,
    h: Tensor,
    mu: list[Weights],
    spare: list[Tensor],
    shared: Tensor | None = None,
    share: float = 0.0,
    masked: bool = False,
) -> tuple[Tensor, list[Weights]]:
    """The gradients of `weighted_hops` with respect to ``h`` and to the weights, from that with respect to its result.

    Args:
        op: The operator of the mix.
        grad: Gradient of the result; may be written over.
        h: The signal.
        mu: The weights of each hop.
        spare: As `weighted_hops` has it.
        shared: Where ``share`` times the gradient is added to: that of ``plus``.
        share: The weight of ``plus``.
        masked: Whether the gradient of ``h`` is 0 where ``h`` is not positive.
    """
    if kernels.supports_dense(h):
        return _gradients_in_one_pass(op, grad, h, mu, spare, shared, share, masked)
    _fill(spare, min(2, len(mu) - 1), h)
    blocks = h.view(len(mu[0]), -1)
    inner = [_dots(grad, blocks)]
    total = _scale(grad, mu[0])
    power = grad
    for k, weights in enumerate(mu[1:]):
        power = op.multiply(power, spare[k % 2], transposed=True)
        inner.append(_dots(power, blocks))
        if set(weights) != {0.0}:
            _add(total, power, weights)
    if shared is not None:
        shared.add_(grad, alpha=share)
    return (where_positive(total, h) if masked else total), inner


def _gradients_in_one_pass(
    op: Operator,
    grad: Tensor,
    h: Tensor,
    mu: list[Weights],
    spare: list[Tensor],
    shared: Tensor | None,
    share: float,
    masked: bool,
) -> tuple[Tensor, list[Weights]]:
    """`weighted_hops_gradients` with everything about a power done as it is made."""
    total = matrix_like(h)
    _fill(spare, min(1, len(mu) - 2), h)
    matrix = op.single_matrix(transposed=True)
    if matrix is not None and kernels.supports_csr(matrix, h):
        return total, kernels.weighted_hops_backward(
            matrix, grad, h, mu, total, spare[0] if spare else None, shared, share, masked
        )
    none = [0.0] * len(mu[0])
    if len(mu) == 1:
        return total, [kernels.add_back(grad, grad, h, none, mu[0], total, shared, share, masked)[1]]
    inners: list[Weights] = []
    x, powers = grad, (matrix_like(h), matrix_like(h))
    for k, weights in enumerate(mu[1:]):
        x = op.multiply(x, powers[k % 2], transposed=True)
        first, extra = (grad, shared) if k == 0 else (None, None)
        is_masked = masked and k == len(mu) - 2
        with_power, with_first = kernels.add_back(x, first, h, weights, mu[0], total, extra, share, is_masked)
        inners += [with_first, with_power] if k == 0 else [with_power]
    return total, inners


def _fill(spare: list[Tensor], count: int, h: Tensor) -> None:
    spare += [matrix_like(h) for _ in range(count - len(spare))]


def where_positive(grad: Tensor, y: Tensor) -> Tensor:
    """``grad`` where ``y`` is positive, else 0."""
    result: Tensor = torch.ops.aten.threshold_backward.grad_input(grad, y, 0, grad_input=matrix_like(y))
    return result


def _dots(power: Tensor, blocks: Tensor) -> Weights:
    """The inner product of each block with its like."""
    if len(blocks) == 1:
        return [torch.dot(power.view(-1), blocks[0]).item()]
    pairs = zip(power.view_as(blocks).unbind(), blocks.unbind(), strict=True)
    return [torch.dot(one, other).item() for one, other in pairs]


def hop_weights(coeffs: Tensor, skip_tail: bool) -> list[Weights]:
    """The weights by hop, ``[K, blocks]``, with those at the end left out that are zero everywhere."""
    mu: list[Weights] = coeffs.reshape(-1, coeffs.shape[-1]).t().tolist()
    return without_tail(mu) if skip_tail else mu


def without_tail(mu: list[Weights]) -> list[Weights]:
    """The weights up to the last hop that has one which is not zero."""
    last = max((k for k, weights in enumerate(mu) if any(weights)), default=0)
    return mu[: last + 1]


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, coeffs: Tensor, plus: Tensor | None, op: Operator, skip_tail: bool) -> Tensor:
        ctx.save_for_backward(h)
        ctx.op, ctx.mu, ctx.shape = op, hop_weights(coeffs, skip_tail), coeffs.shape
        return weighted_hops(op, h, ctx.mu, [], plus)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        (h,) = ctx.saved_tensors
        needs_h, needs_coeffs, needs_plus = ctx.needs_input_grad[:3]
        grad_h = grad_coeffs = None
        if needs_coeffs:
            grad_h, inner = weighted_hops_gradients(
                ctx.op, grad.clone(memory_format=torch.contiguous_format), h, ctx.mu, []
            )
            grad_coeffs = grad.new_zeros(ctx.shape)
            grad_coeffs.view(len(inner[0]), -1)[:, : len(inner)] = grad.new_tensor(inner).t()
        elif needs_h:
            grad_h = weighted_hops(ctx.op, grad.contiguous(), ctx.mu, [], transposed=True)
        return grad_h, grad_coeffs, (grad if needs_plus else None), None, None


def gpr_propagate(
    h: Tensor, coeffs: Tensor, op: Operator, skip_tail: bool = False, plus: Tensor | None = None
) -> Tensor:
    r"""Computes :math:`\sum_k \mu_k \tilde A^k h`, exact in value and gradient, also for an unsymmetric operator.

    Time is ``K - 1`` products of the operator with ``h`` each way; memory is that of one product whatever ``K`` is.

    Args:
        h: Signal, one row a node.
        coeffs: :math:`\mu`, one weight a hop from hop 0 on, a vector of length ``K >= 1``; or one such row for each
            of several blocks of as many nodes, as `Operator.repeated` lays them out.
        op: The operator :math:`\tilde A`.
        skip_tail: Whether hops beyond the last non-zero coefficient are left out, in both directions, and get a
            gradient of 0. Exact behind a projection that passes no gradient there, such as sparsemax; with free
            coefficients it would kill the gradient of those that are zero, hence off by default.
        plus: A matrix like ``h`` that is added to the result, which costs nothing here.

    Raises:
        InputError: Shapes do not fit.

    Example:
        >>> from adagpr.graph import from_scipy
        >>> from adagpr.ops.operator import operator
        >>> pair = operator(from_scipy([[0, 1], [1, 0]], [[1.0], [0.0]], [0, 1]))
        >>> gpr_propagate(torch.tensor([[1.0], [0.0]]), torch.tensor([0.5, 0.5]), pair).tolist()
        [[0.75], [0.25]]
    """
    if h.ndim != 2 or h.shape[0] != op.num_nodes:
        raise InputError(f"gpr_propagate: h must have {op.num_nodes} rows, one a node, got {tuple(h.shape)}.")
    if coeffs.ndim not in (1, 2) or coeffs.numel() == 0 or (coeffs.ndim == 2 and h.shape[0] % len(coeffs) != 0):
        raise InputError(f"gpr_propagate: coeffs must be a vector of at least one weight, got {tuple(coeffs.shape)}.")
    if plus is not None and plus.shape != h.shape:
        raise InputError(f"gpr_propagate: plus must have the shape of h, {tuple(h.shape)}, got {tuple(plus.shape)}.")
    result: Tensor = _Propagate.apply(h.contiguous(), coeffs, plus, op, skip_tail)  # type: ignore[no-untyped-call]
    return result
