"""What computes the inner loops of layers, one backend for each kind of device; `backend_of` chooses.

`TorchBackend` has torch's operations, for any device and type of numbers. `KernelBackend` has the kernels of
`adagpr.ops.kernels`, for contiguous float32 and float64 matrices on a CPU, and leaves what they do not support to
torch. The tests hold the two against each other. A backend for another device overrides what it does faster.

Rows may be several blocks of as many rows each, for several networks on one graph: weights are then given for each
block, and without them there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from adagpr.ops import kernels
from adagpr.ops.buffers import matrix_like
from adagpr.ops.norms import EPSILON
from adagpr.seeding import set_states, states_of

if TYPE_CHECKING:
    from adagpr.ops.dropout import MaskSource
    from adagpr.ops.operator import Operator

# The weights of one hop, one for each block of rows.
Weights = list[float]
_ONE_HOP = np.array([[0.0], [1.0]])


@dataclass(frozen=True)
class Hops:
    """A weighted sum of hops over ``A``, the operator or its transpose; ``share`` weighs what is added to the sum."""

    op: Operator
    mu: list[Weights]
    share: float = 1.0
    transposed: bool = False


def backend_of(h: Tensor) -> TorchBackend:
    """The backend that computes with a matrix."""
    return _KERNELS if kernels.supports_dense(h) else _TORCH


class TorchBackend:
    """Torch's operations."""

    def multiply(self, matrix: Tensor, h: Tensor, out: Tensor) -> Tensor:
        """A CSR tensor times ``h``, written into ``out``."""
        return out.addmm_(matrix, h, beta=0.0)

    def weighted_hops(self, hops: Hops, h: Tensor, spare: list[Tensor], plus: Tensor | None = None) -> Tensor:
        """``share * plus + sum_k mu[k] A^k h``; ``spare``, like ``h``, is written over and filled if too short."""
        op, mu, transposed = hops.op, hops.mu, hops.transposed
        _fill(spare, min(2, len(mu) - 1), h)
        if plus is None and len(mu) == 2 and set(mu[0]) == {0.0} and set(mu[1]) == {1.0}:
            return op.multiply(h, matrix_like(h), transposed)
        total = _scale(h, mu[0])
        if plus is not None:
            total.add_(plus, alpha=hops.share)
        power = h
        for k, weights in enumerate(mu[1:]):
            power = op.multiply(power, spare[k % 2], transposed)
            if set(weights) != {0.0}:
                _add(total, power, weights)
        return total

    def weighted_hops_backward(
        self,
        hops: Hops,
        grad: Tensor,
        h: Tensor,
        spare: list[Tensor],
        shared: Tensor | None,
        masked: bool,
        keeps_grad: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """The gradients of `weighted_hops` with respect to ``h`` and to the weights, ``[hops, blocks]``.

        ``grad`` may be written over unless ``keeps_grad``, ``share`` times it is added to ``shared``, which is the
        gradient of ``plus``, and if ``masked`` the gradient of ``h`` is 0 where ``h`` is not positive.
        """
        mu = hops.mu
        _fill(spare, min(2, len(mu) - 1), h)
        blocks = h.view(len(mu[0]), -1)
        inner = [_dots(grad, blocks)]
        total = _scale(grad, mu[0])
        power = grad
        for k, weights in enumerate(mu[1:]):
            power = hops.op.multiply(power, spare[k % 2], transposed=True)
            inner.append(_dots(power, blocks))
            if set(weights) != {0.0}:
                _add(total, power, weights)
        if shared is not None:
            shared.add_(grad, alpha=hops.share)
        return (where_positive(total, h) if masked else total), torch.stack(inner)

    def multiply_blocks(self, h: Tensor, maps: Sequence[Tensor], out: Tensor, adds: bool = False) -> Tensor:
        """Each block of rows times its own square matrix, added to what is in ``out`` if it ``adds``."""
        for to, block, matrix in zip(out.chunk(len(maps)), h.chunk(len(maps)), maps, strict=True):
            self._multiply_block(block, matrix, to, adds)
        return out

    def outer_blocks(self, s: Tensor, z: Tensor, num_blocks: int) -> list[Tensor]:
        """The transpose of each block of ``s`` times that of ``z``."""
        return [self._outer(one, two) for one, two in zip(s.chunk(num_blocks), z.chunk(num_blocks), strict=True)]

    def _multiply_block(self, h: Tensor, matrix: Tensor, out: Tensor, adds: bool) -> Tensor:
        return out.addmm_(h, matrix) if adds else torch.mm(h, matrix, out=out)

    def _outer(self, s: Tensor, z: Tensor) -> Tensor:
        return torch.mm(s.t(), z)

    def relu_drop_(self, x: Tensor, masks: MaskSource) -> Tensor:
        """In place: ReLU, then 0 where the mask drops; the rest is not scaled. At a rate of 0 no word is drawn."""
        return masks.drop_(x.relu_()) if masks.rate > 0 else x.relu_()

    def column_moments(self, z: Tensor, num_blocks: int) -> tuple[Tensor, Tensor]:
        """The sum of each column of each block and of the squares about its mean: float64, ``[blocks, columns]``."""
        blocks = z.view(num_blocks, -1, z.shape[1])
        sums = blocks.sum(1, dtype=torch.float64)
        means = (sums / blocks.shape[1]).unsqueeze(1)
        return sums, (blocks - means.to(z)).square_().sum(1, dtype=torch.float64)

    def normalise(self, z: Tensor, constants: Tensor, by_row: bool, out: Tensor) -> Tensor:
        """What the constants of `adagpr.ops.norms` make of ``z``, written into ``out``; ``by_row`` for layer norm."""
        blocks, into = (x.view(len(constants), -1, x.shape[1]) for x in (z, out))
        centre, inverse, factor, shift, *_ = constants.unsqueeze(2).unbind(1)
        if by_row:
            centre, inverse = _row_moments(blocks)
            return torch.sub(blocks, centre, out=into).mul_(inverse).mul_(factor).add_(shift).view_as(z)
        return torch.sub(blocks, centre, out=into).mul_(factor).add_(shift).view_as(z)

    def norm_sums(self, grad: Tensor, z: Tensor, constants: Tensor, by_row: bool) -> Tensor:
        """The sums over the rows of each block of the gradient and of its product with what was normalised.

        Returns float64, ``[blocks, 2, columns]``.
        """
        given, blocks = (x.view(len(constants), -1, x.shape[1]) for x in (grad, z))
        centre, inverse, *_ = constants.unsqueeze(2).unbind(1)
        if by_row:
            centre, inverse = _row_moments(blocks)
        products = (blocks - centre).mul_(inverse).mul_(given)
        return torch.stack([given.sum(1, dtype=torch.float64), products.sum(1, dtype=torch.float64)], dim=1)

    def norm_backward(self, grad: Tensor, z: Tensor, constants: Tensor, by_row: bool, out: Tensor) -> Tensor:
        """The gradient of ``z`` from that of `normalise`, written into ``out``."""
        given, blocks, into = (x.view(len(constants), -1, x.shape[1]) for x in (grad, z, out))
        centre, _, factor, _, pull, push = constants.unsqueeze(2).unbind(1)
        if by_row:
            centre, inverse = _row_moments(blocks)
            normed, scaled = (blocks - centre).mul_(inverse), given * factor
            both = normed * (normed * scaled).mean(2, keepdim=True) + scaled.mean(2, keepdim=True)
            return torch.sub(scaled, both, out=into).mul_(inverse).view_as(z)
        return torch.sub(blocks, centre, out=into).mul_(pull).add_(push).add_(given * factor).view_as(z)

    def drop(self, x: Tensor, masks: MaskSource) -> Tensor:
        """Dropout, scale included, without gradient."""
        return torch.mul(x, masks.draw(x)).mul_(masks.scale)

    def drop_values(self, values: Tensor, masks: MaskSource, order: Tensor) -> tuple[Tensor, Tensor]:
        """`drop` of a vector, and the result in another order."""
        kept = self.drop(values, masks)
        return kept, kept.index_select(0, order)


class KernelBackend(TorchBackend):
    """Kernels of our own, which do in one pass over memory what takes several operations of torch's."""

    def multiply(self, matrix: Tensor, h: Tensor, out: Tensor) -> Tensor:  # noqa: D102
        if not kernels.supports_csr(matrix, h):
            return super().multiply(matrix, h, out)
        return kernels.weighted_hops(matrix, h, _ONE_HOP, out, None, None, 0.0)

    def weighted_hops(self, hops: Hops, h: Tensor, spare: list[Tensor], plus: Tensor | None = None) -> Tensor:
        """By Horner's rule, ``mu[0] h + A (mu[1] h + A (...))``: what a hop adds is added as its product is made."""
        mu, share, matrix = hops.mu, hops.share, hops.op.single_matrix(hops.transposed)
        _fill(spare, min(1, len(mu) - 2), h)
        turns = (matrix_like(h), spare[0] if spare else h)
        if matrix is not None and kernels.supports_csr(matrix, h):
            return kernels.weighted_hops(matrix, h, np.array(mu), *turns, plus, share)
        # Rows that lie in several places are one block. As in the kernel, hops without weight at the end are left out.
        (*rest, (last,)) = without_tail(mu)
        x, factor, power = h, last, matrix_like(h) if rest else h
        # Without a product the matrix itself takes its place, and is not added to it.
        for k, (own,) in reversed(list(enumerate(rest or [[0.0]]))):
            if rest:
                hops.op.multiply(x, power, hops.transposed)
            x, before = turns[k % 2], plus if k == 0 and share != 0.0 else None
            kernels.call_kernel("hop", h.dtype, num_rows=len(h), width=h.shape[1], x=power, factor=factor, h=h, own=own,
                                plus=before, share=share, out=x)  # fmt: skip
            factor = 1.0
        return x

    def weighted_hops_backward(
        self,
        hops: Hops,
        grad: Tensor,
        h: Tensor,
        spare: list[Tensor],
        shared: Tensor | None,
        masked: bool,
        keeps_grad: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """With everything about a power of the operator done as it is made."""
        mu, matrix = hops.mu, hops.op.single_matrix(transposed=True)
        total, num_hops, num_blocks = matrix_like(h), len(mu), len(mu[0])
        _fill(spare, min(1 + keeps_grad, num_hops - 2), h)
        inner, room = np.empty((num_hops, num_blocks)), kernels.room_for_sums(len(h), num_blocks)
        added = {"shared": shared if hops.share != 0.0 else None, "share": hops.share}
        fixed = {**kernels.shape_of(h, num_blocks, grad, shared), **room, "h": h, "total": total}
        if matrix is not None and kernels.supports_csr(matrix, h):
            turns = {"spare": spare[0] if spare else None, "other": spare[1] if keeps_grad and spare[1:] else grad}
            kernels.call_kernel("weighted_hops_backward", h.dtype, **fixed, **kernels.csr_parts(matrix), **added,
                                **turns, num_hops=num_hops, mu=np.array(mu), first=grad, is_masked=masked,
                                inner=inner)  # fmt: skip
            return total, torch.from_numpy(inner)
        own, x, powers = np.array(mu[0]), grad, (matrix_like(h), matrix_like(h)) if num_hops > 1 else ()
        # Without a product the gradient itself takes its place, and is added with no weight.
        for k, weights in enumerate(mu[1:] or [[0.0] * num_blocks], start=1):
            x = hops.op.multiply(x, powers[k % 2], transposed=True) if powers else grad
            first = {"first": grad, **added} if k == 1 else {}
            kernels.call_kernel("hop_backward", h.dtype, **fixed, **first, mu=own, x=x, weight=np.array(weights),
                                is_masked=masked and k >= num_hops - 1)  # fmt: skip
            if k == 1:
                inner[0] = room["pairs"][1::2]
            if k < num_hops:
                inner[k] = room["pairs"][::2]
        return total, torch.from_numpy(inner)

    def _multiply_block(self, h: Tensor, matrix: Tensor, out: Tensor, adds: bool) -> Tensor:
        multiply = kernels.multiply_square if kernels.supports_square(h) else super()._multiply_block
        return multiply(h, matrix, out, adds)

    def _outer(self, s: Tensor, z: Tensor) -> Tensor:
        return kernels.outer(s, z) if kernels.supports_square(s) else super()._outer(s, z)

    def relu_drop_(self, x: Tensor, masks: MaskSource) -> Tensor:  # noqa: D102
        for part, words in masks.parts(x) if masks.rate > 0 else [(x, None)]:
            kernels.call_kernel("relu_drop", x.dtype, size=part.numel(), x=part, words=words, threshold=masks.threshold)
        return x

    def column_moments(self, z: Tensor, num_blocks: int) -> tuple[Tensor, Tensor]:  # noqa: D102
        if not kernels.supports_square(z):
            return super().column_moments(z, num_blocks)
        sums = kernels.normalise("column_moments", z, None, num_blocks)
        return sums[:, 0], sums[:, 1]

    def normalise(self, z: Tensor, constants: Tensor, by_row: bool, out: Tensor) -> Tensor:  # noqa: D102
        if not kernels.supports_square(z):
            return super().normalise(z, constants, by_row, out)
        kernels.normalise("normalise", z, None, len(constants), constants=constants, by_row=by_row, out=out)
        return out

    def norm_sums(self, grad: Tensor, z: Tensor, constants: Tensor, by_row: bool) -> Tensor:  # noqa: D102
        if not kernels.supports_square(z):
            return super().norm_sums(grad, z, constants, by_row)
        return kernels.normalise("norm_sums", z, grad, len(constants), constants=constants, by_row=by_row)

    def norm_backward(self, grad: Tensor, z: Tensor, constants: Tensor, by_row: bool, out: Tensor) -> Tensor:  # noqa: D102
        if not kernels.supports_square(z):
            return super().norm_backward(grad, z, constants, by_row, out)
        kernels.normalise("norm_backward", z, grad, len(constants), constants=constants, by_row=by_row, out=out)
        return out

    def drop(self, x: Tensor, masks: MaskSource) -> Tensor:
        """The words are drawn on the way."""
        if len(masks.generators) != 1:
            return super().drop(x, masks)
        out, states = matrix_like(x), states_of(masks.generators)
        words = np.empty(2 * masks.step // 4, dtype=np.uint64)
        kernels.call_kernel("drop", x.dtype, size=x.numel(), x=x, state=states, words=words, step=masks.step,
                            threshold=masks.threshold, scale=masks.scale, out=out)  # fmt: skip
        set_states(masks.generators, states)
        return out

    def drop_values(self, values: Tensor, masks: MaskSource, order: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        kept, reordered, words = torch.empty_like(values), torch.empty_like(values), masks.words(len(values))
        kernels.call_kernel("drop_values", values.dtype, size=len(values), values=values, words=words, order=order,
                            threshold=masks.threshold, scale=masks.scale, kept=kept, transposed=reordered)  # fmt: skip
        return kept, reordered


_TORCH, _KERNELS = TorchBackend(), KernelBackend()


def without_tail(mu: list[Weights]) -> list[Weights]:
    """The weights up to the last hop that has one which is not zero."""
    last = max((k for k, weights in enumerate(mu) if any(weights)), default=0)
    return mu[: last + 1]


def where_positive(grad: Tensor, y: Tensor) -> Tensor:
    """``grad`` where ``y`` is positive, else 0."""
    result: Tensor = torch.ops.aten.threshold_backward.grad_input(grad, y, 0, grad_input=matrix_like(y))
    return result


def _row_moments(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of each row, and what its deviations from it are multiplied by."""
    variance, mean = torch.var_mean(blocks, 2, correction=0, keepdim=True)
    return mean, (variance + EPSILON).rsqrt()


def _fill(spare: list[Tensor], count: int, h: Tensor) -> None:
    spare += [matrix_like(h) for _ in range(count - len(spare))]


def _scale(h: Tensor, weights: Weights) -> Tensor:
    """Each block of rows times its weight."""
    if len(weights) == 1:
        return torch.mul(h, weights[0], out=matrix_like(h))
    blocks = h.view(len(weights), -1)
    return (blocks * h.new_tensor(weights).unsqueeze(1)).view_as(h)


def _add(total: Tensor, h: Tensor, weights: Weights) -> None:
    """Adds each block of ``h`` times its weight to ``total``."""
    if len(weights) == 1:
        total.add_(h, alpha=weights[0])
    else:
        blocks = h.view(len(weights), -1)
        total.view_as(blocks).addcmul_(blocks, h.new_tensor(weights).unsqueeze(1))


def _dots(power: Tensor, blocks: Tensor) -> Tensor:
    """The inner product of each block of rows with its like."""
    pairs = zip(power.view_as(blocks).unbind(), blocks.unbind(), strict=True)
    return torch.stack([torch.dot(one, other) for one, other in pairs])
