r"""Scattering GCN (Min, Wenkel and Wolf, 2020): band-pass channels beside GCN's low-pass ones.

.. math::
    H_i = \sigma(\tilde A^i X \Theta_i + b_i), \qquad H_p = \sigma(U_p (X \Theta_p) + b_p), \qquad
    \sigma(x) = |x|^q, \qquad
    Z = \frac{1}{1 + \alpha} (I + \alpha W D^{-1}) [H_1 | \dots | H_p | \dots] \Theta + b

:math:`U_p` for a path :math:`p = (k_1, \dots, k_m)` is
:math:`\Psi_{k_m} |\Psi_{k_{m-1}} \cdots |\Psi_{k_1} \cdot | \cdots |` with wavelets :math:`\Psi_0 = I - P`,
:math:`\Psi_k = P^{2^{k-1}} - P^{2^k}` of the lazy random walk :math:`P = \frac12 (I + W D^{-1})`. The last map is the
paper's graph residual convolution. Wavelets are polynomials in ``P`` of a signal: no power of ``P`` is ever built.

Where the authors' code (dms-net/scatteringGCN) departs from the paper; the paper is built here:

* ``utils.py`` takes absolute values of the entries of wavelet matrices, not of the signals between two wavelets: in one
  version (08e1855) of all matrices; in another (3e099a2) of the first of a path, but in place, so that the channels of
  that one scale have it too. Such a channel adds where a wavelet subtracts.
* Its scales are :math:`P^s - P^{2s}` with ``s`` = 2, 4, 8, that is ``k`` = 2, 3, 4; ``k`` = 0 and 1 are left out.
* ``train.py`` adds an L1 penalty in a loop that keeps only the last parameter's.

Common to both: ``q`` = 4 for all channels, dropout only before the last map. A node without edges walks in place here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated

import numpy as np
import scipy.sparse as sp
import torch
from pydantic import Field
from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Nonnegative, Rate, checked
from adagpr.graph import Graph
from adagpr.nn.gcn import propagate
from adagpr.nn.model import Linear, Model, one_each
from adagpr.ops import Features, Operator, gpr_propagate, linear, read_edges

Scale = Annotated[int, Field(ge=0, le=8)]
WaveletPath = Annotated[list[Scale], Field(min_length=1, max_length=4)]
Power = Annotated[float, Field(ge=1.0, allow_inf_nan=False)]
Filter = Callable[[Tensor], Tensor]


def lazy_walk(adj: sp.csr_array) -> sp.csr_array:
    """``(I + W D^-1) / 2`` with ``D`` the column sums of ``adj``; a node whose column is empty walks in place."""
    degree = np.asarray(adj.sum(axis=0), dtype=np.float64).ravel()
    scale = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    stay = sp.diags_array(0.5 + 0.5 * (degree == 0))
    return sp.csr_array(0.5 * (adj.astype(np.float64) @ sp.diags_array(scale)) + stay)


def scatter(h: Tensor, path: list[int], walk: Operator) -> Tensor:
    """The wavelets of ``path`` one after the other, with absolute values between them but not after the last."""
    scale, *rest = path
    low, high = (0, 1) if scale == 0 else (2 ** (scale - 1), 2**scale)
    coeffs = h.new_zeros(high + 1)
    coeffs[low], coeffs[high] = 1.0, -1.0
    out = gpr_propagate(h, coeffs, walk)
    return scatter(out.abs(), rest, walk) if rest else out


class ScatteringGCN(Model):
    """One layer of low-pass and band-pass channels side by side, then a graph residual convolution.

    Time is ``i`` products with GCN's operator for the i-th low-pass channel, and ``2 ** scale`` products with the walk
    for each wavelet, all as wide as their channel; memory does not grow with the number of products.

    Args:
        hidden_channels: Width of each low-pass channel.
        num_low_pass: Number of low-pass channels: the powers 1 to ``num_low_pass`` of GCN's operator.
        paths: Scales of each band-pass channel: ``[2]`` is one wavelet, ``[3, 4]`` scale 3 followed by scale 4.
        scattering_channels: Width of each band-pass channel: one number, or one per path; none for ``hidden_channels``.
        power: The exponent q of the activation, at least 1.
        alpha: Share of the neighbours in the residual convolution; 0 for a plain linear map.
        dropout: Probability of dropping an element before the residual convolution.

    Example:
        >>> model = ScatteringGCN(8, 10, 3, paths=[[2], [3, 4]], scattering_channels=[9, 30])
        >>> model.lin_out.weight.shape
        torch.Size([3, 69])
    """

    name = "scattering-gcn"
    paper = "Min et al., 2020"
    good_for = "signals that low-pass filters lose: band-pass wavelets beside them"
    groups = (("channels.*", "channels"), ("lin_out.*", "linears"))

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_low_pass: Depth = 3,
        paths: list[WaveletPath] = [[2], [3]],  # noqa: B006, never changed: pydantic hands out a copy
        scattering_channels: Count | list[Count] | None = None,
        power: Power = 4.0,
        alpha: Nonnegative = 0.5,
        dropout: Rate = 0.5,
    ) -> None:
        super().__init__(dropout)
        given = hidden_channels if scattering_channels is None else scattering_channels
        band = one_each("ScatteringGCN: scattering_channels", given, len(paths), "path")
        self.num_low_pass = num_low_pass
        self.paths = paths
        self.power = power
        self.alpha = alpha
        widths = [*[hidden_channels] * num_low_pass, *band]
        self.channels = nn.ModuleList(_Map(in_channels, width) for width in widths)
        self.lin_out = _Map(sum(widths), out_channels)

    def prepare(self, graph: Graph, edges: Operator) -> tuple[Operator, Operator]:
        """GCN's operator for the low-pass channels; for all else the walk on the same edges, read in its direction."""
        return edges, edges.like(lazy_walk(read_edges(graph.adj, edges.direction)), self_loops=True)

    def forward(self, x: Features, structure: tuple[Operator, Operator]) -> Tensor:
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        low_pass, walk = structure
        filters: list[Filter] = [
            *(partial(propagate, operator=low_pass, hops=hops) for hops in range(1, self.num_low_pass + 1)),
            *(partial(scatter, path=path, walk=walk) for path in self.paths),
        ]
        parts = [channel(x, graph) for channel, graph in zip(self.channels, filters, strict=True)]
        h = torch.cat(parts, dim=1).abs().pow(self.power)
        # I + alpha W D^-1 is (1 - alpha) I + 2 alpha P.
        coeffs = h.new_tensor([1 - self.alpha, 2 * self.alpha]) / (1 + self.alpha)
        return self.lin_out(self.drop(h), partial(gpr_propagate, coeffs=coeffs, op=walk))


class _Map(Linear):
    """A linear map with a filter of the graph between weight and bias, where the paper has it."""

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws the weight by Glorot's uniform rule and the bias in ``+-1/sqrt(out_channels)``, as the authors do."""
        rows, columns = self.weight.shape
        for parameter, bound in ((self.weight, math.sqrt(6 / (rows + columns))), (self.bias, 1 / math.sqrt(rows))):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, x: Features, graph: Filter) -> Tensor:  # type: ignore[override]
        """``graph(x @ weight.T) + bias``."""
        return graph(linear(x, self.weight, torch.zeros_like(self.bias))) + self.bias
