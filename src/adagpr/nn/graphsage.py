r"""GraphSAGE (Hamilton et al., 2017) with the mean aggregator, on the whole graph.

.. math:: H_l = \mathrm{relu}(H_{l-1} W_l + \bar A H_{l-1} U_l + b_l), \qquad \bar A_{ij} = A_{ij} / \sum_k A_{ik}

The last layer has no relu and gives the logits. There is no sampling: every neighbour counts at every step, weighted
where the graph is. Edges are read in the direction of the operator that training is given; a node without neighbours
has a mean of zero, and a self loop of the graph makes a node its own neighbour, as in torch_geometric.

The authors' code (``williamleif/GraphSAGE``) departs from the paper: it puts ``H W`` and the mean's map side by side,
which doubles the width, where the paper's one map of ``[h | mean]`` is the sum above (``concat`` in
``graphsage/aggregators.py``); it scales rows to length 1 once at the end, not after every layer; and its last layer has
no activation (``graphsage/models.py``), a linear map to classes following it (``graphsage/supervised_models.py``). Its
aggregators have no bias, drop the node and its neighbours with masks of their own, and sample from neighbour lists that
were once cut or filled up by repetition to ``max_degree`` (``graphsage/minibatch.py``). Here rows are not scaled and a
layer has one mask; weights start Glorot uniform as there, and the bias, torch_geometric's, at zero.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Rate, checked
from adagpr.graph import Graph
from adagpr.nn.gcn import graph_convolution
from adagpr.nn.model import Model
from adagpr.ops import Features, Operator, linear, read_edges


def mean_operator(graph: Graph, operator: Operator) -> Operator:
    """The operator that takes each node's mean over its neighbours, like ``operator`` in direction and precision."""
    weights = read_edges(sp.csr_array(graph.adj, dtype=np.float64), operator.direction)
    degree = weights.sum(axis=1)
    scale = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    mean = sp.csr_array(sp.diags_array(scale) @ weights)
    mean.sort_indices()
    return operator.like(mean, self_loops=False)


class SAGEConv(nn.Module):
    """A map of the node plus a map of its neighbours' mean, without activation."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight_self = nn.Parameter(torch.empty(out_channels, in_channels))
        self.weight_neigh = nn.Parameter(torch.empty(out_channels, in_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws both weights anew, Glorot uniform, and zeroes the bias."""
        for weight in (self.weight_self, self.weight_neigh):
            nn.init.xavier_uniform_(weight, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, operator: Operator) -> Tensor:
        """Computes the layer; ``operator`` takes means."""
        own = linear(x, self.weight_self, torch.zeros_like(self.bias))
        return own + graph_convolution(x, self.weight_neigh, self.bias, operator)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.bias.shape[0]} of {self.weight_self.shape[1]}"


class GraphSAGE(Model):
    """A stack of mean aggregators.

    Args:
        num_layers: Number of aggregators, the paper's 2 by default.
        dropout: Probability of dropping an element before each layer.
    """

    name = "graphsage"
    paper = "Hamilton et al., 2017"
    good_for = "nodes that differ from their neighbours, and get a map of their own"

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 2,
        dropout: Rate = 0.5,
    ) -> None:
        super().__init__(dropout)
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList(SAGEConv(widths[i], widths[i + 1]) for i in range(num_layers))

    def prepare(self, graph: Graph, edges: Operator) -> Operator:
        """The mean over neighbours, read in the direction of the operator."""
        return mean_operator(graph, edges)

    def forward(self, x: Features, structure: Operator) -> Tensor:
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        return self.chain(self.convs, x, structure)
