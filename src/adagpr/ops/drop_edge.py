r"""DropEdge (Rong et al., 2020): an operator from a random part of the edges, normalised anew at every draw.

Each stored entry of the adjacency is dropped on its own, as in the authors' code, so that a draw of an undirected graph
is directed. Self loops that normalisation adds are never dropped. Dropped entries stay in the sparse structure with
value zero: a draw costs a few passes over the edges and no sorting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.graph import Graph
from adagpr.ops.csr import csr_tensor, replace_values, transposed_order
from adagpr.ops.dropout import keep_mask
from adagpr.ops.operator import Operator

__all__ = ["DroppableOperator"]


@dataclass(frozen=True, eq=False)
class DroppableOperator:
    """A full operator and what is needed to draw thinner ones.

    Attributes:
        full: The operator of all edges, for evaluation.
        transpose: Structure of the transpose.
        order: Where each entry of the transpose stands in the operator.
        weights: Weight of each entry without the added self loop.
        loops: 1 at the added self loops, else 0.
        rows: Row of each entry.
    """

    full: Operator
    transpose: Tensor
    order: Tensor
    weights: Tensor
    loops: Tensor
    rows: Tensor

    @classmethod
    def from_graph(cls, graph: Graph, operator: Operator) -> DroppableOperator:
        """Prepares ``operator``, which was made of ``graph``, for drawing."""
        adj = sp.csr_array(graph.adj, dtype=np.float64)
        if operator.direction == "symmetric":
            adj = sp.csr_array(adj.maximum(adj.T))
        matrix = operator.matrix.cpu()
        rows = np.repeat(np.arange(graph.num_nodes), np.diff(matrix.crow_indices().numpy()))
        columns = matrix.col_indices().numpy().copy()
        weights = torch.from_numpy(np.asarray(adj[rows, columns], dtype=np.float64).ravel()).to(matrix.dtype)
        loops = torch.from_numpy((rows == columns) & operator.self_loops).to(matrix.dtype)
        starts = matrix.crow_indices().numpy().copy()
        structure = sp.csr_array((weights.numpy(), columns, starts), shape=adj.shape)
        transpose, order = transposed_order(structure)
        parts = (csr_tensor(transpose, matrix.dtype), order, weights, loops, torch.from_numpy(rows))
        return cls(operator, *(part.to(operator.matrix.device) for part in parts))

    def draw(self, rate: float, generator: np.random.Generator) -> Operator:
        """An operator from which each edge is missing with probability ``rate``."""
        mask, _ = keep_mask((len(self.weights),), rate, generator)
        kept = self.weights * torch.from_numpy(mask).to(self.weights.device) + self.loops
        degree = kept.new_zeros(self.full.num_nodes).index_add_(0, self.rows, kept)
        scale = degree.rsqrt().masked_fill_(degree == 0, 0.0)
        values = kept * scale[self.rows] * scale[self.full.matrix.col_indices()]
        return Operator(
            replace_values(self.full.matrix, values),
            replace_values(self.transpose, values[self.order]),
            self.full.direction,
            self.full.self_loops,
        )
