r"""JK-Net (Xu et al., 2018): graph convolutions whose outputs all jump to the last layer.

.. math:: H_l = \mathrm{relu}(\tilde A H_{l-1} W_l + b_l), \quad l = 1, \dots, L, \qquad
          Z = \mathrm{join}(H_1, \dots, H_L) \, W + b

``join`` is concatenation or the largest value of each channel. The paper's third way, attention by a bidirectional
LSTM over the layers, is left out. Dropout follows every layer; the features stay whole, as in all codes below.

We know of no code by the authors. Of those in use, ``mori97/JKNet-dgl`` (``modules/jknet.py``) ends in a linear map as
here, but its layers add plain sums over neighbours to a map of the node itself, without normalisation.
``DropEdge/DropEdge`` (``densegcn`` in ``src/layers.py``, then ``outgc`` in ``src/models.py``) and ``dmlc/dgl``
(``examples/pytorch/jknet/model.py``) propagate once more after joining, before the linear map. DropEdge's published
depth counts that last convolution: its 64 layers join 63 outputs, ``num_layers=63`` here, without the last hop.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Positive, Rate, checked
from adagpr.nn.gcn import GCNConv
from adagpr.nn.model import Linear, Model
from adagpr.ops import DroppableOperator, Features, Operator

Jump = Literal["cat", "max"]


def join(outputs: list[Tensor], jump: Jump) -> Tensor:
    """All layers' outputs side by side, or the largest value of each channel over the layers."""
    return torch.cat(outputs, 1) if jump == "cat" else torch.stack(outputs).max(0).values


class JKNet(Model):
    """Graph convolutions, all of whose outputs reach the classifier.

    Time is ``num_layers`` sparse products each way; memory grows with ``num_layers``.

    Args:
        num_layers: Number of graph convolutions; 6 by default, as in ``mori97/JKNet-dgl``.
        dropout: Probability of dropping an element after each convolution.
        jump: How outputs are joined: ``"cat"`` side by side, ``"max"`` by the largest value of each channel.
        drop_edge: Probability of leaving out an edge while training (DropEdge).
        pair_norm: Scale of PairNorm after every convolution; none for no PairNorm.
    """

    name = "jknet"
    paper = "Xu et al., 2018"
    good_for = "nodes that need different reaches; all layers reach the classifier"
    groups = (("convs.*", "convs"), ("lin_out.*", "linears"))

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 6,
        dropout: Rate = 0.5,
        jump: Jump = "cat",
        drop_edge: Rate = 0.0,
        pair_norm: Positive | None = None,
    ) -> None:
        super().__init__(dropout, drop_edge, pair_norm)
        self.jump: Jump = jump
        widths = [in_channels, *[hidden_channels] * num_layers]
        self.convs = nn.ModuleList(GCNConv(widths[i], widths[i + 1]) for i in range(num_layers))
        self.lin_out = Linear(hidden_channels * (num_layers if jump == "cat" else 1), out_channels)

    def forward(self, x: Features, structure: Operator | DroppableOperator) -> Tensor:
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        operator = self.current_operator(structure)
        first, *rest = self.convs
        outputs = [self.activate(first(x, operator))]
        for conv in rest:
            outputs.append(self.activate(conv(outputs[-1], operator)))
        return self.lin_out(join(outputs, self.jump))
