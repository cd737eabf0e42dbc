"""What every model is: logits from features and structure, named parameter groups, seeded randomness.

The linear map that models are made of is here, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from adagpr import seeding
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.ops import (
    Direction,
    DroppableOperator,
    Features,
    Operator,
    WeightMaps,
    drop_features,
    dropout,
    linear,
    map_shapes,
    operator,
    pair_norm,
    relu_dropout_,
)

T = TypeVar("T", int, float)

# The name of the only operator of a graph with one kind of edges.
EDGES = "edges"


class GraphSizes(Protocol):
    """What a model may choose its defaults by: a graph, or the manifest of a partition."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""

    @property
    def num_features(self) -> int:
        """Number of features."""

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse with the same weight."""


@dataclass(frozen=True)
class Capabilities:
    """What can be done with a model beyond training it alone on a graph in memory.

    Attributes:
        hop_weights: Its layers have a coefficient per hop, to be read, explained and exported: `Model.layer_views`,
            `Model.outer_maps`, `Model.hidden_matrices` and `Model.with_coefficients` exist.
        fused_stack: Its layers are one operation, `Model.trunk`, which can recompute or round what training keeps.
        batched: Several trainings can share their steps, see `adagpr.nn.BatchedModels`.
        partitioned: It can train on a partition of the graph.
        theory: The paper's generalisation bounds are about it.
        signed: With ``hop_weights``: its coefficients may be negative and need not sum to 1.
    """

    hop_weights: bool = False
    fused_stack: bool = False
    batched: bool = False
    partitioned: bool = False
    theory: bool = False
    signed: bool = False


@dataclass(frozen=True, eq=False)
class LayerView:
    r"""What one layer computes, to be read.

    .. math:: H_l = \mathrm{relu}\Big(\sum_A \sum_k \mu_{Ak} A^k H_{l-1} P_A + H_{l-1} E + H_0 Q + b\Big)

    Layers are numbered from 1. The coefficients :math:`\mu_{Ak}` are by the name of the operator ``A`` whose hops they
    weigh. `adagpr.nn.AdaGPRConv` says how :math:`P` and :math:`Q` come from ``weight``, which is two on top of one
    another unless ``weight_maps`` is ``"shared"``. With several operators ``weight`` is their maps on top of one
    another. ``own`` is :math:`E` and ``shift`` is :math:`b`, where a layer has them. A batch normalisation is in the
    maps and the shift; with ``row_norm``, its scale, the sum is normalised over the channels before the shift is added.
    """

    number: int
    coefficients: Mapping[str, Tensor]
    alpha: float
    beta: float
    weight: Tensor
    weight_maps: WeightMaps
    learned: bool
    own: Tensor | None = None
    shift: Tensor | None = None
    row_norm: Tensor | None = None

    def maps(self) -> tuple[Tensor, Tensor]:
        """The matrices ``P``, with ``1 - alpha`` in it, and ``Q``."""
        found = maps_of(self.weight, self.weight_maps, self.alpha, self.beta)
        return found[0] * (1 - self.alpha), found[0] * self.alpha if len(found) == 1 else found[1]

    def operator_maps(self) -> dict[str, Tensor]:
        """The matrix ``P`` of each operator, by its name."""
        if len(self.coefficients) == 1:
            return dict.fromkeys(self.coefficients, self.maps()[0])
        return dict(zip(self.coefficients, self.weight.chunk(len(self.coefficients)), strict=True))

    def residual_map(self) -> Tensor:
        """The matrix ``Q``; layers of several operators have none, that is zeros."""
        if len(self.coefficients) == 1:
            return self.maps()[1]
        return self.weight.new_zeros(self.weight.shape[1], self.weight.shape[1])


def maps_of(weight: Tensor, weight_maps: WeightMaps, alpha: float, beta: float) -> list[Tensor]:
    """The one or two maps of a layer; the identity goes into the small weight, not onto the large result."""
    shapes = map_shapes(weight_maps, alpha, beta)
    eye = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)
    parts = zip(weight.chunk(len(shapes)), shapes, strict=True)
    return [torch.add(eye * identity, part, alpha=factor) for part, (identity, factor) in parts]


class Linear(nn.Module):
    """``x @ weight.T + bias``; both start uniform in ``+-1/sqrt(in_channels)``, as `torch.nn.Linear` does.

    With ``along_outputs`` the weight, whose shape stays that of `torch.nn.Linear`'s, is stored along the outputs: a
    product with sparse features then reads it in order, without a transposed copy at every step.
    """

    __call__: Callable[..., Tensor]

    def __init__(self, in_channels: int, out_channels: int, along_outputs: bool = False) -> None:
        super().__init__()
        shape = (in_channels, out_channels) if along_outputs else (out_channels, in_channels)
        weight = torch.empty(shape)
        self.weight = nn.Parameter(weight.t() if along_outputs else weight)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws weights and biases anew."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        for parameter in (self.weight, self.bias):
            # Drawn in the order of the shape, whatever the layout: the numbers are those of every record.
            drawn = torch.empty(parameter.shape, dtype=parameter.dtype).uniform_(-bound, bound, generator=generator)
            with torch.no_grad():
                parameter.copy_(drawn)

    def forward(self, x: Features) -> Tensor:
        """Maps the rows of ``x``."""
        return linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"


def one_each(name: str, value: T | list[T], count: int, what: str) -> list[T]:
    """An argument that is one value, or a list of one per layer or the like, as that list."""
    values = value if isinstance(value, list) else [value] * count
    if len(values) != count:
        raise InputError(f"{name} must be one value or {count}, one per {what}, got {len(values)}.")
    return values


class Model(nn.Module):
    """Base of all models of the registry.

    A model is rebuilt by ``name``, ``arguments`` and ``state_dict()``. Its constructor is marked with
    `adagpr.arguments.checked`, which fills ``arguments``. Every model takes ``in_channels``, the number of features,
    and ``out_channels``, the number of classes; ``hidden_channels`` is the width of its hidden layers.

    Attributes:
        name: The name in the registry.
        paper: Authors and year.
        good_for: When to take it, in half a sentence.
        options_note: What `options_for` does, in sentences.
        training_defaults: Fields of the training's configuration that have another default with this model.
        groups: Names of parameters as patterns, each with the group whose decay they share; the first that fits counts.
        hop_0: The arguments with which it does not see the graph; none where there are no such.
        arguments: What the constructor was given, defaults included.
        dropout: Probability of dropping an element wherever the model drops.
        drop_edge: Probability of leaving out an edge while training, drawn anew at every step.
        pair_norm: Scale of PairNorm between layers, where there is one.
        recompute: With ``fused_stack``: whether training keeps half as many matrices and recomputes the others.
        saved_dtype: With ``fused_stack``: the precision in which training keeps them; their own unless given.
    """

    __call__: Callable[..., Tensor]
    name: ClassVar[str]
    paper: ClassVar[str]
    good_for: ClassVar[str]
    options_note: ClassVar[str] = ""
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    groups: ClassVar[tuple[tuple[str, str], ...]] = (("*", "convs"),)
    hop_0: ClassVar[Mapping[str, Any]] = {}
    arguments: dict[str, Any]
    dropout: float
    drop_edge: float
    pair_norm: float | None
    recompute: bool = False
    saved_dtype: torch.dtype | None = None

    def __init__(self, dropout: float, drop_edge: float = 0.0, pair_norm: float | None = None) -> None:
        super().__init__()
        self.dropout = dropout
        self.drop_edge = drop_edge
        self.pair_norm = pair_norm
        self._generator: np.random.Generator | None = None

    @classmethod
    def why_unavailable(cls) -> str | None:
        """Why the model cannot be built on this machine, as a sentence; none where it can."""
        return None

    @classmethod
    def options_for(cls, sizes: GraphSizes, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options of model and training whose defaults this model chooses by the graph and the options ``given``."""
        return {}

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

    @property
    def capabilities(self) -> Capabilities:
        """What can be done with this model, as it was built."""
        return Capabilities()

    def operators(
        self, graph: Graph, direction: Direction, self_loops: bool, dtype: torch.dtype
    ) -> dict[str, Operator]:
        """The operators that the model reads the graph through, by name; arguments as for `adagpr.operator`."""
        return {EDGES: operator(graph, direction, self_loops, dtype)}

    def prepare(self, graph: Graph, edges: Operator) -> Any:
        """What `forward` takes as its structure, made once per training; labels but those of training nodes are -1.

        There is an argument for each of the `operators`.
        """
        return DroppableOperator.from_graph(graph, edges) if self.drop_edge > 0 else edges

    def structure(
        self,
        graph: Graph,
        direction: Direction = "directed",
        self_loops: bool = True,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Any:
        """What `forward` takes as its structure: `prepare` with the operators of `operators` on that device."""
        made = self.operators(graph, direction, self_loops, dtype)
        return self.prepare(graph, **{name: item.to(device) for name, item in made.items()})

    def current_operator(self, structure: Operator | DroppableOperator) -> Operator:
        """The operator of this pass: while training with ``drop_edge``, a new draw."""
        if isinstance(structure, Operator):
            return structure
        return structure.draw(self.drop_edge, self.generator) if self.training else structure.full

    def drop(self, x: Tensor) -> Tensor:
        """Dropout of a hidden matrix while training."""
        return dropout(x, self.dropout, self.generator) if self.training and self.dropout > 0 else x

    def activate(self, z: Tensor) -> Tensor:
        """PairNorm where it has a scale, ReLU, and dropout while training, written over ``z``."""
        normed = z if self.pair_norm is None else pair_norm(z, self.pair_norm)
        return relu_dropout_(normed, self.dropout if self.training else 0.0, self.generator)

    def drop_features(self, x: Features) -> Features:
        """Dropout of the input features while training; sparse ones stay sparse."""
        return drop_features(x, self.dropout, self.generator) if self.training else x

    def chain(self, layers: Iterable[nn.Module], x: Features, *structure: Any) -> Tensor:
        """Each layer on what the one before gives: dropout before every layer, `activate` between them."""
        first, *rest = layers
        h: Tensor = first(self.drop_features(x), *structure)
        for layer in rest:
            h = layer(self.activate(h), *structure)
        return h

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The parameters by the name of their group; groups without any are left out."""
        found: dict[str, list[nn.Parameter]] = {group: [] for _, group in self.groups}
        for name, parameter in self.named_parameters():
            group = next(group for pattern, group in self.groups if fnmatchcase(name, pattern))
            found[group].append(parameter)
        return {group: parameters for group, parameters in found.items() if parameters}

    def coefficients(self) -> Tensor | None:
        """The weight of each hop in each layer, ``[num_layers, num_coeffs]``, where the model has such weights."""
        return None

    def hop_names(self) -> tuple[str, ...]:
        """What each column of `coefficients` weighs, in words."""
        found = self.coefficients()
        return () if found is None else tuple(f"hop {hop}" for hop in range(found.shape[1]))

    def layer_views(self) -> tuple[LayerView, ...]:
        """What each layer computes, first to last, detached from training; none where there are no ``hop_weights``."""
        return ()

    def outer_maps(self) -> tuple[Linear, Linear]:
        """With ``hop_weights``: the maps before and after the layers."""
        raise self._lacks("outer maps")

    def hidden_matrices(self, h_0: Tensor, structure: Any) -> Iterator[Tensor]:
        """With ``hop_weights``: the first hidden matrix ``h_0``, then what each layer makes of the one before."""
        raise self._lacks("hidden matrices")

    def with_coefficients(self, coeffs: Tensor) -> Self:
        """With ``hop_weights``: a copy with other coefficients, ``[num_layers, num_coeffs]``, fixed."""
        raise self._lacks("coefficients")

    def first(self, x: Features, models: Sequence[Any] = ()) -> Tensor:
        """With ``batched``: the first hidden matrix; of all ``models`` like this one, one above the other."""
        raise self._lacks("shared steps")

    def trunk(self, h_0: Tensor, structure: Any, models: Sequence[Any] = (), coeffs: Tensor | None = None) -> Tensor:
        """With ``fused_stack``: all layers at once, from the first hidden matrix to the input of the last map.

        With ``batched``, too, of ``models`` like this one, each of which has a block of rows. A caller that has the
        coefficients of all layers already, see `stacked_coefficients`, gives them.
        """
        raise self._lacks("fused layers")

    def stacked_coefficients(self, models: Sequence[Any]) -> Tensor:
        """With ``batched``: the coefficients of all layers of all models, one row per layer, depth by depth."""
        raise self._lacks("shared steps")

    def activation_bytes(self, num_nodes: int) -> int:
        """With ``fused_stack``: what training keeps for the backward pass unless it recomputes."""
        raise self._lacks("fused layers")

    def _lacks(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {what}; see its capabilities.")

    def logits_at(self, nodes: Tensor, x: Features, structure: Any) -> Tensor:
        """The logits of some nodes, none of them twice, for which less may be computed than for all."""
        return self(x, structure).index_select(0, nodes)

    def forward(self, x: Features, structure: Any) -> Tensor:
        """Logits of all nodes."""
        raise NotImplementedError(f"{type(self).__name__} has no forward pass")

    def extra_repr(self) -> str:
        """The arguments, for printing."""
        return ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
