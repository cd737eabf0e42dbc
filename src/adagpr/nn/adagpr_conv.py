r"""The layer of AdaGPR (Wimalawarne and Suzuki, 2021): GCNII's residual layer around a learned generalized PageRank.

.. math::
    S = (1 - \alpha) \sum_{k=0}^{K-1} \mu_k \tilde A^k H + \alpha H_0, \qquad
    H' = (1 - \beta) S + \beta S W, \qquad \mu = g(v), \quad \beta = \log(\theta / \mathrm{layer} + 1)

``theta`` is the paper's lambda. GCNII* (Chen et al., 2020) gives the two parts of ``S`` weights of their own, the rest
staying as above. Its two published forms are both here: ``separate`` is the authors' code, :math:`\beta [GH | H_0] W`
with ``G`` the PageRank and no scaling; ``separate-scaled`` is torch_geometric's, whose halves carry
:math:`1 - \alpha` and :math:`\alpha`. The activation is left to the model, as in torch_geometric's layers.

The graph comes as an `Operator`, made once for all layers, or as torch_geometric's layers take it: an ``edge_index`` or
a sparse tensor, normalised inside. In that form the layer can replace ``GCN2Conv`` in anybody's module.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Finite, Fraction, Positive, checked
from adagpr.errors import InputError
from adagpr.nn.model import maps_of
from adagpr.ops import Operator, WeightMaps, edge_operator, gpr_propagate, projection

ProjectionName = Literal["exp-sparsemax", "sparsemax", "entmax-1.5", "softmax", "exp-sum", "sphericalmax", "fixed"]
Flag = Annotated[bool, Field(strict=True)]


class AdaGPRConv(nn.Module):
    r"""A residual graph convolution that learns how much of each hop to use.

    Time is ``num_coeffs - 1`` sparse products and one ``channels x channels`` product; memory does not grow with
    ``num_coeffs``.

    Args:
        channels: Width of input and output.
        num_coeffs: Number of hops :math:`K`, hop 0 (the node itself) included.
        alpha: Share of the network's first hidden matrix in every layer, in [0, 1].
        theta: The paper's lambda; ``None`` for :math:`\beta = 1`, a plain weight map.
        layer: Depth of this layer, counted from 1.
        projection: How the coefficients come from their scores ``v``; ``"fixed"`` learns none.
        fixed_coeffs: With ``"fixed"``: the coefficients, by default equal ones.
        weight_maps: ``"shared"``, or one of the two forms of GCNII*.
        cached: With an edge index or a sparse tensor: whether the operator of the first call is kept for all others.
        add_self_loops: Likewise: whether each node also reads itself.
        normalize: Likewise: whether to add self loops and to divide by the roots of the degrees.

    Example:
        >>> import adagpr
        >>> graph, _ = adagpr.load("digits")
        >>> conv = AdaGPRConv(channels=64, num_coeffs=3, alpha=0.1, theta=0.5, layer=1)
        >>> conv(graph.x, graph.x, adagpr.operator(graph)).shape
        torch.Size([1797, 64])
    """

    arguments: dict[str, Any]

    @checked
    def __init__(
        self,
        channels: Count,
        num_coeffs: Depth,
        alpha: Fraction,
        theta: Positive | None = None,
        layer: Count = 1,
        projection: ProjectionName = "exp-sparsemax",
        fixed_coeffs: list[Finite] | None = None,
        weight_maps: WeightMaps = "shared",
        cached: Flag = False,
        add_self_loops: Flag = True,
        normalize: Flag = True,
    ) -> None:
        super().__init__()
        if alpha == 1.0 and weight_maps == "separate":
            raise InputError("AdaGPRConv: alpha must be below 1 with weight_maps 'separate'.")
        self.channels = channels
        self.num_coeffs = num_coeffs
        self.alpha = alpha
        self.beta = 1.0 if theta is None else math.log(theta / layer + 1)
        self.projection = projection
        self.weight_maps: WeightMaps = weight_maps
        self.cached = cached
        self.add_self_loops = add_self_loops
        self.normalize = normalize
        self.weight = nn.Parameter(torch.empty(channels if weight_maps == "shared" else 2 * channels, channels))
        self.scores: nn.Parameter | None = None
        if projection == "fixed":
            self.register_buffer("given", _fixed(fixed_coeffs, num_coeffs), persistent=False)
        elif fixed_coeffs is not None:
            raise InputError(f"AdaGPRConv: fixed_coeffs needs projection 'fixed', got {projection!r}.")
        else:
            self.scores = nn.Parameter(torch.empty(num_coeffs))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws weights uniform in ``+-1/sqrt(channels)`` and scores in ``+-1/sqrt(num_coeffs)``; forgets the cache."""
        self._cache: Operator | None = None
        bound = 1 / math.sqrt(self.channels)
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        if self.scores is not None:
            bound = 1 / math.sqrt(self.num_coeffs)
            nn.init.uniform_(self.scores, -bound, bound, generator=generator)

    def coeffs(self) -> Tensor:
        """The coefficients, differentiable with respect to the scores."""
        if self.scores is None:
            return self.get_buffer("given")
        return projection(self.projection).function(self.scores)

    def forward(
        self,
        x: Tensor,
        x_0: Tensor,
        edge_index: Operator | Tensor,
        edge_weight: Tensor | None = None,
        coeffs: Tensor | None = None,
    ) -> Tensor:
        """Computes the layer without activation.

        Args:
            x: Hidden matrix of the layer before, ``[nodes, channels]``.
            x_0: Output of the network's input map, same shape.
            edge_index: The graph's operator; or its edges, sources above targets, 2 x E; or a sparse tensor as
                torch_geometric's ``adj_t``, whose row ``i`` holds what node ``i`` reads. See `edge_operator`.
            edge_weight: With edges: one constant weight each, 1 unless given.
            coeffs: The coefficients where the caller has computed them already, else from this layer's scores.
        """
        operator = self._operator(x, edge_index, edge_weight)
        mu = (self.coeffs() if coeffs is None else coeffs) * (1 - self.alpha)
        skip_tail = projection(self.projection).is_sparse
        maps = maps_of(self.weight, self.weight_maps, self.alpha, self.beta)
        if len(maps) == 1:
            return gpr_propagate(x, mu, operator, skip_tail, plus=x_0 * self.alpha) @ maps[0]
        return torch.addmm(x_0 @ maps[1], gpr_propagate(x, mu, operator, skip_tail), maps[0])

    def _operator(self, x: Tensor, edge_index: Operator | Tensor, edge_weight: Tensor | None) -> Operator:
        if isinstance(edge_index, Operator):
            if edge_weight is not None:
                raise InputError("AdaGPRConv: an operator has its own weights; edge_weight must be left out.")
            return edge_index
        if self._cache is not None:
            return self._cache.to(x.dtype).to(x.device)
        loops = {"normalize": self.normalize, "add_self_loops": self.add_self_loops}
        operator = edge_operator(edge_index, x.shape[0], edge_weight, **loops, dtype=x.dtype)
        self._cache = operator if self.cached else None
        return operator

    def extra_repr(self) -> str:
        """Arguments, for printing."""
        return f"{self.channels}, {self.num_coeffs}, alpha={self.alpha}, beta={self.beta:.4f}, {self.projection}"


def _fixed(values: list[float] | None, num_coeffs: int) -> Tensor:
    if values is None:
        return torch.full((num_coeffs,), 1 / num_coeffs)
    if len(values) != num_coeffs:
        raise InputError(f"AdaGPRConv: fixed_coeffs must hold num_coeffs = {num_coeffs} values, got {len(values)}.")
    return torch.tensor(values)
