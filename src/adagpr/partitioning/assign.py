r"""Which part each node goes to.

`metis` sees the whole graph (Karypis and Kumar, 1998). `greedy` reads its rows block by block and holds a few bytes per
node: linear deterministic greedy (Stanton and Kliot, 2012) gives a node to the part :math:`p` with the largest

.. math:: |N(v) \cap p| \, (1 - |p| / C),

neighbours in the part times the room that is left in it, where :math:`C` is the capacity of a part in nodes. Here the
room for entries counts, too, of which a part should not get more than twice the mean: otherwise the hubs of a graph
gather in one part, and the cut is no better for it (R-MAT, 200,000 nodes in 64 parts: 6.5 times the mean and 88 percent
cut, as it is here 1.9 times and 84 percent). Further passes over the same rows (Nishimura and Ugander, 2013) start
with empty parts and use where each neighbour was in the pass before.

The nodes of a block choose at the same time, so that all of it is array work. Blocks are small against the parts, and
nodes that would overfill one go to their next choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import scipy.sparse as sp

from adagpr.errors import InputError

# First node, where the rows start and end among the columns (from 0), columns.
Block = tuple[int, np.ndarray, np.ndarray]
# Told what is being done, how much of it is done, and of how much: 0 if that is not known.
OnProgress = Callable[[str, int, int], object]

# A part has at most this share of nodes above the mean, and should have at most so many times the mean of entries; less
# with few parts, because twice the mean of two parts is everything.
IMBALANCE = 0.05
ENTRIES = 2.0
_MORE_WITH_EACH_PART = 0.1
_MAX_BLOCK = 4096
_MIN_BLOCK = 8
_NUM_BLOCKS = 256
_MAX_CELLS = 1 << 22
# A pass that improves the cut by less is the last one.
_MIN_GAIN = 0.005


def ignore_progress(what: str, done: int, total: int) -> None:
    """For callers who need not be told."""


def metis(adj: sp.csr_array, num_parts: int) -> np.ndarray:
    """The part of each node by METIS, which counts an edge once whatever its direction or weight; no part is empty."""
    check_num_parts(num_parts, adj.shape[0])
    if num_parts == 1:
        return np.zeros(adj.shape[0], dtype=np.int32)
    import pymetis

    ones = sp.csr_array((np.ones(adj.nnz, dtype=np.int8), adj.indices, adj.indptr), shape=adj.shape)
    both = sp.coo_array(ones.maximum(ones.T))
    off = both.coords[0] != both.coords[1]
    counts = np.bincount(both.coords[0][off], minlength=adj.shape[0])
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    graph = pymetis.CSRAdjacency(starts, both.coords[1][off].astype(np.int32))
    # Bisection cuts less than METIS' k-way method on graphs with hubs and on tiny parts (R-MAT, 16 parts: 61 against 75
    # percent), and as much on others.
    _, found = pymetis.part_graph(num_parts, graph, recursive=True, options=pymetis.Options(seed=0))
    return _without_empty(np.asarray(found, dtype=np.int32), num_parts)


def greedy(
    read_rows: Callable[[], Iterable[Block]],
    num_nodes: int,
    num_edges: int,
    num_parts: int,
    num_passes: int = 8,
    on_progress: OnProgress = ignore_progress,
) -> np.ndarray:
    """The part of each node by linear deterministic greedy with several passes, of which the best counts.

    Blocks of ``read_rows`` start at multiples of `block_size`. No part is left empty, none has more than `capacity`
    nodes. Time is linear in the entries and in nodes times parts.
    """
    check_num_parts(num_parts, num_nodes)
    part = np.full(num_nodes, num_parts, dtype=np.int32)
    if num_parts == 1:
        return np.zeros_like(part)
    best, lowest = part, math.inf
    for number in range(num_passes):
        room = _Room(num_nodes, num_edges, num_parts)
        for start, indptr, columns in _sliced(read_rows(), block_size(num_nodes, num_parts)):
            stop = start + len(indptr) - 1
            part[start:stop] = room.choose(_neighbours(indptr, part[columns], num_parts), np.diff(indptr))
            on_progress(f"assigning the nodes, pass {number + 1}", stop, num_nodes)
        cut, before = edge_cut(read_rows(), part), lowest
        if cut < lowest:
            best, lowest = part.copy(), cut
        if cut > (1 - _MIN_GAIN) * before:
            break
    return _without_empty(best, num_parts)


def capacity(num_nodes: int, num_parts: int) -> int:
    """The most nodes that `greedy` gives a part: 5 percent above the mean, or the mean rounded up if that is more."""
    return max(-(-num_nodes // num_parts), int((1 + IMBALANCE) * num_nodes / num_parts))


def block_size(num_nodes: int, num_parts: int) -> int:
    """How many nodes of `greedy` choose at the same time; the result depends on it."""
    return max(_MIN_BLOCK, min(_MAX_BLOCK, num_nodes // _NUM_BLOCKS, _MAX_CELLS // (num_parts + 1)))


def edge_cut(rows: Iterable[Block], part: np.ndarray) -> int:
    """Entries whose row and column are in different parts."""
    return sum(
        int((np.repeat(part[start : start + len(indptr) - 1], np.diff(indptr)) != part[columns]).sum())
        for start, indptr, columns in rows
    )


def check_num_parts(num_parts: int, num_nodes: int) -> None:
    """Raises an `InputError` unless a graph can be cut into so many parts."""
    if num_parts < 1:
        raise InputError(f"partition: the number of parts must be at least 1, got {num_parts}.")
    if num_parts > num_nodes:
        raise InputError(f"partition: {num_parts} parts are more than the graph's {num_nodes} nodes.")


def _sliced(blocks: Iterable[Block], size: int) -> Iterator[Block]:
    """The same rows in blocks of one size."""
    for start, indptr, columns in blocks:
        for first in range(0, len(indptr) - 1, size):
            bounds = indptr[first : first + size + 1]
            yield start + first, bounds - bounds[0], columns[bounds[0] : bounds[-1]]


def _neighbours(indptr: np.ndarray, parts: np.ndarray, num_parts: int) -> np.ndarray:
    """How many neighbours each node of a block has in each part; those without a part yet are dropped."""
    size = len(indptr) - 1
    cells = np.repeat(np.arange(size), np.diff(indptr)) * (num_parts + 1) + parts
    return np.bincount(cells, minlength=size * (num_parts + 1)).reshape(size, num_parts + 1)[:, :-1]


class _Room:
    """How full the parts are."""

    def __init__(self, num_nodes: int, num_edges: int, num_parts: int) -> None:
        self._most = capacity(num_nodes, num_parts)
        times = min(ENTRIES, 1 + _MORE_WITH_EACH_PART * num_parts)
        self._many = max(1.0, times * num_edges / num_parts)
        self._load = np.zeros(num_parts, dtype=np.int64)
        self._entries = np.zeros(num_parts)

    def choose(self, neighbours: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The part of each node of a block: the one with the highest score that has room for its row."""
        # Neighbours in a part with too many entries still count more than none.
        left = np.minimum(1 - self._load / self._most, np.maximum(1 - self._entries / self._many, 1e-9))
        score = neighbours * left
        chosen = np.full(len(score), -1, dtype=np.int32)
        pending = self._pending(score, np.arange(len(score)))
        while len(pending):
            wish = score[pending].argmax(axis=1)
            order = np.lexsort((-score[pending, wish], wish))
            wish = wish[order]
            rank = np.arange(len(wish)) - np.searchsorted(wish, wish)
            fits = rank < (self._most - self._load)[wish]
            chosen[pending[order[fits]]] = wish[fits]
            self._load += np.bincount(wish[fits], minlength=len(self._load))
            pending = self._pending(score, np.sort(pending[order[~fits]]))
        free = np.flatnonzero(chosen < 0)
        given = _levelled(self._load, len(free))
        chosen[free] = np.repeat(np.arange(len(given)), given)
        self._load += given
        self._entries += np.bincount(chosen, lengths, minlength=len(given))
        return chosen

    def _pending(self, score: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Closes the parts that are full, and gives the nodes with a neighbour in one that is not."""
        score[:, self._load >= self._most] = 0
        found: np.ndarray = nodes[score[nodes].any(axis=1)]
        return found


def _levelled(load: np.ndarray, count: int) -> np.ndarray:
    """How many of ``count`` nodes each part gets so that the emptiest parts become equally full."""
    ordered = np.sort(load)
    # So many nodes fill the k emptiest parts up to the level of the next.
    needed = np.arange(len(load)) * ordered - np.concatenate([[0], np.cumsum(ordered)[:-1]])
    lowest = int(np.searchsorted(needed, count, side="right"))
    level, more = divmod(count + int(ordered[:lowest].sum()), lowest)
    given: np.ndarray = np.maximum(level - load, 0)
    given[np.argsort(load, kind="stable")[:more]] += 1
    return given


def _without_empty(part: np.ndarray, num_parts: int) -> np.ndarray:
    """Fills each empty part with the last node of the largest one."""
    sizes = np.bincount(part, minlength=num_parts)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        part[np.flatnonzero(part == largest)[-1]] = empty
        sizes[largest] -= 1
        sizes[empty] += 1
    return part
