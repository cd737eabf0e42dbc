r"""The signed layer: hops with weights of either sign, and a map of its own for the node itself.

.. math::
    H' = \mathrm{norm}\Big(\sum_d \Big(\sum_{k=0}^{K-1} c_{dk} A_d^k H\Big) W_d + H E\Big)

The operators :math:`A_d` have no self loops, so hop 0 is the node alone and hop 1 its neighbours alone. There is one
operator for an undirected graph, and two for a directed one, whose edges are read forwards and backwards. Coefficients
are free: a layer may add up hops, or take their difference, which `AdaGPRConv` cannot because its are on the simplex.

``norm`` is batch normalisation over the nodes, layer normalisation over the channels, or only a shift. Activation and
dropout are left to the model.

With ``shrinkage`` :math:`\lambda > 0` the coefficients are :math:`\mathrm{sign}(v) \max(|v| - \lambda, 0)` of scores
``v``: small ones are exactly 0, and the hops of a layer beyond its last one that is not 0 are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Nonnegative, checked
from adagpr.errors import InputError
from adagpr.nn.adagpr_conv import Flag
from adagpr.ops import NORM_EPSILON, TOO_FEW_ROWS, Norm, Operator, edge_operator, gpr_propagate

# How much the newest batch counts in the running moments.
MOMENTUM = 0.1

Edges = Operator | Sequence[Operator] | Tensor


class AdaGPRSignedConv(nn.Module):
    r"""A graph convolution that learns a signed weight for each hop.

    Time is ``num_coeffs - 1`` sparse products per operator and one ``channels x channels`` product more than there are
    operators; memory does not grow with ``num_coeffs``.

    Args:
        channels: Width of input and output.
        num_coeffs: Number of hops :math:`K` of each operator, hop 0 (the node itself) included.
        num_operators: One for an undirected graph; two to read directed edges forwards and backwards.
        own_map: Whether there is an :math:`E`.
        norm: ``"batch"``, ``"layer"`` or ``"none"``.
        shrinkage: Scores of at most this size give a coefficient of 0.

    Example:
        >>> import adagpr
        >>> graph, _ = adagpr.load("digits")
        >>> conv = AdaGPRSignedConv(channels=64, num_coeffs=3)
        >>> conv(graph.x, adagpr.operator(graph, self_loops=False)).shape
        torch.Size([1797, 64])
    """

    arguments: dict[str, Any]
    running_moments: Tensor

    @checked
    def __init__(
        self,
        channels: Count,
        num_coeffs: Depth,
        num_operators: Literal[1, 2] = 1,
        own_map: Flag = True,
        norm: Norm = "batch",
        shrinkage: Nonnegative = 0.0,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.num_coeffs = num_coeffs
        self.num_operators = num_operators
        self.own_map = own_map
        self.norm = norm
        self.shrinkage = shrinkage
        self.scores = nn.Parameter(torch.empty(num_operators, num_coeffs))
        # The maps of each operator's sum of hops, then the node's own if there is one, on top of one another.
        self.weight = nn.Parameter(torch.empty((num_operators + own_map) * channels, channels))
        self.scale = None if norm == "none" else nn.Parameter(torch.empty(channels))
        self.shift = nn.Parameter(torch.empty(channels))
        if norm == "batch":
            self.register_buffer("running_moments", torch.empty(2, channels))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws weights uniform in ``+-1/sqrt(channels)``; a layer starts with hop 1 of its first operator alone."""
        bound = 1 / math.sqrt(self.channels)
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        with torch.no_grad():
            # Other operators join in where that helps: on Chameleon both at once from the start overfit.
            start = torch.zeros_like(self.scores)
            start[0, min(1, self.num_coeffs - 1)] = 1.0
            # Just beyond the threshold, where a score still has a gradient.
            self.scores.copy_(start + self.shrinkage * 1.01)
            self.shift.zero_()
            if self.scale is not None:
                self.scale.fill_(1.0)
            if self.norm == "batch":
                self.running_moments.copy_(torch.tensor([[0.0], [1.0]]).expand(2, self.channels))

    def coeffs(self) -> Tensor:
        """The coefficients, ``[num_operators, num_coeffs]``, differentiable with respect to the scores."""
        return self.coefficients_of(self.scores)

    def coefficients_of(self, scores: Tensor) -> Tensor:
        """The coefficients of any scores of a layer like this one."""
        return scores if self.shrinkage == 0 else F.softshrink(scores, self.shrinkage)

    def weights(self) -> Tensor:
        """The maps of the operators and the node's own on top of one another; zeros where it has none."""
        return self.weight if self.own_map else F.pad(self.weight, (0, 0, 0, self.channels))

    def forward(self, x: Tensor, edge_index: Edges, edge_weight: Tensor | None = None) -> Tensor:
        """Computes the layer without activation.

        Args:
            x: Hidden matrix of the layer before, ``[nodes, channels]``.
            edge_index: The graph's operators, as many as ``num_operators``; or its edges, sources above targets, 2 x E;
                or a sparse tensor as torch_geometric's ``adj_t``. Two operators read such edges both ways.
            edge_weight: With edges: one constant weight each, 1 unless given.
        """
        operators = self._operators(x, edge_index, edge_weight)
        *maps, own = self.weights().split(self.channels)
        z = x @ own
        for operator, coeffs, weight in zip(operators, self.coeffs(), maps, strict=True):
            z = z + gpr_propagate(x, coeffs, operator, skip_tail=self.shrinkage > 0) @ weight
        return self.normalise(z)

    def folded(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The maps and the shift, with a batch normalisation folded in; and the scale of a layer normalisation."""
        weight, shift = self.weights().detach(), self.shift.detach()
        if self.scale is None or self.norm == "layer":
            return weight, shift, None if self.scale is None else self.scale.detach()
        mean, variance = self.running_moments
        factor = self.scale.detach() * (variance + NORM_EPSILON).rsqrt()
        return weight * factor, shift - mean * factor, None

    def normalise(self, z: Tensor) -> Tensor:
        """The norm of the mapped sum; while training, batches are normalised by their own moments."""
        if self.scale is None:
            return z + self.shift
        if self.norm == "layer":
            return F.layer_norm(z, (self.channels,), self.scale, self.shift, NORM_EPSILON)
        if not self.training:
            mean, variance = self.running_moments
            return F.batch_norm(z, mean, variance, self.scale, self.shift, eps=NORM_EPSILON)
        if len(z) < 2:
            raise InputError(TOO_FEW_ROWS)
        variance, mean = torch.var_mean(z, 0, correction=0)
        self.update_moments(torch.stack([mean, variance]))
        return F.batch_norm(z, None, None, self.scale, self.shift, training=True, eps=NORM_EPSILON)

    @torch.no_grad()
    def update_moments(self, moments: Tensor) -> None:
        """Takes the moments of a training step into the running ones."""
        self.running_moments.lerp_(moments.to(self.running_moments), MOMENTUM)

    def _operators(self, x: Tensor, edge_index: Edges, edge_weight: Tensor | None) -> Sequence[Operator]:
        if isinstance(edge_index, Tensor):
            is_directed, num_nodes = self.num_operators == 2, x.shape[0]
            options = {"add_self_loops": False, "both_ends": is_directed}
            one = edge_operator(edge_index, num_nodes, edge_weight, **options, dtype=x.dtype)
            return [one, one.reversed()] if is_directed else [one]
        if edge_weight is not None:
            raise InputError("AdaGPRSignedConv: an operator has its own weights; edge_weight must be left out.")
        operators = [edge_index] if isinstance(edge_index, Operator) else edge_index
        if len(operators) != self.num_operators:
            raise InputError(f"AdaGPRSignedConv: it reads {self.num_operators} operators, got {len(operators)}.")
        return operators

    def extra_repr(self) -> str:
        """Arguments, for printing."""
        return ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
