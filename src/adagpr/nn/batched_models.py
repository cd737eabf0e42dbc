"""Several models of equal arguments that train at once: other seeds or other splits, everything else the same.

On a small graph an epoch mostly starts many small operations. Here the hidden matrices of all models are stacked on top
of one another, as if the graph were repeated side by side, and sparse products, dropout and activation are done once
for all of them. Weights stay in their own models. Every number comes from the same operation on the same operands as in
a training alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from adagpr.nn.adagpr import AdaGPR, padded_coeffs, side_by_side
from adagpr.nn.model import Model
from adagpr.ops import Features, Operator


class BatchedModels:
    """Models of equal arguments that share a graph, computed together.

    Args:
        models: The models, each with its parameters and its stream of dropout; all have the capability ``batched``.
        operator: The graph's operator.
    """

    def __init__(self, models: Sequence[Model], operator: Operator) -> None:
        self.models = [model for model in models if isinstance(model, AdaGPR)]
        self.operator = operator.repeated(len(self.models))
        self._convs = side_by_side(self.models)
        self._coeffs: Tensor | None = None

    def __call__(self, x: Features, training: bool, nodes: Sequence[Tensor] = ()) -> tuple[Tensor, ...]:
        """The logits of each model.

        Args:
            x: The features that all share.
            training: Whether dropout is on.
            nodes: For each model the nodes whose logits are needed; all by default.
        """
        for model in self.models:
            model.training = training
        first = self.models[0]
        h_0 = first.first(x, self.models)
        coeffs = padded_coeffs(self._convs, first.projection)
        # The coefficients of an evaluation stay valid until the next training step.
        self._coeffs = None if training else coeffs
        h = first.trunk(h_0, self.operator, self.models, self._convs, coeffs)
        blocks: Sequence[Tensor] = h.view(len(self.models), -1, h.shape[1]).unbind()
        if nodes:
            blocks = [block.index_select(0, own) for block, own in zip(blocks, nodes, strict=True)]
        return tuple(model.lin_out(block) for model, block in zip(self.models, blocks, strict=True))

    def coefficients(self) -> tuple[Tensor, ...]:
        """The weight of each hop in each layer, for each model."""
        coeffs = self._coeffs
        if coeffs is None:
            with torch.no_grad():
                coeffs = padded_coeffs(self._convs, self.models[0].projection)
        return coeffs.view(-1, len(self.models), coeffs.shape[1]).unbind(1)
