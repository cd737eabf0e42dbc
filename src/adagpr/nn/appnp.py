r"""APPNP (Gasteiger, Bojchevski and Günnemann, 2019): predict, then spread the predictions by personalised PageRank.

.. math:: Z_0 = H = f(X), \quad Z_{k+1} = (1 - \alpha) \tilde A Z_k + \alpha H, \quad
          Z_K = \sum_{k<K} \alpha (1 - \alpha)^k \tilde A^k H + (1 - \alpha)^K \tilde A^K H

with a multilayer perceptron as ``f``. The iteration is a generalized PageRank with fixed coefficients, and so it is
computed, by one call of `gpr_propagate`.

Against the authors' code (gasteigerjo/ppnp, ``ppnp/pytorch/ppnp.py`` and ``propagation.py``):

- Paper and code drop entries of the operator, added self loops included, anew at each of the ``K`` steps, without
  normalising again. Here ``drop_edge`` draws once per training step, keeps the added self loops, and normalises. It is
  off by default, as in torch_geometric's benchmark (``benchmark/citation/appnp.py``).
- Their linear maps have no bias; here they have one, as in torch_geometric. Their code drops only before the first and
  the last map, here before every one: the same with two maps.
- Only the first map is decayed, by ``reg_lambda / 2`` times its squared norm: the group ``first``, at a weight decay of
  ``reg_lambda``. torch_geometric's benchmark and that of GPR-GNN decay both maps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adagpr.arguments import Count, Depth, Fraction, Rate, checked
from adagpr.nn.mlp import MLP
from adagpr.ops import DroppableOperator, Features, Operator, gpr_propagate


def pagerank_coeffs(alpha: float, num_hops: int) -> Tensor:
    """The weight of each hop after ``num_hops`` steps with teleport ``alpha``, in float64; they sum to 1."""
    coeffs = alpha * (1 - alpha) ** torch.arange(num_hops + 1, dtype=torch.float64)
    coeffs[-1] = (1 - alpha) ** num_hops
    return coeffs


class APPNP(MLP):
    """A multilayer perceptron whose outputs are spread by ``num_hops`` steps of personalised PageRank.

    Time is that of the perceptron and ``num_hops`` sparse products of width ``out_channels`` each way.

    Args:
        num_layers: Number of linear maps.
        num_hops: Number of steps, the paper's K.
        alpha: Probability of teleport: share of a node's own prediction at every step.
        dropout: Probability of dropping an element before each linear map.
        drop_edge: Probability of leaving out an edge, drawn once per training step.

    Example:
        >>> APPNP(8, 16, 3, num_hops=2, alpha=0.5).coefficients().tolist()
        [[0.5, 0.25, 0.25]]
    """

    name = "appnp"
    paper = "Gasteiger et al., 2019"
    good_for = "homophilous graphs; far reach at the price of a small perceptron"
    groups = (("linears.0.*", "first"), ("*", "rest"))

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 2,
        num_hops: Depth = 10,
        alpha: Fraction = 0.1,
        dropout: Rate = 0.5,
        drop_edge: Rate = 0.0,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, dropout)
        self.num_hops = num_hops
        self.alpha = alpha
        self.drop_edge = drop_edge

    def forward(self, x: Features, structure: Operator | DroppableOperator) -> Tensor:  # type: ignore[override]
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        operator = self.current_operator(structure)
        # With alpha = 1 every hop but the first has weight 0.
        return gpr_propagate(super().forward(x), pagerank_coeffs(self.alpha, self.num_hops), operator, skip_tail=True)

    def coefficients(self) -> Tensor:
        """The weight of each hop, ``[1, num_hops + 1]``, which nothing learns."""
        return pagerank_coeffs(self.alpha, self.num_hops).float()[None]
