r"""SGC (Wu et al., 2019): logistic regression on features that the graph has smoothed.

.. math:: Z = \tilde A^K X W + b

The smoothed features are made once, in `prepare`, so that a step of training never touches the graph. They are dense
even where ``X`` is sparse: ``nodes x in_channels`` numbers. Only ``num_hops=0`` keeps sparse features sparse.

The authors' code (``Tiiiger/SGC``) departs from the paper's equation by its bias (``nn.Linear`` in ``models.py``),
which is kept here; it divides features by their row sums first (``utils.py``; here the data set's business) and has a
flag ``dropout`` that it passes on and never applies (``citation.py``); here dropout is applied, and 0 by default.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from adagpr.arguments import Count, Rate, checked
from adagpr.graph import Graph
from adagpr.nn.gcn import propagate
from adagpr.nn.model import Linear, Model
from adagpr.ops import Features, Operator, SparseFeatures, features

Hops = Annotated[int, Field(ge=0, le=10_000)]


def smoothed(x: Features, num_hops: int, operator: Operator) -> Features:
    """Computes ``A^num_hops x``; dense unless ``num_hops`` is 0."""
    if num_hops == 0:
        return x
    dense = x.matrix.to_dense() if isinstance(x, SparseFeatures) else x
    return propagate(dense, operator, num_hops)


class SGC(Model):
    """Logistic regression on features propagated ``num_hops`` times.

    Args:
        hidden_channels: Not used, because there is no hidden layer; but every model takes it.
        num_hops: The paper's K: how often the features are propagated; 0 is logistic regression.
        dropout: Probability of dropping an element of the propagated features; none in the paper.
    """

    name = "sgc"
    paper = "Wu et al., 2019"
    good_for = "the fastest baseline: features are spread once, then one linear map"
    groups = (("*", "linears"),)

    @checked
    def __init__(
        self, in_channels: Count, hidden_channels: Count, out_channels: Count, num_hops: Hops = 2, dropout: Rate = 0.0
    ) -> None:
        super().__init__(dropout)
        self.num_hops = num_hops
        self.lin = Linear(in_channels, out_channels)

    def prepare(self, graph: Graph, edges: Operator) -> Features:
        """The propagated features, in the operator's precision and on its device."""
        x = features(graph.x, edges.matrix.dtype).to(edges.matrix.device)
        with torch.no_grad():
            return smoothed(x, self.num_hops, edges)

    def forward(self, x: Any, structure: Features) -> Tensor:
        """Logits of all nodes; ``structure`` is what `prepare` made, and ``x``, which it holds already, is not used."""
        return self.lin(self.drop_features(structure))
