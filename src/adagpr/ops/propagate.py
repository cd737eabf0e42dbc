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


def _horner(matrix: Tensor, h: Tensor, mu: list[float], plus: Tensor | None = None) -> Tensor:
    """The sum, and ``plus`` added to it; what a product adds to is written into the matrix that it will return."""
    if len(mu) == 1:
        return h * mu[0] if plus is None else torch.add(plus, h, alpha=mu[0])
    first, *rest = mu[:-1]
    total, factor = h, mu[-1]
    buffers = [torch.empty_like(h) for _ in mu[1:3]]
    for number, weight in enumerate(reversed(rest)):
        total = torch.addmm(h, matrix, total, beta=weight, alpha=factor, out=buffers[number % 2])
        factor = 1.0
    out = buffers[len(rest) % 2]
    if plus is None:
        return torch.addmm(h, matrix, total, beta=first, alpha=factor, out=out)
    return torch.add(plus, h, alpha=first, out=out).addmm_(matrix, total, alpha=factor)


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, coeffs: Tensor, plus: Tensor | None, op: Operator, skip_tail: bool) -> Tensor:
        mu: list[float] = coeffs.tolist()
        if skip_tail:
            while len(mu) > 1 and mu[-1] == 0.0:
                mu.pop()
        ctx.save_for_backward(h)
        ctx.op, ctx.mu, ctx.num_coeffs, ctx.coeffs_dtype = op, mu, len(coeffs), coeffs.dtype
        return _horner(op.matrix, h, mu, plus)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        (h,) = ctx.saved_tensors
        needs_h, needs_coeffs, needs_plus = ctx.needs_input_grad[:3]
        grad_plus = grad if needs_plus else None
        power = grad.contiguous()
        if not needs_coeffs:
            return (_horner(ctx.op.transpose, power, ctx.mu) if needs_h else None), None, grad_plus, None, None
        flat = h.reshape(-1)
        inner = [torch.dot(power.reshape(-1), flat)]
        total = power * ctx.mu[0] if needs_h else None
        spare = [torch.empty_like(power) for _ in ctx.mu[1:3]]
        for k, weight in enumerate(ctx.mu[1:]):
            power = torch.addmm(power, ctx.op.transpose, power, beta=0.0, out=spare[k % 2])
            inner.append(torch.dot(power.reshape(-1), flat))
            if total is not None and weight != 0.0:
                total.add_(power, alpha=weight)
        grad_coeffs = grad.new_zeros(ctx.num_coeffs, dtype=ctx.coeffs_dtype)
        grad_coeffs[: len(inner)] = torch.stack(inner)
        return total, grad_coeffs, grad_plus, None, None


def gpr_propagate(
    h: Tensor, coeffs: Tensor, op: Operator, skip_tail: bool = False, plus: Tensor | None = None
) -> Tensor:
    r"""Computes :math:`\sum_k \mu_k \tilde A^k h`, exact in value and gradient, also for an unsymmetric operator.

    Time is ``K - 1`` products of the operator with ``h`` each way; memory is that of one product whatever ``K`` is.

    Args:
        h: Signal, one row a node.
        coeffs: :math:`\mu`, one weight a hop from hop 0 on, a vector of length ``K >= 1``.
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
    if coeffs.ndim != 1 or len(coeffs) == 0:
        raise InputError(f"gpr_propagate: coeffs must be a vector of at least one weight, got {tuple(coeffs.shape)}.")
    if plus is not None and plus.shape != h.shape:
        raise InputError(f"gpr_propagate: plus must have the shape of h, {tuple(h.shape)}, got {tuple(plus.shape)}.")
    result: Tensor = _Propagate.apply(h.contiguous(), coeffs, plus, op, skip_tail)  # type: ignore[no-untyped-call]
    return result
