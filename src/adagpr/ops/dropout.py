r"""What follows a layer's map: dropout whose masks come from raw random words, and PairNorm.

``F.dropout`` on a CPU draws one Bernoulli variable per element and costs as much as twenty sparse products of the same
matrix. Here one 64-bit word gives four elements: an element is kept when its 16 bits, read as a number, are at least
``threshold = round(rate * 65536)``. What is kept is divided by the exact probability of being kept, ``1 - threshold /
65536``, so the expectation is unbiased even where ``rate`` is not a multiple of 1/65536.

The words and their order are part of every recorded number: changing them changes all results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops.backend import backend_of

_LEVELS = 1 << 16
_EPSILON = 1e-5


@dataclass(frozen=True)
class MaskSource:
    """Where the masks of dropout come from, at a rate in [0, 1)."""

    rate: float
    # Where there are several, each draws for its block of rows, all equally large: ``ceil(size / 4)`` words.
    generators: Sequence[np.random.Generator]
    # Elements whose words are drawn at a time, a multiple of four: they stay in the cache until they are used.
    step: ClassVar[int] = 1 << 18

    @property
    def threshold(self) -> int:
        """The least 16-bit word whose element is kept."""
        return min(round(self.rate * _LEVELS), _LEVELS - 1)

    @property
    def scale(self) -> float:
        """What the elements that are kept are multiplied by, so that the mean is kept."""
        return _LEVELS / (_LEVELS - self.threshold)

    def words(self, size: int, block: int = 0) -> np.ndarray:
        """One 16-bit word per element."""
        words: np.ndarray = self.generators[block].bit_generator.random_raw(-(-size // 4)).view(np.uint16)
        return words[:size]

    def parts(self, x: Tensor) -> Iterator[tuple[Tensor, np.ndarray]]:
        """Parts of a contiguous ``x`` and their words."""
        for number, block in enumerate(x.view(-1).chunk(len(self.generators))):
            for part in block.split(self.step):
                yield part, self.words(len(part), number)

    def draw(self, x: Tensor) -> Tensor:
        """A mask of the shape of ``x``: 1 where an element is kept, 0 where it is dropped."""
        count = len(self.generators)
        drawn = [self.words(x.numel() // count, block) >= self.threshold for block in range(count)]
        kept = drawn[0] if count == 1 else np.concatenate(drawn)
        return torch.from_numpy(kept.view(np.uint8).reshape(x.shape)).to(x.device)

    def drop_(self, x: Tensor) -> Tensor:
        """Zeroes elements of a contiguous ``x`` in place; the others are not scaled."""
        for part, words in self.parts(x):
            part.mul_(torch.from_numpy((words >= self.threshold).view(np.uint8)).to(x.device))
        return x


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, masks: MaskSource) -> Tensor:
        mask = masks.draw(x)
        ctx.save_for_backward(mask)
        ctx.scale = masks.scale
        return torch.mul(x, mask).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return torch.mul(grad, mask).mul_(ctx.scale), None


def dropout(x: Tensor, rate: float, *generators: np.random.Generator) -> Tensor:
    """Zeroes each element of ``x`` with probability ``rate`` and scales the others so that the mean is kept.

    At a rate of 0 ``x`` itself is returned and no word is drawn.
    """
    if rate == 0.0:
        return x
    masks = MaskSource(rate, generators)
    if not x.requires_grad:
        return backend_of(x).drop(x, masks)
    result: Tensor = _Dropout.apply(x, masks)  # type: ignore[no-untyped-call]
    return result


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, masks: MaskSource) -> Tensor:
        ctx.mark_dirty(x)
        ctx.scale = masks.scale
        backend_of(x).relu_drop_(x, masks).mul_(ctx.scale)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        # What is positive in the result was positive and kept: the result is its own mask.
        (result,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, result, 0).mul_(ctx.scale), None


def relu_dropout_(x: Tensor, rate: float, *generators: np.random.Generator) -> Tensor:
    """`dropout` of ``x.relu()``, written over ``x``; nothing is kept for the backward pass but the result."""
    if rate == 0.0:
        return x.relu_()
    result: Tensor = _ReluDropout.apply(x.contiguous(), MaskSource(rate, generators))  # type: ignore[no-untyped-call]
    return result


def pair_norm(x: Tensor, scale: float) -> Tensor:
    r"""Keeps the mean squared distance between nodes from shrinking with depth (Zhao and Akoglu, 2020).

    .. math:: \hat x_i = x_i - \bar x, \qquad x_i' = s \, \hat x_i / \sqrt{\tfrac{1}{N} \sum_j |\hat x_j|^2 + \epsilon}

    The mean squared length of the rows becomes ``scale ** 2``, which couples all nodes.
    """
    centred = x - x.mean(0)
    return scale * centred / (centred.square().sum(1).mean() + _EPSILON).sqrt()
