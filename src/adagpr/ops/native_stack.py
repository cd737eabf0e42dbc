"""All layers of a residual stack in one call each way, for operators that are one matrix; see `residual_stack`.

The same kernels in the same order as layer by layer, hence the same bits, without what Python and torch take between
two of them: on a small graph that is a third of an epoch. Dropout draws the words that the generators would give, and
leaves them where they would be then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops import native
from adagpr.ops.dropout import threshold
from adagpr.ops.propagate import where_positive
from adagpr.ops.scratch import matrix, matrix_like
from adagpr.seeding import set_states, states_of

__all__ = ["NativeStack"]


class NativeStack(torch.autograd.Function):
    """The stack as one function; its arguments are those of `residual_stack`'s own."""

    @staticmethod
    def forward(ctx: Any, h_0: Tensor, coeffs: Tensor, layers: Any, keep: bool, *weights: Tensor) -> Tensor:
        """The output of the last layer."""
        num_rows, width = h_0.shape
        (depth, num_blocks), (mu, num_hops) = coeffs.shape[:2], layers.weights_of(coeffs)
        addresses = np.array([weight.data_ptr() for weight in weights], dtype=np.uint64)
        betas = np.repeat(np.array(layers.betas, dtype=np.float64), num_blocks)
        ys = matrix((depth + 1 if keep else 1) * num_rows, width, h_0.dtype)
        sums = matrix((depth if keep else 1) * num_rows, width, h_0.dtype)
        states = states_of(layers.generators) if layers.rate > 0 else None
        words = np.empty(-(-num_rows // num_blocks * width // 4) + 1, dtype=np.uint64)
        spare = matrix_like(h_0) if num_hops.max() > 2 else None
        native.call(
            "stack", h_0.dtype, depth, num_rows, num_blocks, width, *native.csr_parts(layers.operator.whole()), h_0,
            list(layers.alphas), num_hops, mu.shape[1], mu, addresses, betas,
            h_0.new_empty(len(weights), width, width), states, words, threshold(layers.rate), ys, sums,
            num_rows * width if keep else 0, spare,
        )  # fmt: skip
        if states is not None:
            set_states(layers.generators, states)
        if keep:
            ctx.save_for_backward(h_0, ys, sums, *weights)
            ctx.layers, ctx.num_hops, ctx.mu = layers, num_hops, mu
        return torch.mul(ys[-num_rows:], layers.scale, out=matrix_like(h_0))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the first matrix, of the coefficients and of the weights."""
        h_0, ys, sums, *weights = ctx.saved_tensors
        layers, num_hops, mu = ctx.layers, ctx.num_hops, ctx.mu
        (num_rows, width), (depth, most, num_blocks) = h_0.shape, mu.shape
        addresses = np.array([weight.data_ptr() for weight in weights], dtype=np.uint64)
        betas = np.repeat(np.array(layers.betas, dtype=np.float64), num_blocks)
        # What is positive in a layer's output was positive and kept: the output is its own mask.
        grad = where_positive(grad, ys[-num_rows:]).mul_(layers.scale)
        shared, back = matrix_like(h_0).zero_(), matrix_like(h_0)
        spare = matrix_like(h_0) if num_hops.max() > 2 else None
        segments = native.num_segments(num_rows // num_blocks)
        room, inner = h_0.new_empty(2 * len(weights) + segments, width, width), np.zeros(mu.shape)
        outers = room[: len(weights)]
        native.call(
            "stack_back", h_0.dtype, depth, num_rows, num_blocks, width,
            *native.csr_parts(layers.operator.whole(transposed=True)), list(layers.alphas), num_hops, most, mu,
            addresses, betas, room[len(weights) :], ys, sums, num_rows * width, grad, shared, outers, inner, back,
            spare, room[2 * len(weights) :], segments, np.empty(2 * num_blocks),
            np.empty(2 * native.count_chunks(num_rows, num_blocks)),
        )  # fmt: skip
        return shared.add_(grad), layers.coeff_gradients(inner, h_0), None, None, *outers.unbind()
