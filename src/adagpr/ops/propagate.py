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
from adagpr.ops.backend import Hops, Weights, backend_of, without_tail
from adagpr.ops.operator import Operator


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, coeffs: Tensor, plus: Tensor | None, op: Operator, skip_tail: bool) -> Tensor:
        ctx.save_for_backward(h)
        mu: list[Weights] = coeffs.reshape(-1, coeffs.shape[-1]).t().tolist()
        ctx.hops, ctx.shape = Hops(op, without_tail(mu) if skip_tail else mu), coeffs.shape
        return backend_of(h).weighted_hops(ctx.hops, h, [], plus)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        (h,) = ctx.saved_tensors
        needs_h, needs_coeffs, needs_plus = ctx.needs_input_grad[:3]
        grad_h = grad_coeffs = None
        if needs_coeffs:
            first = grad.clone(memory_format=torch.contiguous_format)
            grad_h, inner = backend_of(h).weighted_hops_backward(ctx.hops, first, h, [], None, False)
            grad_coeffs = grad.new_zeros(ctx.shape)
            grad_coeffs.view(inner.shape[1], -1)[:, : len(inner)] = inner.t()
        elif needs_h:
            transposed = Hops(ctx.hops.op, ctx.hops.mu, transposed=True)
            grad_h = backend_of(h).weighted_hops(transposed, grad.contiguous(), [])
        return grad_h, grad_coeffs, (grad if needs_plus else None), None, None


def gpr_propagate(
    h: Tensor, coeffs: Tensor, op: Operator, skip_tail: bool = False, plus: Tensor | None = None
) -> Tensor:
    r"""Computes :math:`\sum_k \mu_k \tilde A^k h`, exact in value and gradient, also for an unsymmetric operator.

    Time is ``K - 1`` products of the operator with ``h`` each way; memory is that of one product whatever ``K`` is.

    Args:
        h: Signal, one row per node.
        coeffs: :math:`\mu`, one weight per hop from hop 0 on, a vector of length ``K >= 1``; or one such row for each
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
        >>> from adagpr.ops import operator
        >>> pair = operator(from_scipy([[0, 1], [1, 0]], [[1.0], [0.0]], [0, 1]))
        >>> gpr_propagate(torch.tensor([[1.0], [0.0]]), torch.tensor([0.5, 0.5]), pair).tolist()
        [[0.75], [0.25]]
    """
    if h.ndim != 2 or h.shape[0] != op.num_nodes:
        raise InputError(f"gpr_propagate: h must have {op.num_nodes} rows, one per node, got {tuple(h.shape)}.")
    if coeffs.ndim not in (1, 2) or coeffs.numel() == 0 or (coeffs.ndim == 2 and h.shape[0] % len(coeffs) != 0):
        raise InputError(f"gpr_propagate: coeffs must be a vector of at least one weight, got {tuple(coeffs.shape)}.")
    if plus is not None and plus.shape != h.shape:
        raise InputError(f"gpr_propagate: plus must have the shape of h, {tuple(h.shape)}, got {tuple(plus.shape)}.")
    result: Tensor = _Propagate.apply(h.contiguous(), coeffs, plus, op, skip_tail)  # type: ignore[no-untyped-call]
    return result
