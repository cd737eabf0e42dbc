"""The last map of a network for some of its nodes: ``h[rows] W^T + b``, in memory of the epoch before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops.scratch import matrix

__all__ = ["last_map"]


class _LastMap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        selected = torch.index_select(h, 0, rows, out=matrix(len(rows), h.shape[1], h.dtype, h.device))
        ctx.save_for_backward(selected, rows, weight)
        ctx.num_rows = len(h)
        return torch.addmm(bias, selected, weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        selected, rows, weight = ctx.saved_tensors
        width, dtype, device = selected.shape[1], selected.dtype, selected.device
        of_selected = torch.mm(grad, weight, out=matrix(len(rows), width, dtype, device))
        of_h = matrix(ctx.num_rows, width, dtype, device).zero_().index_copy_(0, rows, of_selected)
        return of_h, None, grad.t().mm(selected), grad.sum(0)


def last_map(h: Tensor, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Maps some rows of ``h``.

    Args:
        h: The last hidden matrix.
        rows: Positions in it, none of them twice.
        weight: Laid out as in `torch.nn.Linear`.
        bias: One number for each output.
    """
    result: Tensor = _LastMap.apply(h, rows, weight, bias)  # type: ignore[no-untyped-call]
    return result
