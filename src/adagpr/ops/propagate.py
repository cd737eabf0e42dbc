r"""Generalized PageRank of a signal, ``sum_k coeffs[k] A^k h``, without powers of ``A``.

Forward by Horner's rule, ``K - 1`` sparse products into one running matrix. Backward by the power recurrence

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
from adagpr.ops.operator import Operator

__all__ = ["gpr_propagate"]


# The weights of one hop, one for each block of rows; without replicas there is one block.
Weights = list[float]


def _scale(h: Tensor, weights: Weights, out: Tensor | None = None) -> Tensor:
    """Each block of rows times its weight."""
    if len(weights) == 1:
        return torch.mul(h, weights[0], out=out)
    blocks = h.view(len(weights), -1)
    out = torch.empty_like(h) if out is None else out
    torch.mul(blocks, h.new_tensor(weights).unsqueeze(1), out=out.view_as(blocks))
    return out


def _add(base: Tensor, h: Tensor, weights: Weights, out: Tensor) -> Tensor:
    """``base`` plus each block of ``h`` times its weight, written into ``out``."""
    if len(weights) == 1:
        return torch.add(base, h, alpha=weights[0], out=out)
    blocks = h.view(len(weights), -1)
    torch.addcmul(base.view_as(blocks), blocks, h.new_tensor(weights).unsqueeze(1), out=out.view_as(blocks))
    return out


def _horner(matrix: Tensor, h: Tensor, mu: list[Weights], plus: Tensor | None = None) -> Tensor:
    """The sum, and ``plus`` added to it; what a product adds to is written into the matrix that it returns."""
    if len(mu) == 1:
        return _scale(h, mu[0]) if plus is None else _add(plus, h, mu[0], torch.empty_like(h))
    first, *rest = mu[:-1]
    total = h if set(mu[-1]) == {1.0} else _scale(h, mu[-1])
    buffers = [torch.empty_like(h) for _ in mu[1:3]]
    for number, weights in enumerate(reversed(rest)):
        total = _scale(h, weights, buffers[number % 2]).addmm_(matrix, total)
    out = buffers[len(rest) % 2]
    if plus is None and set(first) == {0.0}:
        return torch.addmm(h, matrix, total, beta=0.0, out=out)
    return (_scale(h, first, out) if plus is None else _add(plus, h, first, out)).addmm_(matrix, total)


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, coeffs: Tensor, plus: Tensor | None, op: Operator, skip_tail: bool) -> Tensor:
        mu: list[Weights] = coeffs.reshape(-1, coeffs.shape[-1]).t().tolist()
        if skip_tail:
            while len(mu) > 1 and set(mu[-1]) == {0.0}:
                mu.pop()
        ctx.save_for_backward(h)
        ctx.op, ctx.mu, ctx.coeffs = op, mu, torch.empty_like(coeffs, memory_format=torch.contiguous_format)
        return _horner(op.matrix, h, mu, plus)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        (h,) = ctx.saved_tensors
        mu: list[Weights] = ctx.mu
        needs_h, needs_coeffs, needs_plus = ctx.needs_input_grad[:3]
        grad_plus = grad if needs_plus else None
        power = grad.contiguous()
        if not needs_coeffs:
            return (_horner(ctx.op.transpose, power, mu) if needs_h else None), None, grad_plus, None, None
        blocks = h.view(len(mu[0]), -1)
        inner = [_dots(power, blocks)]
        total = _scale(power, mu[0]) if needs_h else None
        spare = [torch.empty_like(power) for _ in mu[1:3]]
        for k, weights in enumerate(mu[1:]):
            power = torch.addmm(power, ctx.op.transpose, power, beta=0.0, out=spare[k % 2])
            inner.append(_dots(power, blocks))
            if total is not None and set(weights) != {0.0}:
                _add(total, power, weights, total)
        grad_coeffs: Tensor = ctx.coeffs.zero_()
        grad_coeffs.view(len(mu[0]), -1)[:, : len(mu)] = torch.tensor(inner, dtype=grad.dtype).t()
        return total, grad_coeffs, grad_plus, None, None


def _dots(power: Tensor, blocks: Tensor) -> list[float]:
    """The inner product of each block with its like."""
    pairs = zip(power.view_as(blocks).unbind(), blocks.unbind(), strict=True)
    return [torch.dot(one, other).item() for one, other in pairs]


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
