r"""The normalised adjacency that every graph product goes through.

.. math:: \tilde A = D^{-1/2} (A + I) D^{-1/2}, \qquad D_{ii} = \sum_j (A + I)_{ij}

``direction="directed"`` takes the edges as they are, as the paper's authors do: row ``i`` reads the nodes that ``i``
points to, both sides are divided by row sums, and the result is unsymmetric where the graph is. ``"symmetric"`` first
takes the larger of ``A`` and its transpose. A self loop that the graph already has stays and is added to. A node
without any weight has a zero row and column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.ops.csr import csr_tensor, multiply

__all__ = ["Direction", "Operator", "normalise", "operator"]

Direction = Literal["directed", "symmetric"]


@dataclass(frozen=True, eq=False)
class Operator:
    """A normalised adjacency, ready for products.

    Attributes:
        matrix: The operator as a torch CSR tensor.
        transpose: Its transpose, the same object when the operator is symmetric.
        direction: How the edges were read.
        self_loops: Whether the identity was added.
    """

    matrix: Tensor
    transpose: Tensor
    direction: Direction
    self_loops: bool

    @property
    def num_nodes(self) -> int:
        """Number of nodes, that is rows."""
        return int(self.matrix.shape[0])

    @property
    def is_symmetric(self) -> bool:
        """Whether the operator equals its transpose."""
        return self.transpose is self.matrix

    def multiply(self, h: Tensor, out: Tensor, transposed: bool = False) -> Tensor:
        """The operator, or its transpose, times ``h``, written into ``out``."""
        return multiply(self.transpose if transposed else self.matrix, h, out)

    def whole(self, transposed: bool = False) -> Tensor | None:
        """The matrix that `multiply` multiplies with; none where it does more than one product."""
        return self.transpose if transposed else self.matrix

    def to(self, target: torch.dtype | torch.device | str) -> Operator:
        """The same operator in another precision or on another device."""
        matrix = self.matrix.to(target)
        transpose = matrix if self.is_symmetric else self.transpose.to(target)
        return Operator(matrix, transpose, self.direction, self.self_loops)

    def repeated(self, count: int) -> Operator:
        """The operator of ``count`` copies of the graph side by side, unconnected."""
        matrix = _repeated(self.matrix, count)
        transpose = matrix if self.is_symmetric else _repeated(self.transpose, count)
        return Operator(matrix, transpose, self.direction, self.self_loops)


def _repeated(matrix: Tensor, count: int) -> Tensor:
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    one = sp.csr_array(tuple(part.numpy() for part in parts), shape=tuple(matrix.shape))
    return csr_tensor(sp.csr_array(sp.block_diag([one] * count, format="csr")), matrix.dtype)


def operator(
    graph: Graph,
    direction: Direction = "directed",
    self_loops: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Operator:
    """Builds the operator of ``graph``; see the module for the equation.

    Args:
        graph: The graph.
        direction: ``"directed"`` for the edges as given, ``"symmetric"`` to read each edge both ways.
        self_loops: Whether to add the identity before normalising.
        dtype: Precision of the result; degrees are always summed in float64.

    Raises:
        InputError: ``direction`` is unknown.

    Example:
        >>> from adagpr.graph import from_scipy
        >>> path = from_scipy([[0, 1, 0], [1, 0, 1], [0, 1, 0]], [[1.0], [2.0], [3.0]], [0, 1, 0])
        >>> operator(path).matrix.to_dense()[0].tolist()
        [0.5, 0.40824830532073975, 0.0]
    """
    if direction not in ("directed", "symmetric"):
        raise InputError(f"operator: direction must be 'directed' or 'symmetric', got {direction!r}.")
    normalised = normalise(graph.adj, direction, self_loops)
    matrix = csr_tensor(normalised, dtype)
    symmetric = direction == "symmetric" or graph.is_symmetric
    transpose = matrix if symmetric else csr_tensor(sp.csr_array(normalised.T), dtype)
    return Operator(matrix, transpose, direction, self_loops)


def normalise(adj: sp.csr_array, direction: Direction, self_loops: bool) -> sp.csr_array:
    """The equation of this module in float64, as a SciPy matrix."""
    weights = sp.csr_array(adj, dtype=np.float64)
    if direction == "symmetric":
        weights = sp.csr_array(weights.maximum(weights.T))
    if self_loops:
        weights = sp.csr_array(weights + sp.eye_array(weights.shape[0], format="csr"))
    degree = weights.sum(axis=1)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    rows = np.repeat(scale, np.diff(weights.indptr))
    result = sp.csr_array(
        (weights.data * rows * scale[weights.indices], weights.indices, weights.indptr), weights.shape
    )
    result.sort_indices()
    return result
