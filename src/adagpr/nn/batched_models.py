"""Several trainings of one model on one graph that share every step: `BatchedModels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from adagpr.nn.model import Model
from adagpr.ops import Features, Operator


class BatchedModels:
    """Models of equal arguments that share a graph and train at once: other seeds or other splits.

    On a small graph an epoch mostly starts many small operations. Here the hidden matrices of all models are stacked on
    top of one another, as if the graph were repeated side by side, and sparse products, dropout and activation are done
    once for all of them. Weights stay in their own models. Every number comes from the same operation on the same
    operands as in a training alone. All models have the capability ``batched``.
    """

    def __init__(self, models: Sequence[Model], structure: Operator | Sequence[Operator]) -> None:
        self.models = models
        self.structure: Any
        if isinstance(structure, Operator):
            self.structure = structure.repeated(len(models))
        else:
            self.structure = tuple(operator.repeated(len(models)) for operator in structure)
        self._coeffs: Tensor | None = None

    def __call__(self, x: Features, training: bool, nodes: Sequence[Tensor] = ()) -> tuple[Tensor, ...]:
        """The logits of each model, from features that all share; of its own ``nodes`` only, where they are given."""
        for model in self.models:
            model.training = training
        first = self.models[0]
        h_0, coeffs = first.first(x, self.models), first.stacked_coefficients(self.models)
        # The coefficients of an evaluation stay valid until the next training step.
        self._coeffs = None if training else coeffs
        h = first.trunk(h_0, self.structure, self.models, coeffs)
        blocks: Sequence[Tensor] = h.view(len(self.models), -1, h.shape[1]).unbind()
        if nodes:
            blocks = [block.index_select(0, own) for block, own in zip(blocks, nodes, strict=True)]
        return tuple(model.outer_maps()[1](block) for model, block in zip(self.models, blocks, strict=True))

    def coefficients(self) -> tuple[Tensor, ...]:
        """The weight of each hop in each layer, for each model."""
        with torch.no_grad():
            coeffs = self._coeffs
            if coeffs is None:
                coeffs = self.models[0].stacked_coefficients(self.models)
        return coeffs.view(-1, len(self.models), coeffs.shape[1]).unbind(1)
