"""Several parts of a partition as one block of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.partitioning.parts import Parts, Rows

__all__ = ["induced", "join"]


def join(parts: Parts, numbers: Sequence[int]) -> Rows:
    """The rows of some parts, one after another, with the nodes elsewhere that they read as their halo.

    Args:
        parts: The partition.
        numbers: Which of its parts, ascending.
    """
    blocks = [parts[number].rows() for number in numbers]
    if len(blocks) == 1:
        return blocks[0]
    starts = _starts(parts, numbers)
    read = np.unique(np.concatenate([block.halo for block in blocks]))
    halo = read[_places(read, parts, numbers, starts) < 0]
    degree = np.empty(starts[-1] + len(halo))
    columns = []
    for block, start in zip(blocks, starts, strict=False):
        own = block.num_nodes
        places = _places(block.halo, parts, numbers, starts)
        places = np.where(places >= 0, places, starts[-1] + np.searchsorted(halo, block.halo))
        columns.append(np.concatenate([np.arange(start, start + own), places])[block.adj.indices])
        degree[start : start + own], degree[places] = block.degree[:own], block.degree[own:]
    adj = _stacked([block.adj for block in blocks], columns, len(degree))
    return _rows(adj, degree, halo, blocks)


def induced(parts: Parts, numbers: Sequence[int]) -> Rows:
    """The graph of some parts alone: their nodes and the edges between these, nothing else.

    Args:
        parts: The partition.
        numbers: Which of its parts, ascending.
    """
    blocks = [parts[number].rows() for number in numbers]
    starts = _starts(parts, numbers)
    kept, columns = [], []
    for block, start in zip(blocks, starts, strict=False):
        places = _places(block.halo, parts, numbers, starts)
        every = np.concatenate([np.arange(start, start + block.num_nodes), places])[block.adj.indices]
        kept.append(_only(block.adj, every >= 0))
        columns.append(every[every >= 0])
    adj = _stacked(kept, columns, int(starts[-1]))
    return _rows(adj, adj.sum(axis=1, dtype=np.float64), np.empty(0, dtype=np.int64), blocks)


def _starts(parts: Parts, numbers: Sequence[int]) -> np.ndarray:
    """Where the rows of each part begin, and where the last ones end."""
    return np.concatenate([[0], np.cumsum([parts[number].info.num_nodes for number in numbers])]).astype(np.int64)


def _places(nodes: np.ndarray, parts: Parts, numbers: Sequence[int], starts: np.ndarray) -> np.ndarray:
    """The row of each node among those of the parts, -1 where it is elsewhere."""
    offsets = parts.manifest.offsets
    shift = np.full(len(parts), -1, dtype=np.int64)
    shift[list(numbers)] = starts[:-1]
    owner = np.searchsorted(offsets, nodes, side="right") - 1
    return np.where(shift[owner] >= 0, shift[owner] + nodes - offsets[owner], -1)


def _only(adj: sp.csr_array, kept: np.ndarray) -> sp.csr_array:
    """A matrix without the entries that are not kept."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return sp.csr_array((adj.data[kept], adj.indices[kept], before[adj.indptr]), shape=adj.shape)


def _stacked(blocks: Sequence[sp.csr_array], columns: Sequence[np.ndarray], width: int) -> sp.csr_array:
    """Matrices below each other, with other columns, ascending within each row."""
    ends = np.concatenate([[0], np.cumsum([block.nnz for block in blocks])])
    indptr = np.concatenate([block.indptr[int(n > 0) :] + ends[n] for n, block in enumerate(blocks)])
    data = np.concatenate([block.data for block in blocks])
    adj = sp.csr_array((data, np.concatenate(columns), indptr), shape=(len(indptr) - 1, width))
    adj.sort_indices()
    return adj


def _rows(adj: sp.csr_array, degree: np.ndarray, halo: np.ndarray, blocks: Sequence[Rows]) -> Rows:
    return Rows(
        adj,
        degree,
        halo,
        _features([block.x for block in blocks]),
        torch.cat([block.y for block in blocks]),
        np.concatenate([block.role for block in blocks]),
        pa.concat_arrays([block.node_ids for block in blocks]),
        np.concatenate([block.position for block in blocks]),
    )


def _features(blocks: Sequence[Any]) -> Tensor | sp.csr_array:
    if isinstance(blocks[0], Tensor):
        return torch.cat(list(blocks))
    return sp.csr_array(sp.vstack(blocks, format="csr"))
