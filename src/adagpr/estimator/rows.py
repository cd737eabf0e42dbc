"""Rows of features and of adjacency matrices, sparse or dense: read, compared, stacked and attached to a graph."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import check_array
from torch import Tensor

from adagpr.errors import InputError

__all__ = ["FLOATS", "Rows", "attached", "keys", "like", "one_a_row", "points", "read_adjacency", "stack"]

FLOATS = [np.float64, np.float32]

Rows: TypeAlias = Tensor | sp.csr_array


def read_adjacency(given: Any, num_nodes: int) -> sp.csr_array:
    """The edges between so many rows as a matrix without repeated or empty entries."""
    adj = sp.csr_array(check_array(given, accept_sparse="csr", dtype=FLOATS, input_name="adjacency"))
    if adj.shape != (num_nodes, num_nodes):
        raise InputError(
            f"AdaGPRClassifier: adjacency must be {num_nodes} x {num_nodes} for as many nodes, got "
            f"{adj.shape[0]} x {adj.shape[1]}. To cross-validate, give the whole graph to the constructor."
        )
    adj = adj.copy()
    adj.sum_duplicates()
    adj.eliminate_zeros()
    return adj


def one_a_row(values: np.ndarray, columns: np.ndarray, num_columns: int, count: int = 1) -> sp.csr_array:
    """A matrix with ``count`` entries in each row, row after row."""
    starts = np.arange(0, len(values) + 1, count)
    return sp.csr_array((values, columns, starts), shape=(len(starts) - 1, num_columns))


def attached(adj: sp.csr_array, reads: sp.csr_array, loops: np.ndarray) -> sp.csr_array:
    """``adj`` with further nodes that read nodes of it, and themselves by ``loops``, and that none of it reads."""
    none = sp.csr_array((adj.shape[0], len(loops)))
    result = sp.csr_array(sp.block_array([[adj, none], [reads, sp.diags_array(loops)]], format="csr"))
    result.eliminate_zeros()
    return result


def like(model: Rows, x: Rows) -> Rows:
    """Features in the form of others: sparse or dense."""
    if isinstance(model, sp.csr_array):
        return x if isinstance(x, sp.csr_array) else sp.csr_array(x.numpy())
    return torch.from_numpy(x.toarray()) if isinstance(x, sp.csr_array) else x


def stack(x: Rows, below: Rows) -> Rows:
    """Features with others below them."""
    return sp.csr_array(sp.vstack([x, below])) if isinstance(x, sp.csr_array) else torch.cat([x, below])


def points(x: Rows) -> Any:
    """Features as scikit-learn takes them."""
    return x if isinstance(x, sp.csr_array) else x.numpy()


def keys(x: Rows) -> list[bytes]:
    """For each row a text of its values, the same for sparse and dense features."""
    rows = sp.csr_array(points(x))
    rows.sort_indices()
    cuts = rows.indptr
    columns = rows.indices.astype(np.int64)
    return [columns[start:end].tobytes() + rows.data[start:end].tobytes() for start, end in pairwise(cuts)]
