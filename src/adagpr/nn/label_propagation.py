r"""Label propagation (Zhou et al., 2004): what the graph and the training labels say without features.

.. math:: Y_{k+1} = \alpha \tilde A Y_k + (1 - \alpha) Y_0

with one row of :math:`Y_0` a node, one-hot where the node is for training and zero elsewhere. This is APPNP's iteration
with teleport :math:`1 - \alpha` on labels instead of predictions, hence one generalized PageRank.

Zhou et al. take an affinity matrix with a zero diagonal; for that make the operator with ``self_loops=False``.
torch_geometric (``torch_geometric/nn/models/label_prop.py``) cites Zhu and Ghahramani (2002), who divide by row sums
and reset the labelled nodes at every step, but computes the iteration above without self loops and clips it to [0, 1]
after each step. Only the upper end can matter, near hubs; nothing is clipped here, as in Zhou et al.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr.arguments import Count, Depth, Fraction, checked
from adagpr.graph import Graph
from adagpr.nn.appnp import pagerank_coeffs
from adagpr.nn.model import Model
from adagpr.ops import Features, Operator, gpr_propagate

# A class that does not reach a node costs log(1e6) = 13.8 when it is the right one, and not infinity.
SMALLEST_SHARE = 1e-6


def propagate_labels(y_0: Tensor, operator: Operator, num_hops: int, alpha: float) -> Tensor:
    """Log of each class's share of what reaches a node from one-hot rows; equal for a node that nothing reaches."""
    y = gpr_propagate(y_0, pagerank_coeffs(1 - alpha, num_hops), operator, skip_tail=True)
    total = y.sum(1, keepdim=True)
    shares = torch.where(total > 0, y / total.clamp(min=torch.finfo(y.dtype).tiny), 1 / y.shape[1])
    return shares.clamp(min=SMALLEST_SHARE).log()


class LabelPropagation(Model):
    """Spreads the training labels over the graph; has no parameters, no randomness, and reads no features.

    Args:
        in_channels: Number of features; not used, but every model takes it.
        num_hops: Number of steps.
        alpha: Share of the neighbours at every step; the training labels have the rest.

    Example:
        >>> import torch
        >>> from adagpr.graph import from_scipy
        >>> path = from_scipy([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]], torch.eye(4), [0, -1, -1, 1])
        >>> model = LabelPropagation(in_channels=4, out_channels=2)
        >>> model(path.x, model.structure(path)).argmax(1).tolist()
        [0, 0, 1, 1]
    """

    name = "label-propagation"
    paper = "Zhou et al., 2004"
    good_for = "what labels and graph say without features; nothing to train"

    @checked
    def __init__(self, in_channels: Count, out_channels: Count, num_hops: Depth = 50, alpha: Fraction = 0.9) -> None:
        super().__init__(dropout=0.0)
        self.out_channels = out_channels
        self.num_hops = num_hops
        self.alpha = alpha

    def prepare(self, graph: Graph, edges: Operator) -> Tensor:
        """The logits themselves: nothing is left to learn, so everything is computed here, once."""
        known = graph.y >= 0
        y_0 = F.one_hot(graph.y.clamp(min=0), self.out_channels) * known[:, None]
        return propagate_labels(y_0.to(edges.matrix), edges, self.num_hops, self.alpha)

    def forward(self, x: Features, structure: Tensor) -> Tensor:
        """Logits of all nodes, as `prepare` made them from the training labels."""
        return structure
