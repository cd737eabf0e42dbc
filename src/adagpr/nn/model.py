"""What every model is: logits from features and structure, named parameter groups, seeded randomness."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from adagpr import seeding
from adagpr.graph import Graph
from adagpr.ops import DroppableOperator, Features, Operator, drop_features, dropout, pair_norm, relu_dropout_

__all__ = ["Model", "first_and_rest"]


def first_and_rest(layers: nn.ModuleList) -> dict[str, list[nn.Parameter]]:
    """The parameters of the first layer and those of the others, where there are others, as two groups."""
    groups = {"first": list(layers[0].parameters()), "rest": list(layers[1:].parameters())}
    return {name: group for name, group in groups.items() if group}


class Model(nn.Module):
    """Base of all models of the registry.

    A model is rebuilt by ``name``, ``arguments`` and ``state_dict()``. Its constructor is marked with
    `adagpr.arguments.checked`, which fills ``arguments``.

    Attributes:
        name: The name in the registry.
        paper: Authors and year.
        good_for: When to take it, in half a sentence.
        arguments: What the constructor was given, defaults included.
        dropout: Probability of dropping an element wherever the model drops.
        drop_edge: Probability of leaving out an edge while training, drawn anew at every step.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    good_for: ClassVar[str]
    arguments: dict[str, Any]
    dropout: float
    drop_edge: float

    def __init__(self, dropout: float, drop_edge: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.drop_edge = drop_edge
        self._generator: np.random.Generator | None = None

    @property
    def generator(self) -> np.random.Generator:
        """The stream that dropout draws from; unless `seed` was called it follows torch's global seed."""
        if self._generator is None:
            self._generator = seeding.stream(int(torch.randint(2**62, ())), "dropout")
        return self._generator

    def seed(self, seed: int) -> None:
        """Draws all parameters anew and restarts dropout, both as ``seed`` says."""
        self.reset_parameters(seeding.torch_generator(seed, "parameters"))
        self.restart_dropout(seed)

    def restart_dropout(self, seed: int, purpose: str = "dropout") -> None:
        """Has dropout draw from the beginning of a stream; see `adagpr.seeding.stream`."""
        self._generator = seeding.stream(seed, purpose)

    def train(self, mode: bool = True) -> Self:
        """Turns dropout on or off; the mode changes twice an epoch, and torch's own way takes a percent of it."""
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws the parameters of every part anew, in the order in which they were made."""
        for child in self.modules():
            reset = getattr(child, "reset_parameters", None)
            if child is not self and reset is not None:
                reset(generator)

    def prepare(self, graph: Graph, operator: Operator) -> Any:
        """What `forward` takes as its structure, made once a training; by default the operator, on whose device it is.

        The labels of ``graph`` are those of the training nodes; all others are -1.
        """
        return DroppableOperator.from_graph(graph, operator) if self.drop_edge > 0 else operator

    def operator(self, structure: Operator | DroppableOperator) -> Operator:
        """The operator of this pass: while training with ``drop_edge``, a new draw."""
        if isinstance(structure, Operator):
            return structure
        return structure.draw(self.drop_edge, self.generator) if self.training else structure.full

    def drop(self, x: Tensor) -> Tensor:
        """Dropout of a hidden matrix while training."""
        return dropout(x, self.dropout, self.generator) if self.training and self.dropout > 0 else x

    def activate(self, z: Tensor, scale: float | None = None) -> Tensor:
        """PairNorm where it has a scale, ReLU, and dropout while training, written over ``z``."""
        normed = z if scale is None else pair_norm(z, scale)
        return relu_dropout_(normed, self.dropout if self.training else 0.0, self.generator)

    def drop_features(self, x: Features) -> Features:
        """Dropout of the input features while training; sparse ones stay sparse."""
        return drop_features(x, self.dropout, self.generator) if self.training else x

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The parameters by the name of the group whose decay they share."""
        raise NotImplementedError(f"{type(self).__name__} does not name its parameter groups")

    def coefficients(self) -> Tensor | None:
        """The weight of each hop in each layer, ``[num_layers, num_coeffs]``, where the model has such weights."""
        return None

    def logits_at(self, nodes: Tensor, x: Features, structure: Any) -> Tensor:
        """The logits of some nodes, none of them twice, for which less may be computed than for all."""
        logits: Tensor = self(x, structure)
        return logits.index_select(0, nodes)

    def forward(self, x: Features, structure: Any) -> Tensor:
        """Logits of all nodes."""
        raise NotImplementedError(f"{type(self).__name__} has no forward pass")
