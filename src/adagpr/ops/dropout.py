r"""Dropout whose masks come from raw random words.

``F.dropout`` on a CPU draws one Bernoulli variable an element and costs as much as twenty sparse products of the same
matrix. Here one 64-bit word gives four elements: an element is kept when its 16 bits, read as a number, are at least
``threshold = round(rate * 65536)``. What is kept is divided by the exact probability of being kept, ``1 - threshold /
65536``, so the expectation is unbiased even where ``rate`` is not a multiple of 1/65536.

The words and their order are part of every recorded number: changing them changes all results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops import kernels
from adagpr.ops.buffers import matrix_like
from adagpr.seeding import set_states, states_of

_LEVELS = 1 << 16
# Masks are drawn for so many elements at a time, a multiple of four: they stay in the cache until they are used.
_PART = 1 << 18


def keep_mask(shape: tuple[int, ...], rate: float, generator: np.random.Generator) -> tuple[np.ndarray, float]:
    """Draws which elements stay.

    Args:
        shape: Shape of the mask.
        rate: Probability of dropping an element, in [0, 1).
        generator: Source of the raw words; ``ceil(size / 4)`` of them are taken.

    Returns:
        The mask as uint8 (1 stays, 0 is dropped), and the factor that what stays is multiplied by.
    """
    size = math.prod(shape)
    kept = draw_words(size, generator) >= threshold(rate)
    return kept.view(np.uint8).reshape(shape), keep_scale(rate)


def draw_words(size: int, generator: np.random.Generator) -> np.ndarray:
    """One 16-bit word an element."""
    words: np.ndarray = generator.bit_generator.random_raw(-(-size // 4)).view(np.uint16)
    return words[:size]


def keep_scale(rate: float) -> float:
    """What the elements that stay are multiplied by, so that the mean is kept."""
    return _LEVELS / (_LEVELS - threshold(rate))


def threshold(rate: float) -> int:
    """The least 16-bit word whose element stays."""
    return min(round(rate * _LEVELS), _LEVELS - 1)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return torch.mul(x, mask).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return torch.mul(grad, mask).mul_(ctx.scale), None, None


def dropout(x: Tensor, rate: float, *generators: np.random.Generator) -> Tensor:
    """Zeroes each element of ``x`` with probability ``rate`` and scales the others so that the mean is kept.

    Args:
        x: Tensor of any shape.
        rate: Probability of zeroing, in [0, 1). At 0 ``x`` itself is returned and no word is drawn.
        generators: Source of the mask; where there are several, each draws for its block of rows, all equally large.
    """
    if rate == 0.0:
        return x
    if not x.requires_grad and len(generators) == 1 and kernels.supports_dense(x):
        return _dropped(x, rate, generators[0])
    result: Tensor = _Dropout.apply(x, _draw_masks(x, rate, generators), keep_scale(rate))  # type: ignore[no-untyped-call]
    return result


def _dropped(x: Tensor, rate: float, generator: np.random.Generator) -> Tensor:
    """Dropout of what needs no gradient, in one pass."""
    out, states = matrix_like(x), states_of([generator])
    words = np.empty(2 * _PART // 4, dtype=np.uint64)
    kernels.call_kernel("drop", x.dtype, x.numel(), x, states, words, _PART, threshold(rate), keep_scale(rate), out)
    set_states([generator], states)
    return out


def drop_values(values: Tensor, rate: float, generator: np.random.Generator, order: Tensor) -> tuple[Tensor, Tensor]:
    """Dropout of a vector, without gradient: the result, and the result in another order."""
    if kernels.supports_dense(values):
        words = draw_words(len(values), generator)
        return kernels.drop_values(values, words, threshold(rate), keep_scale(rate), order)
    mask, scale = keep_mask((len(values),), rate, generator)
    kept = torch.mul(values, torch.from_numpy(mask).to(values.device)).mul_(scale)
    return kept, kept.index_select(0, order)


def relu_drop_(x: Tensor, rate: float, generators: Sequence[np.random.Generator]) -> Tensor:
    """`drop_` of ``x.relu_()``, in one pass where there are kernels for it; at a rate of 0 no word is drawn."""
    if not kernels.supports_dense(x):
        return drop_(x.relu_(), rate, generators) if rate > 0 else x.relu_()
    if rate == 0:
        return kernels.relu_drop_(x)
    for block, generator in zip(x.view(-1).chunk(len(generators)), generators, strict=True):
        for part in block.split(_PART):
            kernels.relu_drop_(part, draw_words(len(part), generator), threshold(rate))
    return x


def drop_(x: Tensor, rate: float, generators: Sequence[np.random.Generator]) -> Tensor:
    """Zeroes elements of a contiguous ``x`` in place, the others stay as they are; for generators see `dropout`."""
    for block, generator in zip(x.view(-1).chunk(len(generators)), generators, strict=True):
        for part in block.split(_PART):
            mask, _ = keep_mask((len(part),), rate, generator)
            part.mul_(torch.from_numpy(mask).to(x.device))
    return x


def _draw_masks(x: Tensor, rate: float, generators: Sequence[np.random.Generator]) -> Tensor:
    rows, *others = x.shape
    drawn = [keep_mask((rows // len(generators), *others), rate, generator)[0] for generator in generators]
    return torch.from_numpy(drawn[0] if len(drawn) == 1 else np.concatenate(drawn)).to(x.device)


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, generators: Sequence[np.random.Generator]) -> Tensor:
        ctx.mark_dirty(x)
        ctx.scale = keep_scale(rate)
        relu_drop_(x, rate, generators).mul_(ctx.scale)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # What is positive in the result was positive and kept: the result is its own mask.
        (result,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, result, 0).mul_(ctx.scale), None, None


def relu_dropout_(x: Tensor, rate: float, *generators: np.random.Generator) -> Tensor:
    """`dropout` of ``x.relu()``, written over ``x``; nothing is kept for the backward pass but the result."""
    if rate == 0.0:
        return x.relu_()
    result: Tensor = _ReluDropout.apply(x.contiguous(), rate, generators)  # type: ignore[no-untyped-call]
    return result
