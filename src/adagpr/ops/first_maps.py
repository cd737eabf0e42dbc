r"""The first map of networks that share their features: ``relu(drop(X) W^T + b)`` of each, on top of one another.

Where ``X`` is sparse and there are kernels, all networks are one call each way; their bits are those of dropout, map
and ReLU one after another. On a small graph that takes a tenth of the time of a training step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops import native
from adagpr.ops.dropout import draw_words, keep_scale, threshold
from adagpr.ops.propagate import where_positive
from adagpr.ops.scratch import matrix
from adagpr.ops.sparse_linear import Features, SparseFeatures, drop_features, linear

__all__ = ["first_maps"]


def first_maps(
    x: Features,
    rate: float,
    generators: Sequence[np.random.Generator],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
) -> Tensor:
    """The first hidden matrices of several networks, block by block.

    Args:
        x: The features that all share.
        rate: Probability of dropping a feature; at 0 no word is drawn.
        generators: Where each network's dropout draws from.
        weights: The weight of each network, laid out as in `torch.nn.Linear`.
        biases: The bias of each.
    """
    if isinstance(x, SparseFeatures) and _is_native(x, weights):
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


def _is_native(x: SparseFeatures, weights: Sequence[Tensor]) -> bool:
    """Whether the kernels can do it; while somebody watches, every product is one of its own."""
    fits = native.multiplies(x.matrix, weights[0]) and all(native.serves(weight.t()) for weight in weights)
    return fits and not native.is_watched()


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
        count = len(generators)
        weights, biases = parameters[:count], parameters[count:]
        values, width = x.matrix.values(), len(biases[0])
        words = kept = transposed = None
        if rate > 0:
            drawn = [draw_words(len(values), generator) for generator in generators]
            words = native.addresses(drawn)
            kept, transposed = values.new_empty(2, count, len(values))
        out = matrix(count * x.shape[0], width, values.dtype)
        native.call(
            "first", out.dtype, x.shape[0], count, width, *native.csr_parts(x.matrix), words, threshold(rate),
            keep_scale(rate), x.order, kept, transposed, native.addresses(weights), native.addresses(biases), out,
        )  # fmt: skip
        ctx.save_for_backward(out)
        ctx.x, ctx.values, ctx.count = x, transposed, count
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        grad = where_positive(grad.contiguous(), out)
        starts, columns, values = native.csr_parts(ctx.x.transpose)
        stride = 0 if ctx.values is None else len(values)
        weights = grad.new_empty(ctx.count, ctx.x.shape[1], grad.shape[1])
        native.call(
            "first_back", grad.dtype, ctx.x.shape[1], ctx.count, grad.shape[1], starts, columns,
            values if ctx.values is None else ctx.values, stride, grad, ctx.x.shape[0], weights,
        )  # fmt: skip
        biases = [block.sum(0) for block in grad.chunk(ctx.count)]
        return None, None, None, *(weight.t() for weight in weights.unbind()), *biases
