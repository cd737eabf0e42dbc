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

from adagpr.ops import kernels
from adagpr.ops.buffers import matrix, matrix_like
from adagpr.ops.dropout import threshold
from adagpr.seeding import set_states, states_of


class NativeStack(torch.autograd.Function):
    """The stack as one function; its arguments are those of `residual_stack`'s own."""

    @staticmethod
    def forward(ctx: Any, h_0: Tensor, coeffs: Tensor, layers: Any, keep: bool, *weights: Tensor) -> Tensor:
        """The output of the last layer."""
        num_rows, width = h_0.shape
        (depth, num_blocks), (mu, num_hops) = coeffs.shape[:2], layers.weights_of(coeffs)
        ys = matrix((depth if keep else 1) * num_rows, width, h_0.dtype)
        sums = matrix((depth if keep else 1) * num_rows, width, h_0.dtype)
        last, spare = matrix_like(h_0), matrix_like(h_0) if num_hops.max() > 2 else None
        states = states_of(layers.generators) if layers.rate > 0 else None
        words = (
            matrix(2 * num_blocks, -(-num_rows // num_blocks * width // 4), torch.int64) if layers.rate > 0 else None
        )
        kernels.call_kernel(
            "stack", h_0.dtype, depth, num_rows, num_blocks, width, *kernels.csr_parts(layers.operator.single_matrix()),
            h_0, layers.shares, num_hops, mu.shape[1], mu, layers.num_maps, kernels.addresses(weights),
            layers.shapes(h_0, num_blocks), h_0.new_empty(len(weights) * layers.num_maps, width, width), states, words,
            threshold(layers.rate), layers.scale, ys, sums, num_rows * width if keep else 0, last, spare,
            kernels.room_for_chunks(h_0),
        )  # fmt: skip
        if states is not None:
            set_states(layers.generators, states)
        if keep:
            ctx.save_for_backward(h_0, ys, sums, last, *weights)
            ctx.layers, ctx.num_hops, ctx.mu = layers, num_hops, mu
        return last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the first matrix, of the coefficients and of the weights."""
        h_0, ys, sums, last, *weights = ctx.saved_tensors
        layers, num_hops, mu = ctx.layers, ctx.num_hops, ctx.mu
        (num_rows, width), (depth, most, num_blocks) = last.shape, mu.shape
        given, grad, shared, back = grad.contiguous(), matrix_like(last), matrix_like(last), matrix_like(last)
        spare = matrix_like(last) if num_hops.max() > 2 else None
        segments = kernels.num_segments(num_rows // num_blocks)
        num_maps = len(weights) * layers.num_maps
        room, inner = last.new_empty(2 * num_maps + segments, width, width), np.zeros(mu.shape)
        outers = room[:num_maps]
        # What is positive in a layer's output was positive and kept: the output is its own mask.
        kernels.call_kernel(
            "stack_back", last.dtype, depth, num_rows, num_blocks, width,
            *kernels.csr_parts(layers.operator.single_matrix(transposed=True)), layers.shares, num_hops, most, mu,
            layers.num_maps, kernels.addresses(weights), layers.shapes(h_0, num_blocks), room[num_maps:], h_0, ys, sums,
            num_rows * width, last, layers.scale, given, grad, shared, outers, inner, back, spare,
            room[2 * num_maps :], segments, np.empty(2 * num_blocks),
            np.empty(2 * kernels.count_chunks(num_rows, num_blocks)), kernels.room_for_chunks(last),
        )  # fmt: skip
        return grad, layers.coeff_gradients(inner, last), None, None, *outers.view(len(weights), -1, width).unbind()
