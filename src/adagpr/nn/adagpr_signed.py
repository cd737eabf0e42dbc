r"""AdaGPR with signed hops: for graphs whose edges carry the signal, where `adagpr.nn.AdaGPR` falls behind.

.. math:: H_0 = \mathrm{relu}(X W_{in} + b), \quad H_l = \mathrm{relu}(\mathrm{conv}_l(H_{l-1})), \quad
          Z = H_L W_{out} + b

with `AdaGPRSignedConv` as ``conv``. Dropout comes before every layer and before the output map, and of the features
where ``feature_dropout`` says so. In place of AdaGPR's residual and identity, each layer has a map of its own for the
node itself.

On a directed graph the layers read edges forwards and backwards, each direction with coefficients and a map of its own;
both operators are divided by the roots of the degrees at both ends of an edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Nonnegative, Rate, checked
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn.adagpr_conv import Flag
from adagpr.nn.adagpr_signed_conv import AdaGPRSignedConv
from adagpr.nn.model import EDGES, Capabilities, GraphSizes, LayerView, Linear, Model
from adagpr.ops import (
    TOO_FEW_ROWS,
    Direction,
    Features,
    Norm,
    Operator,
    SignedLayers,
    directed_operator,
    first_maps,
    last_map,
    operator,
    signed_stack,
)

# The name of the operator that reads directed edges from their targets to their sources.
BACKWARD = "backward"

# With fewer nodes than this per feature, deep networks overfit the features: `benchmarks/both_layers.py`.
NODES_PER_FEATURE = 50
_FOR_MANY_FEATURES = {"num_layers": 2, "norm": "layer", "feature_dropout": 0.5}

Operators = Operator | Sequence[Operator]


class AdaGPRSigned(Model):
    """AdaGPR with signed hops and an own map for each node.

    Args:
        num_layers: Number of graph layers between the input and the output map.
        num_coeffs: Hops of each layer and direction, hop 0 included.
        directions: Whether edges are read one way, as ``direction`` says, or both ways, each with its own weights.
        own_map: Whether a node has a map of its own beside that of the hops.
        norm: Normalisation before the activation: over the nodes (``"batch"``), the channels (``"layer"``), or none.
        dropout: Probability of dropping an element of a hidden matrix.
        feature_dropout: Probability of dropping a feature.
        shrinkage: How far coefficients are pulled towards 0; those that get there are exactly 0, and their hops absent.

    Example:
        >>> model = AdaGPRSigned(in_channels=8, hidden_channels=16, out_channels=3, num_layers=2, num_coeffs=3)
        >>> model.coefficients().tolist()
        [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    """

    name = "adagpr-signed"
    paper = "extends Wimalawarne and Suzuki, 2021"
    good_for = "graphs whose edges carry the signal: layers may subtract hops and keep a node apart from its neighbours"
    options_note = (
        "The graph decides some of these unless they are set. "
        f"Fewer than {NODES_PER_FEATURE} nodes per feature: num_layers 2, norm "
        '"layer", feature_dropout 0.5. Directed edges: directions "both".'
    )
    groups = (
        ("convs.*.weight", "convs"),
        ("convs.*.scores", "coeffs"),
        ("convs.*", "norms"),
        ("lin_*", "linears"),
    )
    hop_0 = {"num_coeffs": 1, "directions": "one"}  # noqa: RUF012
    # Hop 0 is the node alone. The metric chooses the epoch: behind a batch normalisation the loss on new nodes rises
    # long before the order of their scores suffers.
    training_defaults = {  # noqa: RUF012
        "self_loops": False,
        "monitor": "val_metric",
        "feature_scaling": "auto",
    }

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 12,
        num_coeffs: Depth = 3,
        directions: Literal["one", "both"] = "one",
        own_map: Flag = True,
        norm: Norm = "batch",
        dropout: Rate = 0.2,
        feature_dropout: Rate = 0.0,
        shrinkage: Nonnegative = 0.0,
    ) -> None:
        super().__init__(dropout)
        self.feature_dropout = feature_dropout
        self.directions = directions
        self.own_map = own_map
        self.norm = norm
        self.lin_in = Linear(in_channels, hidden_channels, along_outputs=True)
        num_operators: Literal[1, 2] = 2 if directions == "both" else 1
        self.convs = nn.ModuleList(
            AdaGPRSignedConv(hidden_channels, num_coeffs, num_operators, own_map, norm, shrinkage)
            for _ in range(num_layers)
        )
        self.lin_out = Linear(hidden_channels, out_channels)

    @classmethod
    def options_for(cls, sizes: GraphSizes, given: Mapping[str, Any]) -> dict[str, Any]:
        """Directed edges are read both ways; where there are many features, layers are few and features are dropped."""
        is_directed = not sizes.is_symmetric and given.get("direction") != "symmetric"
        has_many_features = sizes.num_nodes < NODES_PER_FEATURE * sizes.num_features
        return {
            "directions": "both" if is_directed else "one",
            **(_FOR_MANY_FEATURES if has_many_features else {}),
        }

    @property
    def capabilities(self) -> Capabilities:
        """A partition has one operator, the theory too, and a layer normalisation is no weight map."""
        is_one = self.directions == "one"
        return Capabilities(
            hop_weights=True,
            fused_stack=True,
            batched=True,
            partitioned=is_one,
            theory=is_one and self.norm != "layer",
            signed=True,
        )

    def operators(
        self, graph: Graph, direction: Direction, self_loops: bool, dtype: torch.dtype
    ) -> dict[str, Operator]:
        """One operator, or one for each direction."""
        if self.directions == "one":
            return {EDGES: operator(graph, direction, self_loops, dtype)}
        if direction == "symmetric":
            raise InputError(f"{self.name}: directions 'both' needs direction 'directed', got 'symmetric'.")
        forward = directed_operator(graph, self_loops, dtype)
        return {EDGES: forward, BACKWARD: forward.reversed()}

    def prepare(self, graph: Graph, edges: Operator, backward: Operator | None = None) -> tuple[Operator, ...]:
        """The operators in order."""
        return (edges,) if backward is None else (edges, backward)

    def forward(self, x: Features, structure: Operators) -> Tensor:
        """Logits of all nodes; ``structure`` is what `prepare` made, or the only operator."""
        return self.lin_out(self.trunk(self.first(x), structure))

    def logits_at(self, nodes: Tensor, x: Features, structure: Operators) -> Tensor:
        """The logits of some nodes: only theirs go through the last map."""
        return last_map(self.trunk(self.first(x), structure), nodes, self.lin_out.weight, self.lin_out.bias)

    def first(self, x: Features, models: Sequence[AdaGPRSigned] = ()) -> Tensor:
        """The first hidden matrix; with ``models`` like this one, their matrices on top of one another."""
        models = models or (self,)
        weights, biases = [model.lin_in.weight for model in models], [model.lin_in.bias for model in models]
        rate = self.feature_dropout if self.training else 0.0
        return first_maps(x, rate, [model.generator for model in models], weights, biases)

    def trunk(
        self,
        h_0: Tensor,
        structure: Operators,
        models: Sequence[AdaGPRSigned] = (),
        coeffs: Tensor | None = None,
    ) -> Tensor:
        """All layers at once; with ``models`` like this one, each of which has a block of rows, theirs."""
        models = models or (self,)
        operators = [structure] if isinstance(structure, Operator) else structure
        is_measured, norm = self.training and self.norm == "batch", self.norm
        # A rank may have a single row of many.
        if is_measured and len(h_0) < 2 * len(models) and operators[0].single_matrix() is not None:
            raise InputError(TOO_FEW_ROWS)
        coeffs = self.stacked_coefficients(models) if coeffs is None else coeffs
        by_depth = list(zip(*(model.layers() for model in models), strict=True))
        moments = None
        if norm == "batch" and not is_measured:
            moments = torch.stack([torch.stack([conv.running_moments for conv in convs]) for convs in by_depth])
        layers = SignedLayers(
            operators,
            norm,
            skip_tail=self.layers()[0].shrinkage > 0,
            rate=self.dropout if self.training else 0.0,
            generators=[model.generator for model in models],
            recompute=self.recompute,
            saved_dtype=self.saved_dtype,
            moments=moments,
        )
        every = [conv for convs in by_depth for conv in convs]
        shape = len(by_depth), len(models), -1
        scales = None if norm == "none" else torch.stack([item for conv in every if (item := conv.scale) is not None])
        shifts = torch.stack([conv.shift for conv in every])
        h, found = signed_stack(
            h_0,
            coeffs.view(*shape[:2], *every[0].scores.shape).transpose(1, 2),
            layers,
            [conv.weights() for conv in every],
            None if scales is None else scales.view(shape),
            shifts.view(shape),
        )
        if is_measured and found is not None:
            for conv, moment in zip(every, found.flatten(0, 1), strict=True):
                conv.update_moments(moment)
        return h

    def stacked_coefficients(self, models: Sequence[AdaGPRSigned]) -> Tensor:
        """The coefficients of all layers of all models, depth by depth, one row per layer."""
        by_depth = zip(*(model.layers() for model in models), strict=True)
        scores = torch.stack([conv.scores for convs in by_depth for conv in convs])
        return self.layers()[0].coefficients_of(scores).flatten(1)

    def hidden_matrices(self, h_0: Tensor, structure: Operators) -> Iterator[Tensor]:
        """The first hidden matrix, then what each layer makes of the one before."""
        yield h_0
        h = self.drop(h_0)
        for conv in self.layers():
            h = self.activate(conv(h, structure))
            yield h

    def layer_views(self) -> tuple[LayerView, ...]:
        """What each layer computes, first to last."""
        width, views = self.lin_in.weight.shape[0], []
        for number, conv in enumerate(self.layers(), start=1):
            weight, shift, row_norm = conv.folded()
            coefficients = dict(zip(self.operator_names(), conv.coeffs().detach(), strict=True))
            maps, own = weight[:-width], weight[-width:] if self.own_map else None
            views.append(LayerView(number, coefficients, 0.0, 1.0, maps, "shared", True, own, shift, row_norm))
        return tuple(views)

    def with_coefficients(self, coeffs: Tensor) -> Self:
        """A copy that has these coefficients and goes through the same computation."""
        copy = deepcopy(self)
        for conv, own in zip(copy.layers(), coeffs, strict=True):
            conv.scores, conv.shrinkage = nn.Parameter(own.view_as(conv.scores).clone(), requires_grad=False), 0.0
        return copy

    def operator_names(self) -> tuple[str, ...]:
        """The names of the operators in order."""
        return (EDGES,) if self.directions == "one" else (EDGES, BACKWARD)

    def hop_names(self) -> tuple[str, ...]:
        """What each column of `coefficients` weighs, in words."""
        hops = range(self.layers()[0].num_coeffs)
        names = ("",) if self.directions == "one" else (" forward", " backward")
        return tuple(f"hop {hop}{name}" for name in names for hop in hops)

    def activation_bytes(self, num_nodes: int) -> int:
        """The matrices of each layer and eight others, in the precision in which they are kept."""
        width, kept = self.lin_in.weight.shape[0], len(self.layers()[0].scores) + 2
        return (kept * len(self.convs) + 8) * num_nodes * width * (self.saved_dtype or torch.float32).itemsize

    def outer_maps(self) -> tuple[Linear, Linear]:
        """The maps before and after the layers."""
        return self.lin_in, self.lin_out

    def layers(self) -> list[AdaGPRSignedConv]:
        """The graph layers, first to last."""
        return [conv for conv in self.convs if isinstance(conv, AdaGPRSignedConv)]

    def coefficients(self) -> Tensor:
        """The weight of each hop in each layer; with two directions first the hops forwards, then those backwards."""
        with torch.no_grad():
            return self.stacked_coefficients([self]).clone()
