"""The normalised adjacency of rows that were read from a partition; see `adagpr.ops.operator` for the equation."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from adagpr.ops import Operator, csr_tensor
from adagpr.partitioning.parts import Rows

__all__ = ["normalised", "operator_of"]


def normalised(rows: Rows, self_loops: bool) -> tuple[sp.csr_array, sp.csr_array]:
    """The normalised rows: what they read of each other, and what they read elsewhere; see `adagpr.ops.operator`.

    Args:
        rows: The rows of the adjacency, with the degrees of all that they read.
        self_loops: Whether to add the identity before normalising.
    """
    size = rows.num_nodes
    degree = rows.degree + self_loops
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    weights = sp.csr_array(rows.adj, dtype=np.float64)
    if self_loops:
        weights = sp.csr_array(weights + sp.eye_array(*weights.shape, format="csr"))
    values = weights.data * np.repeat(scale[:size], np.diff(weights.indptr)) * scale[weights.indices]
    scaled = sp.csr_array((values, weights.indices, weights.indptr), shape=weights.shape)
    own, outer = sp.csr_array(scaled[:, :size]), sp.csr_array(scaled[:, size:])
    own.sort_indices()
    outer.sort_indices()
    return own, outer


def operator_of(rows: Rows, self_loops: bool, is_symmetric: bool, dtype: torch.dtype = torch.float32) -> Operator:
    """The operator of rows that read nothing elsewhere.

    Args:
        rows: All rows of a graph.
        self_loops: Whether to add the identity before normalising.
        is_symmetric: Whether every edge has its reverse.
        dtype: Precision of the result.
    """
    own, _ = normalised(rows, self_loops)
    matrix = csr_tensor(own, dtype)
    transpose = matrix if is_symmetric else csr_tensor(sp.csr_array(own.T), dtype)
    return Operator(matrix, transpose, "directed", self_loops)
