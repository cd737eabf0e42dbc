r"""A stack of layers whose hops have weights of any sign, as one differentiable function.

.. math:: Z_l = \sum_d \Bigl( \sum_k c_{ldk} A_d^k \Bigr) Y_l W_{ld} + Y_l E_l, \qquad
          Y_{l+1} = \mathrm{drop}(\mathrm{relu}(\mathrm{norm}(Z_l)))

with one operator :math:`A_d` for each direction or relation, a map :math:`W_{ld}` of what comes by it and a map
:math:`E_l` of a node's own row. The norm takes mean and variance of each column over the nodes, of each row over its
columns, or nothing; a scale (not without a norm) and a shift for each column follow.

Maps come before hops, :math:`A^k (Y W)`: more than half of ``Y`` is 0 behind ReLU and dropout, which the kernels pass
over, and nothing else has to be multiplied on the way. So they do on the way back: with :math:`T_d = \sum_k c_{dk}
(A_d^\top)^k \, \partial Z`, the gradient of :math:`W_d` is :math:`Y^\top T_d`, that of :math:`E` is :math:`Y^\top
\partial Z`, and that of a coefficient is the inner product of :math:`(A_d^\top)^k \, \partial Z` with :math:`Y W_d`.
Kept for the backward pass are ``Y``, every ``Y W`` and, where there is a norm, ``Z``; or with ``recompute`` only ``Y``.
Memory does not grow with the number of hops. Blocks, dropout and ``saved_dtype`` are as in `adagpr.ops.residual_stack`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.errors import InputError
from adagpr.ops import kernels
from adagpr.ops.backend import Hops, TorchBackend, backend_of, where_positive
from adagpr.ops.buffers import matrix_like
from adagpr.ops.dropout import MaskSource
from adagpr.ops.fused_signed_stack import FusedSignedStack
from adagpr.ops.norms import Norm, norm_constants, with_gradient
from adagpr.ops.operator import Operator, require_rows


@dataclass(frozen=True)
class SignedLayers:
    """What does not learn in a stack."""

    # Of the repeated graph where there are several blocks; one for each direction or relation.
    operators: Sequence[Operator]
    norm: Norm
    # Whether hops beyond the last non-zero coefficient are left out; see `gpr_propagate`.
    skip_tail: bool
    # Dropout before the first layer and after each, drawn from one stream for each block.
    rate: float = 0.0
    generators: Sequence[np.random.Generator] = ()
    # Whether only the inputs of layers are kept, and the rest is computed again in the backward pass.
    recompute: bool = False
    # In which precision matrices are kept, by default their own.
    saved_dtype: torch.dtype | None = None
    # With the norm "batch": mean and variance to take instead of the matrix's own, ``[layers, blocks, 2, columns]``.
    moments: Tensor | None = None

    @property
    def masks(self) -> MaskSource:
        """Where the masks of dropout come from."""
        return MaskSource(self.rate, self.generators)

    @property
    def counts_rows(self) -> bool:
        """Whether mean and variance are those of the rows that are there."""
        return self.norm == "batch" and self.moments is None

    def weights_of(self, coeffs: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The weights of hops, ``[layers, operators, K, blocks]``, and how many hops each operator needs in a layer."""
        mu = np.ascontiguousarray(coeffs.detach().cpu().double().numpy().transpose(0, 1, 3, 2))
        is_used = mu.any(axis=3) if self.skip_tail else np.ones(mu.shape[:3], dtype=bool)
        return mu, np.maximum((is_used * np.arange(1, mu.shape[2] + 1)).max(axis=2), 1)

    def hops_of(self, coeffs: Tensor) -> list[list[Hops]]:
        """The weighted sums of hops of each operator in each layer, to which the rest is added as it is."""
        pairs = zip(*self.weights_of(coeffs), strict=True)
        return [
            [
                Hops(op, mu[:num_hops].tolist())
                for op, mu, num_hops in zip(self.operators, of_layer, counts, strict=True)
            ]
            for of_layer, counts in pairs
        ]

    def supports_fused_stack(self, h: Tensor) -> bool:
        """Whether all layers can be done in one call."""
        matrices = [op.single_matrix(transposed) for op in self.operators for transposed in (False, True)]
        fits = all(matrix is not None and kernels.supports_csr(matrix, h) for matrix in matrices)
        keeps_all = not self.recompute and self.saved_dtype in (None, h.dtype)
        fits = fits and kernels.supports_dense(h) and kernels.supports_square(h)
        return fits and keeps_all and not kernels.is_watched()

    def kept(self, h: Tensor) -> Tensor:
        """A matrix as it is kept for the backward pass."""
        return h if self.saved_dtype in (None, h.dtype) else matrix_like(h, self.saved_dtype).copy_(h)


class _SignedStack(torch.autograd.Function):
    """The stack layer by layer: any operator, device and precision."""

    @staticmethod
    def forward(
        ctx: Any,
        h_0: Tensor,
        coeffs: Tensor,
        layers: SignedLayers,
        keep: bool,
        scales: Tensor | None,
        shifts: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        depth, num_blocks = len(coeffs), coeffs.shape[2]
        backend, masks, hops, moments = backend_of(h_0), layers.masks, layers.hops_of(coeffs), None
        ys: list[Tensor] = []
        vs: list[Tensor] = []
        zs: list[Tensor] = []
        constants: list[Tensor] = []
        spare: list[Tensor] = []
        if layers.norm == "batch":
            moments = h_0.new_empty(depth, num_blocks, 2, h_0.shape[1], dtype=torch.float64)
            if layers.moments is not None:
                moments.copy_(layers.moments)
        y = matrix_like(h_0).copy_(h_0)
        if masks.rate > 0:
            masks.drop_(y).mul_(masks.scale)
        if keep:
            ys.append(layers.kept(y))
        num_rows = float(len(h_0) // num_blocks)
        for number in range(depth):
            maps = _maps(weights[number * num_blocks : (number + 1) * num_blocks], h_0.shape[1])
            *vs_here, own = _mapped(backend, maps, y)
            z = _summed(backend, hops[number], vs_here, own, spare)
            if moments is not None and layers.counts_rows:
                num_rows = _measure(layers.operators[0], backend, z, moments[number])
            measured = None if moments is None else moments[number]
            scale = None if scales is None else scales[number]
            constants.append(norm_constants(measured, scale, shifts[number], masks.scale))
            if keep and not layers.recompute:
                vs += [layers.kept(v) for v in vs_here]
                zs += [] if layers.norm == "none" else [layers.kept(z)]
            # Where z itself is not kept its memory is used.
            y = backend.normalise(z, constants[-1], layers.norm == "layer", matrix_like(z) if zs and zs[-1] is z else z)
            backend.relu_drop_(y, masks)
            if keep:
                ys.append(layers.kept(y))
        if keep:
            ctx.save_for_backward(*weights, *ys, *vs, *zs)
            ctx.layers, ctx.hops, ctx.shape, ctx.num_rows = layers, hops, coeffs.shape, num_rows
            ctx.constants, ctx.like = constants, h_0.new_empty(0)
        found = moments.to(h_0) if moments is not None and layers.counts_rows else None
        if found is not None:
            ctx.mark_non_differentiable(found)
        return y, found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        layers: SignedLayers = ctx.layers
        depth, num_ops, num_blocks, most = ctx.shape
        saved, times, by_row = list(ctx.saved_tensors), layers.masks.scale, layers.norm == "layer"
        like, sizes = ctx.like, (depth * num_blocks, depth + 1, depth * num_ops)
        weights, ys, vs, zs = (saved[sum(sizes[:i]) : sum(sizes[: i + 1]) if i < 3 else None] for i in range(4))
        backend, width = backend_of(grad.contiguous()), grad.shape[1]
        grad_coeffs = np.zeros((depth, num_ops, most, num_blocks))
        grad_columns = torch.zeros(depth, num_blocks, 2, width, dtype=torch.float64, device=grad.device)
        grad_weights: list[Tensor] = []
        spare: list[Tensor] = []
        # What is positive in a layer's output was positive and kept: the output is its own mask.
        grad = where_positive(grad, _as(ys[depth], like))
        for number in reversed(range(depth)):
            hops, y = ctx.hops[number], _as(ys[number], like)
            maps = _maps(weights[number * num_blocks : (number + 1) * num_blocks], width)
            # Without a norm nothing is read of z.
            z = grad
            if layers.recompute:
                *vs_here, own = _mapped(backend, maps, y)
                if layers.norm != "none":
                    z = _summed(backend, hops, vs_here, own, spare)
            else:
                vs_here = [_as(v, like) for v in vs[number * num_ops : (number + 1) * num_ops]]
                z = _as(zs[number], like) if zs else grad
            constants = ctx.constants[number]
            sums = backend.norm_sums(grad, z, constants, by_row)
            grad_columns[number] = sums
            if layers.counts_rows:
                constants = with_gradient(constants, layers.operators[0].sum_over_ranks(sums), ctx.num_rows)
            grad_z = backend.norm_backward(grad, z, constants, by_row, matrix_like(z))
            back = []
            for place, (of_op, v) in enumerate(zip(hops, vs_here, strict=True)):
                t, inner = backend.weighted_hops_backward(of_op, grad_z, v, spare, None, masked=False, keeps_grad=True)
                grad_coeffs[number, place, : len(inner)] = inner.cpu().numpy()
                back.append(t)
            back.append(grad_z)
            outers = [backend.outer_blocks(t, y, num_blocks) for t in back]
            grad_weights[:0] = [torch.cat([outer.t() for outer in of_block]) for of_block in zip(*outers, strict=True)]
            for place, (t, of_maps) in enumerate(zip(back, maps, strict=True)):
                backend.multiply_blocks(t, [one.t().contiguous() for one in of_maps], grad, adds=place > 0)
            grad = where_positive(grad, y)
        grad_columns *= times
        grad_scales = None if layers.norm == "none" else grad_columns[:, :, 1].to(like)
        given = torch.from_numpy(grad_coeffs.transpose(0, 1, 3, 2).copy()).to(like)
        return grad.mul_(times), given, None, None, grad_scales, grad_columns[:, :, 0].to(like), *grad_weights


def _maps(weights: Sequence[Tensor], width: int) -> list[list[Tensor]]:
    """The maps of a layer: of each operator, and of a node's own row at the end, one for each block."""
    return [list(maps) for maps in zip(*(weight.split(width) for weight in weights), strict=True)]


def _mapped(backend: TorchBackend, maps: Sequence[Sequence[Tensor]], y: Tensor) -> list[Tensor]:
    """What each of the maps makes of ``y``."""
    return [backend.multiply_blocks(y, of_maps, matrix_like(y)) for of_maps in maps]


def _summed(
    backend: TorchBackend, hops: Sequence[Hops], mapped: Sequence[Tensor], own: Tensor, spare: list[Tensor]
) -> Tensor:
    """The weighted hops of what each operator's map made, added to what the own map made."""
    for of_op, v in zip(hops, mapped, strict=True):
        own = backend.weighted_hops(of_op, v, spare, own)
    return own


def _measure(op: Operator, backend: TorchBackend, z: Tensor, moments: Tensor) -> float:
    """Writes mean and variance of each column over the rows of all ranks; returns the number of these."""
    num_own = len(z) // len(moments)
    sums, squares = backend.column_moments(z, len(moments))
    total = op.sum_over_ranks(torch.cat([sums, torch.full_like(sums[:1], num_own)]))
    num_rows = float(total[-1, 0])
    mean = total[:-1] / num_rows
    # Of the squares about another mean than a rank's own; with one rank it is the same.
    squares += num_own * (sums / max(num_own, 1) - mean).square()
    torch.stack([mean, op.sum_over_ranks(squares) / num_rows], dim=1, out=moments)
    return num_rows


def _as(kept: Tensor, like: Tensor) -> Tensor:
    """What was kept, in the precision that is computed in."""
    return kept if kept.dtype == like.dtype else matrix_like(kept, like.dtype).copy_(kept)


def signed_stack(
    h_0: Tensor,
    coeffs: Tensor,
    layers: SignedLayers,
    weights: Sequence[Tensor],
    scales: Tensor | None,
    shifts: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """Computes the stack, dropout before its first layer and after its last included.

    Args:
        h_0: A result of ReLU, one row per node: where it is 0 its gradient may be 0 too.
        coeffs: ``[layers, operators, blocks, K]``.
        layers: What does not learn.
        weights: Layer by layer, within a layer block by block: the maps of each operator and of a node's own row below
            one another, ``[(operators + 1) * columns, columns]``, each applied as ``Y @ W``.
        scales: What follows the norm, ``[layers, blocks, columns]``; not used without one.
        shifts: What is added then, ``[layers, blocks, columns]``.

    Returns:
        The output of the last layer and, for the norm "batch" by the rows that are there, mean and biased variance of
        each column, ``[layers, blocks, 2, columns]``, without gradient.
    """
    if len(layers.operators) != coeffs.shape[1]:
        raise InputError(f"The layers read {coeffs.shape[1]} operators, got {len(layers.operators)}.")
    for op in layers.operators:
        require_rows(op, h_0)
    # Asked here: within a function gradients are always off, and what needs them is not.
    keep = torch.is_grad_enabled()
    scales = None if layers.norm == "none" else scales
    function = FusedSignedStack if layers.supports_fused_stack(h_0) else _SignedStack
    given = (h_0.contiguous(), coeffs, layers, keep, scales, shifts, *(weight.contiguous() for weight in weights))
    y, moments = function.apply(*given)  # type: ignore[no-untyped-call]
    return y, moments
