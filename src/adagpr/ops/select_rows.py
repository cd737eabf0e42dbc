"""Some rows of a large matrix, whose gradient is a matrix that is mostly zero."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops.scratch import matrix_like

__all__ = ["select_rows"]


class _SelectRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.like = h.new_empty(()).expand(h.shape)
        return h.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return matrix_like(ctx.like).zero_().index_add_(0, rows, grad), None


def select_rows(h: Tensor, rows: Tensor) -> Tensor:
    """``h[rows]``; the gradient lies in memory that is used again, see `adagpr.ops.scratch`."""
    result: Tensor = _SelectRows.apply(h, rows)  # type: ignore[no-untyped-call]
    return result
