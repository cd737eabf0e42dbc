r"""From free scores to coefficients: maps onto the simplex, each behind one name.

A projection takes scores of shape ``[..., K]`` to weights that are at least 0 and sum to 1 over the last axis. The
paper's choice is ``exp-sparsemax``, :math:`\mu = \mathrm{sparsemax}(\exp v)`, where sparsemax is the nearest point of
the simplex (Martins and Astudillo, 2016). ``entmax-1.5`` is half way between softmax and sparsemax (Peters, Niculae
and Martins, 2019). ``exp-sum``, scores made positive by the exponential and divided by their sum, is softmax under the
name that the paper's text leads to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.errors import unknown_name

# exp(60) = 1e26 keeps differences of scores finite in float32; beyond it the result is one-hot anyway.
_LARGEST_EXPONENT = 60.0


class _Sparsemax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        # The result does not change when all scores are shifted; with the largest at 0 nothing cancels.
        scores = scores - scores.amax(-1, keepdim=True)
        ordered, _ = scores.sort(dim=-1, descending=True)
        sums = ordered.cumsum(-1) - 1
        ranks = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)
        size = (ranks * ordered > sums).sum(-1, keepdim=True).clamp_(min=1)
        threshold = sums.gather(-1, size - 1) / size
        weights = (scores - threshold).clamp_(min=0)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors
        support = (weights > 0).to(grad.dtype)
        mean = (grad * support).sum(-1, keepdim=True) / support.sum(-1, keepdim=True)
        result: Tensor = support * (grad - mean)
        return result


class _Entmax15(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        halves = (scores - scores.amax(-1, keepdim=True)) / 2
        ordered, _ = halves.sort(dim=-1, descending=True)
        ranks = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)
        mean = ordered.cumsum(-1) / ranks
        spread = ranks * (ordered.square().cumsum(-1) / ranks - mean.square())
        thresholds = mean - ((1 - spread) / ranks).clamp(min=0).sqrt()
        size = (thresholds <= ordered).sum(-1, keepdim=True).clamp_(min=1)
        weights = (halves - thresholds.gather(-1, size - 1)).clamp(min=0).square()
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors
        root = weights.sqrt()
        scaled = grad * root
        result: Tensor = scaled - scaled.sum(-1, keepdim=True) / root.sum(-1, keepdim=True) * root
        return result


def sparsemax(scores: Tensor) -> Tensor:
    """The nearest point of the simplex; often sparse."""
    result: Tensor = _Sparsemax.apply(scores)  # type: ignore[no-untyped-call]
    return result


def exp_sparsemax(scores: Tensor) -> Tensor:
    """Sparsemax of the exponential, the paper's choice.

    Sparsemax does not change when all its arguments are shifted, so ``exp(v) - exp(max v)`` is used, computed without
    cancellation: large scores stay exact instead of overflowing.
    """
    largest = scores.detach().amax(-1, keepdim=True)
    return sparsemax(largest.clamp(max=_LARGEST_EXPONENT).exp() * torch.expm1(scores - largest))


def softmax(scores: Tensor) -> Tensor:
    """Never sparse."""
    return scores.softmax(-1)


def exp_sum(scores: Tensor) -> Tensor:
    """Exponentials divided by their sum: softmax by another name."""
    positive = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    return positive / positive.sum(-1, keepdim=True)


def sphericalmax(scores: Tensor) -> Tensor:
    """Squares divided by their sum; all scores zero gives equal weights."""
    squares = scores.square() + torch.finfo(scores.dtype).tiny
    return squares / squares.sum(-1, keepdim=True)


def entmax15(scores: Tensor) -> Tensor:
    """Entmax with exponent 1.5, computed exactly by sorting; sparse, but less so than sparsemax."""
    result: Tensor = _Entmax15.apply(scores)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True)
class Projection:
    """A way from scores to coefficients; the identity where coefficients are given and not learned."""

    function: Callable[[Tensor], Tensor]
    # Whether weights can be exactly zero and then pass no gradient, so that trailing hops may be skipped.
    is_sparse: bool


# By the names that configurations use.
PROJECTIONS = {
    "exp-sparsemax": Projection(exp_sparsemax, True),
    "sparsemax": Projection(sparsemax, True),
    "entmax-1.5": Projection(entmax15, True),
    "softmax": Projection(softmax, False),
    "exp-sum": Projection(exp_sum, False),
    "sphericalmax": Projection(sphericalmax, False),
    "fixed": Projection(torch.clone, True),
}


def projection(name: str) -> Projection:
    """The projection of that name."""
    if name not in PROJECTIONS:
        raise unknown_name("projection", name, PROJECTIONS)
    return PROJECTIONS[name]
