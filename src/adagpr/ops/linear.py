r"""The linear maps at both ends of a network, and the dropout of sparse features.

``y = X W^T + b`` for a CSR matrix ``X`` of constants, which is never made dense. Dropout of ``X`` touches only stored
values (the others are zero either way). The backward pass needs ``X^T g``: the transpose's structure is made once, and
each step only reorders the dropped values into it.

Where ``X`` is sparse and there are kernels, `first_maps` of several networks are one call each way, with the bits of
dropout, map and ReLU one after another; on a small graph that takes a tenth of the time of a training step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops import kernels
from adagpr.ops.backend import backend_of, where_positive
from adagpr.ops.buffers import matrix
from adagpr.ops.dropout import MaskSource, dropout
from adagpr.ops.operator import csr_tensor, multiply, replace_values, transposed_order


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Constant sparse features as a torch CSR tensor; ``transpose.values() == matrix.values()[order]``."""

    matrix: Tensor
    transpose: Tensor
    order: Tensor

    @classmethod
    def from_scipy(cls, matrix: sp.csr_array, dtype: torch.dtype = torch.float32) -> SparseFeatures:
        """Makes both forms from a SciPy matrix."""
        transpose, order = transposed_order(matrix)
        return cls(csr_tensor(matrix, dtype), csr_tensor(transpose, dtype), order)

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and features."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def to(self, target: torch.dtype | torch.device | str) -> SparseFeatures:
        """The same features in another precision or on another device."""
        order = self.order if isinstance(target, torch.dtype) else self.order.to(target)
        return SparseFeatures(self.matrix.to(target), self.transpose.to(target), order)

    def dropped(self, rate: float, generator: np.random.Generator) -> SparseFeatures:
        """The features with each stored value zeroed at ``rate`` and the others scaled up."""
        values, masks = self.matrix.values(), MaskSource(rate, [generator])
        kept, reordered = backend_of(values).drop_values(values, masks, self.order)
        transpose = replace_values(self.transpose, reordered)
        return SparseFeatures(replace_values(self.matrix, kept), transpose, self.order)


Features = Tensor | SparseFeatures


def features(x: Tensor | sp.csr_array, dtype: torch.dtype = torch.float32) -> Features:
    """A graph's features as models take them."""
    return SparseFeatures.from_scipy(x, dtype) if isinstance(x, sp.csr_array) else x.to(dtype)


def drop_features(x: Features, rate: float, generator: np.random.Generator) -> Features:
    """Dropout of constant features, sparse ones stay sparse; at a rate of 0 they are returned and no word is drawn."""
    if rate == 0.0:
        return x
    return x.dropped(rate, generator) if isinstance(x, SparseFeatures) else dropout(x, rate, generator)


class _SparseLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: SparseFeatures, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.x = x
        return multiply(x.matrix, weight.t().contiguous(), weight.new_empty(x.shape[0], len(weight))).add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        grad = grad.contiguous()
        grad_weight = multiply(ctx.x.transpose, grad, grad.new_empty(ctx.x.shape[1], grad.shape[1]))
        return None, grad_weight.t(), grad.sum(0)


def linear(x: Features, weight: Tensor, bias: Tensor) -> Tensor:
    """Computes ``x @ weight.T + bias`` for sparse or dense ``x``, with ``weight`` laid out as in `torch.nn.Linear`."""
    if isinstance(x, SparseFeatures):
        result: Tensor = _SparseLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return torch.nn.functional.linear(x, weight, bias)


def first_maps(
    x: Features,
    rate: float,
    generators: Sequence[np.random.Generator],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
) -> Tensor:
    """``relu(drop(x) W^T + b)`` of several networks that share their features, one above the other.

    Each draws its own dropout, no word at a rate of 0; weights are laid out as in `torch.nn.Linear`.
    """
    fits = all(kernels.supports_dense(weight.t()) for weight in weights)
    # While somebody watches, every product is a call of its own.
    if (
        isinstance(x, SparseFeatures)
        and fits
        and kernels.supports_csr(x.matrix, weights[0])
        and not kernels.is_watched()
    ):
        result: Tensor = _FirstMaps.apply(x, rate, generators, *weights, *biases)  # type: ignore[no-untyped-call]
        return result
    blocks = [
        _first_map(drop_features(x, rate, generator), weight, bias)
        for generator, weight, bias in zip(generators, weights, biases, strict=True)
    ]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks)


def _first_map(x: Features, weight: Tensor, bias: Tensor) -> Tensor:
    if isinstance(x, SparseFeatures) or x.requires_grad:
        return linear(x, weight, bias).relu_()
    result: Tensor = _DenseMap.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return result


class _DenseMap(torch.autograd.Function):
    """The map of dense features; its large matrices are those of the epoch before."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        out = matrix(len(x), len(weight), x.dtype, x.device)
        torch.addmm(bias, x, weight.t(), out=out)
        ctx.save_for_backward(x, out.relu_())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        x, out = ctx.saved_tensors
        grad = where_positive(grad, out)
        return None, grad.t().mm(x), grad.sum(0)


class _FirstMaps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: SparseFeatures, rate: float, generators: Sequence[np.random.Generator], *parameters: Tensor
    ) -> Tensor:
        count, masks = len(generators), MaskSource(rate, generators)
        weights, biases = parameters[:count], parameters[count:]
        values, width = x.matrix.values(), len(biases[0])
        drawn = [masks.words(len(values), block) for block in range(count)] if rate > 0 else []
        kept, transposed = values.new_empty(2, count, len(values)) if rate > 0 else (None, None)
        out = matrix(count * x.shape[0], width, values.dtype)
        kernels.call_kernel(
            "first_maps", out.dtype, num_rows=x.shape[0], num_blocks=count, width=width, **kernels.csr_parts(x.matrix),
            words=kernels.addresses(drawn) if rate > 0 else None, threshold=masks.threshold, scale=masks.scale,
            order=x.order, kept=kept, transposed=transposed, weights=kernels.addresses(weights),
            biases=kernels.addresses(biases), out=out,
        )  # fmt: skip
        ctx.save_for_backward(out)
        ctx.x, ctx.values, ctx.count = x, transposed, count
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        grad = where_positive(grad.contiguous(), out)
        transpose = kernels.csr_parts(ctx.x.transpose)
        if ctx.values is not None:
            transpose["values"] = ctx.values
        (num_nodes, num_features), width = ctx.x.shape, grad.shape[1]
        weights = grad.new_empty(ctx.count, num_features, width)
        kernels.call_kernel(
            "first_maps_backward", grad.dtype, num_rows=num_features, num_blocks=ctx.count, width=width, **transpose,
            stride=0 if ctx.values is None else ctx.values.shape[1], grad=grad, grad_stride=num_nodes * width,
            out=weights,
        )  # fmt: skip
        biases = [block.sum(0) for block in grad.chunk(ctx.count)]
        return None, None, None, *(weight.t() for weight in weights.unbind()), *biases


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
    """``h[rows] W^T + b`` of the last hidden matrix, no row twice; ``weight`` is as in `torch.nn.Linear`."""
    result: Tensor = _LastMap.apply(h, rows, weight, bias)  # type: ignore[no-untyped-call]
    return result
