"""Several trainings of one AdaGPR at once: other seeds or other splits, everything else the same.

On a small graph an epoch is mostly the start of many small operations. Here the hidden matrices of all replicas stand
on top of one another, as if the graph were repeated side by side, and sparse products, dropout and activation are done
once for all of them. Weights stay where they are, in the replicas' own models: dense products go replica by replica.
Every number comes from the same operation on the same operands as in a training alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.nn.adagpr import AdaGPR, project_all
from adagpr.nn.adagpr_conv import AdaGPRConv
from adagpr.nn.model import Model
from adagpr.ops import Features, Operator, dropout, gpr_propagate, projection, relu_dropout_

__all__ = ["Replicas"]


class _MapEach(torch.autograd.Function):
    """Each block of rows times ``(1 - beta) I + beta W`` with its own ``W``."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, beta: float, identity: Tensor, *weights: Tensor) -> Tensor:
        maps = [torch.add(identity, weight, alpha=beta) for weight in weights]
        ctx.save_for_backward(h, *maps)
        ctx.beta = beta
        out = torch.empty_like(h)
        for to, block, matrix in zip(out.chunk(len(maps)), h.chunk(len(maps)), maps, strict=True):
            torch.mm(block, matrix, out=to)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, *maps = ctx.saved_tensors
        grads = grad.contiguous().chunk(len(maps))
        grad_h = torch.empty_like(h)
        for to, block, matrix in zip(grad_h.chunk(len(maps)), grads, maps, strict=True):
            torch.mm(block, matrix.t(), out=to)
        blocks = zip(h.chunk(len(maps)), grads, strict=True)
        return grad_h, None, None, *(torch.mm(one.t(), other).mul_(ctx.beta) for one, other in blocks)


class Replicas:
    """Models of equal arguments that share a graph, computed together.

    Args:
        models: The models, each with its parameters and its stream of dropout; none of them is changed.
        operator: The graph's operator.
    """

    def __init__(self, models: Sequence[AdaGPR], operator: Operator) -> None:
        self.models = list(models)
        self.operator = operator.repeated(len(self.models))

    @staticmethod
    def can_hold(model: Model) -> bool:
        """Whether a model can be one of several: AdaGPR or GCNII with shared weight maps and nothing between layers."""
        return (
            isinstance(model, AdaGPR)
            and model.pair_norm is None
            and model.drop_edge == 0
            and all(conv.weight_maps == "shared" for conv in model.layers())
        )

    def __call__(self, x: Features, training: bool) -> tuple[Tensor, ...]:
        """The logits of each model.

        Args:
            x: The features that all share.
            training: Whether dropout is on.
        """
        first = self.models[0]
        generators = [model.generator for model in self.models]
        rate = first.dropout if training else 0.0
        for model in self.models:
            model.training = training
        h_0 = torch.cat([model.lin_in(model.drop_features(x)) for model in self.models]).relu_()
        residuals = {alpha: h_0 * alpha for alpha in {conv.alpha for conv in first.layers()}}
        h = dropout(h_0, rate, *generators)
        skip_tail = projection(first.projection).is_sparse
        for convs, coeffs in zip(self._layers(), self.coefficients(), strict=True):
            mu = coeffs * (1 - convs[0].alpha)
            s = gpr_propagate(h, mu, self.operator, skip_tail, residuals[convs[0].alpha])
            weights = [conv.weight for conv in convs]
            identity = convs[0].get_buffer("identity") * (1 - convs[0].beta)
            mapped: Tensor = _MapEach.apply(s, convs[0].beta, identity, *weights)  # type: ignore[no-untyped-call]
            h = relu_dropout_(mapped, rate, *generators)
        blocks = h.view(len(self.models), -1, h.shape[1]).unbind()
        return tuple(model.lin_out(block) for model, block in zip(self.models, blocks, strict=True))

    def coefficients(self) -> list[Tensor]:
        """The coefficients of each layer, ``[models, num_coeffs]``."""
        layers = [conv for convs in self._layers() for conv in convs]
        coeffs = project_all(layers, self.models[0].projection)
        count = len(self.models)
        return [torch.stack(coeffs[start : start + count]) for start in range(0, len(coeffs), count)]

    def _layers(self) -> list[tuple[AdaGPRConv, ...]]:
        """For each depth the layers of all models."""
        return list(zip(*(model.layers() for model in self.models), strict=True))
