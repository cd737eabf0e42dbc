r"""GCN (Kipf and Welling, 2017), with the layer that the other convolutional baselines are made of.

.. math:: H_l = \mathrm{relu}(\tilde A H_{l-1} W_l + b_l), \qquad Z = \tilde A H_{L-1} W_L + b_L

Weights start Glorot uniform and biases at zero, as in the paper's code and in torch_geometric. Dropout comes before
every convolution, the features included. The paper decays the first layer only, hence the groups.

The released codes disagree. ``tkipf/gcn`` follows the paper: no bias, dropout of the features, decay of ``layers[0]``
alone (``gcn/models.py``). ``tkipf/pygcn`` adds a bias, starts weights and biases uniform in ``+-1/sqrt(out_channels)``
(``pygcn/layers.py``), leaves the features whole, divides by row sums instead of their roots on both sides
(``pygcn/utils.py``) and decays everything. Here the bias is pygcn's and torch_geometric's, all else the paper's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Positive, Rate, checked
from adagpr.nn.model import Linear, Model
from adagpr.ops import DroppableOperator, Features, Operator, gpr_propagate, linear


def propagate(h: Tensor, operator: Operator, hops: int = 1) -> Tensor:
    """``h`` after that many products with the operator."""
    return gpr_propagate(h, h.new_tensor([0.0] * hops + [1.0]), operator)


def graph_convolution(x: Features, weight: Tensor, bias: Tensor, operator: Operator) -> Tensor:
    """``A x weight.T + bias``: the graph's product is on the narrower side of ``weight``, after it for sparse ``x``."""
    if isinstance(x, Tensor) and weight.shape[1] < weight.shape[0]:
        return linear(propagate(x, operator), weight, bias)
    return propagate(linear(x, weight, torch.zeros_like(bias)), operator) + bias


class GCNConv(Linear):
    """A graph convolution without activation: Glorot weights, a bias from zero."""

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws the weights anew and zeroes the bias."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, operator: Operator) -> Tensor:  # type: ignore[override]
        """Computes the layer."""
        return graph_convolution(x, self.weight, self.bias, operator)


class GCN(Model):
    """A stack of graph convolutions.

    Time is ``num_layers`` sparse products each way; memory grows with ``num_layers``.

    Args:
        num_layers: Number of convolutions; the paper's 2 by default, since plain stacks get worse when deep.
        dropout: Probability of dropping an element before each convolution.
        drop_edge: Probability of leaving out an edge while training (DropEdge).
        pair_norm: Scale of PairNorm after every hidden convolution; none for no PairNorm.
    """

    name = "gcn"
    paper = "Kipf and Welling, 2017"
    good_for = "the plain baseline on homophilous graphs, two or three layers"
    groups = (("convs.0.*", "first"), ("*", "rest"))

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 2,
        dropout: Rate = 0.5,
        drop_edge: Rate = 0.0,
        pair_norm: Positive | None = None,
    ) -> None:
        super().__init__(dropout, drop_edge, pair_norm)
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList(GCNConv(widths[i], widths[i + 1]) for i in range(num_layers))

    def forward(self, x: Features, structure: Operator | DroppableOperator) -> Tensor:
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        return self.chain(self.convs, x, self.current_operator(structure))
