"""A signed stack in one call of a kernel each way; see `adagpr.ops.signed_stack` and ``kernels/signed.h``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops import kernels
from adagpr.ops.buffers import matrix, matrix_like
from adagpr.ops.norms import NUM_CONSTANTS
from adagpr.seeding import set_states, states_of


class FusedSignedStack(torch.autograd.Function):
    """The stack for operators that are one matrix each.

    The same kernels in the same order as layer by layer, hence the same bits, without the time of Python and torch in
    between. Dropout draws the words that the generators would give, and leaves them where they would be then.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h_0: Tensor,
        coeffs: Tensor,
        layers: Any,
        keep: bool,
        scales: Tensor | None,
        shifts: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """The output of the last layer, and what was measured."""
        (num_rows, width), (depth, num_ops, num_blocks, _) = h_0.shape, coeffs.shape
        mu, num_hops = layers.weights_of(coeffs)
        has_norm = layers.norm != "none"
        # Without a gradient the outputs of two layers are enough, and the sums of one.
        ys = matrix(depth * num_rows, width, h_0.dtype) if keep else None
        vs = matrix((depth if keep else 2) * num_ops * num_rows, width, h_0.dtype)
        zs = matrix((depth if keep and has_norm else 1) * num_rows, width, h_0.dtype)
        constants = h_0.new_empty(depth, num_blocks, NUM_CONSTANTS, width)
        moments = np.empty((depth, num_blocks, 2, width)) if layers.norm == "batch" else None
        if moments is not None and layers.moments is not None:
            moments[:] = layers.moments.detach().numpy()
        masks, last, states, words = layers.masks, matrix_like(h_0), None, None
        if masks.rate > 0:
            states = states_of(masks.generators)
            words = matrix(2 * num_blocks, -(-num_rows // num_blocks * width // 4), torch.int64)
        kernels.call_kernel(
            "signed_stack", h_0.dtype, **_of_layers(layers, h_0, mu, num_hops, weights), h_0=h_0,
            threshold=masks.threshold, states=states, words=words, stride=num_rows * width if keep else 0,
            scales=None if scales is None else scales.contiguous(), shifts=shifts.contiguous(), constants=constants,
            y=ys, v=vs, z=zs, last=last, own=matrix_like(h_0), turn=matrix_like(h_0) if num_ops > 1 else None,
            moments=moments, sums=np.empty((num_blocks, 2, width)),
        )  # fmt: skip
        if states is not None:
            set_states(masks.generators, states)
        if keep:
            ctx.save_for_backward(ys, vs, zs, last, *weights)
            ctx.layers, ctx.num_hops, ctx.mu, ctx.constants = layers, num_hops, mu, constants
        if moments is None or not layers.counts_rows:
            return last, None
        found = torch.from_numpy(moments).to(h_0)
        ctx.mark_non_differentiable(found)
        return last, found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of the first matrix, of the coefficients, of what norms learn and of the weights."""
        ys, vs, zs, last, *weights = ctx.saved_tensors
        layers, num_hops, mu = ctx.layers, ctx.num_hops, ctx.mu
        (num_rows, width), (depth, num_ops, _, num_blocks) = last.shape, mu.shape
        given, inner, sums = grad.contiguous(), np.zeros(mu.shape), np.empty((depth, num_blocks, 2, width))
        grad, dz, ts = matrix_like(last), matrix_like(last), matrix(num_ops * num_rows, width, last.dtype)
        segments, num_maps = kernels.num_segments(num_rows // num_blocks), len(weights) * (num_ops + 1)
        outers, maps = last.new_empty(2, num_maps, width, width)
        kernels.call_kernel(
            "signed_stack_backward", last.dtype, **_of_layers(layers, last, mu, num_hops, weights, transposed=True),
            stride=num_rows * width, y=ys, v=vs, z=zs, last=last, given=given, grad=grad, dz=dz, t=ts, maps=maps,
            constants=ctx.constants, outers=outers, inner=inner, sums=sums, num_segments=segments,
            partial=last.new_empty(num_blocks * segments * (num_ops + 1), width, width),
            **kernels.room_for_sums(num_rows, num_blocks),
        )  # fmt: skip
        grad_columns = torch.from_numpy(sums).mul_(layers.masks.scale).to(last)
        grad_scales = None if layers.norm == "none" else grad_columns[:, :, 1]
        grad_coeffs = torch.from_numpy(inner).transpose(2, 3).to(last)
        gradients = outers.view(len(weights), -1, width).unbind()
        return grad, grad_coeffs, None, None, grad_scales, grad_columns[:, :, 0], *gradients


def _of_layers(
    layers: Any, h: Tensor, mu: np.ndarray, num_hops: np.ndarray, weights: Sequence[Tensor], transposed: bool = False
) -> dict[str, Any]:
    """What both directions are given."""
    depth, num_ops, most_hops, num_blocks = mu.shape
    matrices = [kernels.csr_parts(op.single_matrix(transposed)) for op in layers.operators]
    return {
        **kernels.shape_of(h, num_blocks),
        **{key: kernels.addresses([parts[key] for parts in matrices]) for key in ("starts", "columns", "values")},
        "num_layers": depth,
        "num_operators": num_ops,
        "most_hops": most_hops,
        "num_hops": num_hops,
        "mu": mu,
        "weights": kernels.addresses(weights),
        "scale": layers.masks.scale,
        "by_row": layers.norm == "layer",
        "has_norm": layers.norm != "none",
        "measures": layers.counts_rows,
        "chunk_sums": np.empty((kernels.chunks_of(len(h), num_blocks), 2, h.shape[1])),
        "room": kernels.room_for_chunks(h, 4),
        "spare": matrix_like(h) if num_hops.max() > 2 else None,
    }
