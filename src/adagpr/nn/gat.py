r"""GAT (Veličković et al., 2018): each node weighs its neighbours by attention, through torch_geometric's ``GATConv``.

.. math:: h_i' = \Big\Vert_{m} \sum_j \alpha^m_{ij} W^m h_j + b, \qquad
          \alpha^m_{ij} = \mathrm{softmax}_j \, \mathrm{leakyrelu}(a_m^\top W^m h_j + c_m^\top W^m h_i)

over neighbours ``j`` of ``i`` and ``i`` itself, with elu between layers; the last layer averages its heads instead of
joining them. Dropout comes before each linear map and on the normalised attention. Row ``i`` of the operator says
which nodes ``i`` attends to; edge weights are not read.

Two parts of ``GATConv`` are done outside of it: the linear map, which here takes sparse features, and the dropout of
the attention, which there draws from torch's global generator and here, by torch_geometric's own hook behind the
attention, from the model's stream. Parameters start as in ``GATConv``, drawn from the model's generator.

The authors' code (PetarV-/GAT, ``utils/layers.py``) drops a third time, the mapped features, which the paper does not
mention; drops the input anew for each head; has a bias in both halves of the attention's score; and decays all
parameters (``models/base_gattn.py``: the test by name that should spare biases never holds). Here, as in
torch_geometric, mapped features are not dropped, heads share one mask of the input, and scores have no bias.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Rate, checked
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.interop import load_pyg
from adagpr.nn.model import Model
from adagpr.ops import Features, Operator, dropout, linear


def attention_edges(operator: Operator) -> Tensor:
    """Who attends to whom, as an ``edge_index``: sources (read) above targets (reading), each node its own source."""
    matrix = operator.matrix
    nodes = torch.arange(operator.num_nodes, device=matrix.device)
    rows = nodes.repeat_interleave(matrix.crow_indices().diff())
    columns = matrix.col_indices().long()
    others = rows != columns
    return torch.stack([torch.cat([columns[others], nodes]), torch.cat([rows[others], nodes])])


class GAT(Model):
    """Graph attention network.

    Args:
        hidden_channels: Width of each head of the hidden layers; together they are ``heads`` times as wide.
        num_layers: Number of layers.
        heads: Number of heads of each hidden layer.
        out_heads: Number of heads of the last layer; the paper takes 8 on Pubmed.
        dropout: Probability of dropping an element before each linear map.
        attention_dropout: Probability of dropping the attention of one head to one neighbour.

    Raises:
        InputError: torch_geometric is not installed.
    """

    name = "gat"
    paper = "Velickovic et al., 2018"
    good_for = "graphs where some neighbours matter more; attention over edges"

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 2,
        heads: Depth = 8,
        out_heads: Depth = 1,
        dropout: Rate = 0.6,
        attention_dropout: Rate = 0.6,
    ) -> None:
        super().__init__(dropout)
        self.attention_dropout = attention_dropout
        make_conv = load_pyg("nn", "GAT").GATConv
        self.weights = nn.ParameterList()
        self.convs = nn.ModuleList()
        width = in_channels
        for layer in range(1, num_layers + 1):
            is_last = layer == num_layers
            channels, count = (out_channels, out_heads) if is_last else (hidden_channels, heads)
            conv = make_conv(1, channels, count, concat=not is_last, add_self_loops=False)
            conv.lin = nn.Identity()
            conv.register_edge_update_forward_hook(self._drop_attention)
            self.convs.append(conv)
            self.weights.append(nn.Parameter(torch.empty(channels * count, width)))
            width = channels * count
        self.reset_parameters()

    @classmethod
    def why_unavailable(cls) -> str | None:
        """Says so where torch_geometric is not installed."""
        try:
            load_pyg("nn", "GAT")
        except InputError as error:
            return str(error)
        return None

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws weights and attention vectors uniform by Glorot's bound of their last two sizes; biases are zero."""
        for parameter in self.parameters():
            if parameter.ndim == 1:
                nn.init.zeros_(parameter)
            else:
                bound = math.sqrt(6 / (parameter.shape[-2] + parameter.shape[-1]))
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def prepare(self, graph: Graph, edges: Operator) -> Tensor:
        """The edges of the operator, with a self loop at every node, as an ``edge_index``."""
        return attention_edges(edges)

    def forward(self, x: Features, structure: Tensor) -> Tensor:
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        h = self._layer(0, self.drop_features(x), structure)
        for layer in range(1, len(self.convs)):
            h = self._layer(layer, self.drop(F.elu(h)), structure)
        return h

    def _layer(self, layer: int, x: Features, edge_index: Tensor) -> Tensor:
        weight = self.weights[layer]
        out: Tensor = self.convs[layer](linear(x, weight, weight.new_zeros(len(weight))), edge_index)
        return out

    def _drop_attention(self, conv: nn.Module, inputs: Any, attention: Tensor) -> Tensor:
        return dropout(attention, self.attention_dropout, self.generator) if self.training else attention
