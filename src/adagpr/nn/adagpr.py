r"""AdaGPR (Wimalawarne and Suzuki, 2021): a deep residual graph network with its own PageRank at every layer.

.. math:: H_0 = \mathrm{relu}(X W_{in} + b), \quad H_l = \mathrm{relu}(\mathrm{conv}_l(H_{l-1}, H_0)), \quad
          Z = H_L W_{out} + b

with `AdaGPRConv` as ``conv``. Dropout of one rate comes before the input map, before every layer and before the output
map; :math:`H_0` enters the layers undropped. Where the paper's print and its authors' code differ (shape of the last
weight, sign of the simplex) the code holds, because only it is consistent.

Coefficients fixed at hop 1 give GCNII, at hop 0 a residual network without a graph, equal ones the paper's ablation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Self

import torch
from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Finite, Fraction, Positive, Rate, checked
from adagpr.nn.adagpr_conv import AdaGPRConv, ProjectionName
from adagpr.nn.model import EDGES, Capabilities, LayerView, Linear, Model, one_each
from adagpr.ops import (
    DroppableOperator,
    Features,
    Layers,
    Operator,
    WeightMaps,
    first_maps,
    last_map,
    projection,
    residual_stack,
)


class AdaGPR(Model):
    """The paper's network.

    Args:
        num_layers: Number of graph layers between the input and the output map.
        num_coeffs: Hops of each layer, hop 0 included; one number, or one per layer.
        alpha: Share of the first hidden matrix in every layer; one number, or one per layer.
        theta: The paper's lambda: how strongly layers differ from the identity, less with depth.
        dropout: Probability of dropping an element.
        projection: How coefficients come from scores; see `adagpr.ops.PROJECTIONS`.
        fixed_coeffs: With ``projection="fixed"``: the coefficients of every layer, by default equal ones.
        weight_maps: ``"shared"``, or one of the two forms of GCNII*.
        drop_edge: Probability of leaving out an edge while training (DropEdge).
        pair_norm: Scale of PairNorm after every layer; none for no PairNorm.

    Example:
        >>> model = AdaGPR(in_channels=8, hidden_channels=16, out_channels=3, num_layers=2, num_coeffs=3)
        >>> model.coefficients().shape
        torch.Size([2, 3])
    """

    name = "adagpr"
    paper = "Wimalawarne and Suzuki, 2021"
    good_for = "deep networks whose layers learn how many hops to use, and show it"
    groups = (("convs.*.weight", "convs"), ("lin_*", "linears"), ("convs.*.scores", "coeffs"))
    hop_0 = {"projection": "fixed", "fixed_coeffs": [1.0], "num_coeffs": 1}  # noqa: RUF012

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 8,
        num_coeffs: Depth | list[Depth] = 4,
        alpha: Fraction | list[Fraction] = 0.1,
        theta: Positive = 0.5,
        dropout: Rate = 0.5,
        projection: ProjectionName = "exp-sparsemax",
        fixed_coeffs: list[Finite] | None = None,
        weight_maps: WeightMaps = "shared",
        drop_edge: Rate = 0.0,
        pair_norm: Positive | None = None,
    ) -> None:
        super().__init__(dropout, drop_edge, pair_norm)
        hops = one_each("AdaGPR: num_coeffs", num_coeffs, num_layers, "layer")
        shares = one_each("AdaGPR: alpha", alpha, num_layers, "layer")
        self.lin_in = Linear(in_channels, hidden_channels, along_outputs=True)
        self.convs = nn.ModuleList(
            AdaGPRConv(hidden_channels, hops[i], shares[i], theta, i + 1, projection, fixed_coeffs, weight_maps)
            for i in range(num_layers)
        )
        self.lin_out = Linear(hidden_channels, out_channels)

    def forward(self, x: Features, structure: Operator | DroppableOperator) -> Tensor:
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        return self.lin_out(self._hidden(x, structure))

    def logits_at(self, nodes: Tensor, x: Features, structure: Operator | DroppableOperator) -> Tensor:
        """The logits of some nodes: only theirs go through the last map."""
        return last_map(self._hidden(x, structure), nodes, self.lin_out.weight, self.lin_out.bias)

    def _hidden(self, x: Features, structure: Operator | DroppableOperator) -> Tensor:
        """The input of the last map."""
        operator = self.current_operator(structure)
        h_0 = self.first(x)
        if self.pair_norm is None:
            return self.trunk(h_0, operator)
        return deque(self.hidden_matrices(h_0, operator), maxlen=1).pop()

    def first(self, x: Features, models: Sequence[AdaGPR] = ()) -> Tensor:
        """The first hidden matrix; with ``models`` like this one, their matrices on top of one another."""
        models = models or (self,)
        weights, biases = [model.lin_in.weight for model in models], [model.lin_in.bias for model in models]
        rate = self.dropout if self.training else 0.0
        return first_maps(x, rate, [model.generator for model in models], weights, biases)

    @property
    def capabilities(self) -> Capabilities:
        """With PairNorm between the layers they cannot be fused; only fixed edges can be shared or partitioned."""
        fused, shared = self.pair_norm is None, self.layers()[0].weight_maps == "shared"
        fixed_edges = fused and self.drop_edge == 0
        return Capabilities(
            hop_weights=True, fused_stack=fused, batched=fixed_edges, partitioned=fixed_edges, theory=fused and shared
        )

    def trunk(
        self, h_0: Tensor, structure: Operator, models: Sequence[AdaGPR] = (), coeffs: Tensor | None = None
    ) -> Tensor:
        """All layers at once; with ``models`` like this one, each of which has a block of rows, theirs.

        A caller that has computed the coefficients of all layers, depth by depth, gives them, too.
        """
        models = models or (self,)
        depth, convs = self.layers(), _depth_by_depth(models)
        coeffs = _padded_coeffs(convs) if coeffs is None else coeffs
        layers = Layers(
            structure,
            alphas=[conv.alpha for conv in depth],
            betas=[conv.beta for conv in depth],
            skip_tail=projection(depth[0].projection).is_sparse,
            rate=self.dropout if self.training else 0.0,
            generators=[model.generator for model in models],
            recompute=self.recompute,
            saved_dtype=self.saved_dtype,
            weight_maps=depth[0].weight_maps,
        )
        weights = [conv.weight for conv in convs]
        return residual_stack(h_0, coeffs.view(len(depth), len(models), -1), layers, weights)

    def stacked_coefficients(self, models: Sequence[AdaGPR]) -> Tensor:
        """The coefficients of all layers of all models, one row per layer, depth by depth."""
        return _padded_coeffs(_depth_by_depth(models))

    def activation_bytes(self, num_nodes: int) -> int:
        """Two matrices per layer and eight others, in the precision in which they are kept."""
        width = self.lin_in.weight.shape[0]
        return (2 * len(self.convs) + 8) * num_nodes * width * (self.saved_dtype or torch.float32).itemsize

    def hidden_matrices(self, h_0: Tensor, structure: Operator | DroppableOperator) -> Iterator[Tensor]:
        """The first hidden matrix, then what each layer makes of the one before, PairNorm included."""
        yield h_0
        h, operator = self.drop(h_0), self.current_operator(structure)
        for conv, coeffs in zip(self.layers(), _coeffs(self.layers()), strict=True):
            h = self.activate(conv(h, h_0, operator, coeffs=coeffs))
            yield h

    def layer_views(self) -> tuple[LayerView, ...]:
        """What each layer computes, first to last."""
        views = []
        for number, (conv, mu) in enumerate(zip(self.layers(), _coeffs(self.layers()), strict=True), start=1):
            shares, weight, learned = (conv.alpha, conv.beta), conv.weight.detach(), conv.scores is not None
            views.append(LayerView(number, {EDGES: mu.detach()}, *shares, weight, conv.weight_maps, learned))
        return tuple(views)

    def outer_maps(self) -> tuple[Linear, Linear]:
        """The maps before and after the layers."""
        return self.lin_in, self.lin_out

    def with_coefficients(self, coeffs: Tensor) -> Self:
        """A copy that has these coefficients and goes through the same computation."""
        copy = deepcopy(self)
        for conv, mu in zip(copy.layers(), coeffs, strict=True):
            conv.scores = None
            conv.register_buffer("given", mu.clone(), persistent=False)
        return copy

    def layers(self) -> list[AdaGPRConv]:
        """The graph layers, first to last."""
        return [conv for conv in self.convs if isinstance(conv, AdaGPRConv)]

    def coefficients(self) -> Tensor:
        """The weight of each hop in each layer; layers with fewer hops than others end in zeros."""
        with torch.no_grad():
            return _padded_coeffs(self.layers())


def _padded_coeffs(layers: list[AdaGPRConv]) -> Tensor:
    """The coefficients of all layers as one matrix; rows of layers with fewer hops than others end in zeros."""
    found = _coeffs(layers)
    return found if isinstance(found, Tensor) else nn.utils.rnn.pad_sequence(found, batch_first=True)


def _coeffs(layers: list[AdaGPRConv]) -> Tensor | list[Tensor]:
    """The coefficients of each layer; one matrix, through one projection, if all have equally many scores."""
    scores: list[Tensor] = [conv.scores for conv in layers if conv.scores is not None]
    if len({len(item) for item in scores}) == 1:
        return projection(layers[0].projection).function(torch.stack(scores))
    return [conv.coeffs() for conv in layers]


def _depth_by_depth(models: Sequence[AdaGPR]) -> list[AdaGPRConv]:
    """The layers of all models, depth by depth."""
    return [conv for layer in zip(*(model.layers() for model in models), strict=True) for conv in layer]
