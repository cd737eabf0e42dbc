"""The adjacency that a table of edges makes: ends looked up among the nodes, repeated edges merged, weights added."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from adagpr.data.tables.columns import Columns
from adagpr.data.tables.nodes import IdLookup, ids_of
from adagpr.data.tables.recipe import numbers_of
from adagpr.data.tables.table import TableData
from adagpr.data.tables.values import counted, is_number_text, quoted
from adagpr.errors import InputError
from adagpr.graph import edges_to_csr

_NUM_SHOWN = 3


@dataclass
class EdgeCounts:
    """Rows with weight 0 and rows that repeat an edge, edges from a node to itself, nodes without another edge."""

    num_zero: int = 0
    num_repeated: int = 0
    num_loops: int = 0
    num_alone: int = 0

    def messages(self, edges: str, is_weighted: bool, num_nodes: int) -> list[str]:
        """Sentences on what was odd in the table called ``edges``."""
        messages = []
        if self.num_zero:
            messages.append(f"{counted(self.num_zero, 'row')} of {edges} with weight 0 left out.")
        if self.num_repeated:
            how = "merged, their weights added" if is_weighted else "merged, each edge counted once"
            messages.append(f"{counted(self.num_repeated, 'row')} of {edges} that repeat an edge {how}.")
        if self.num_loops:
            messages.append(f"{counted(self.num_loops, 'edge')} from a node to itself kept.")
        if self.num_alone:
            messages.append(f"Without an edge to another node: {self.num_alone} of {num_nodes} nodes.")
        return messages


def _read_ends(edges: TableData, columns: Columns, lookup: IdLookup, ids_at: str) -> tuple[np.ndarray, np.ndarray]:
    """The nodes at both ends of each row; an id that no node has is an error that says where ids are (``ids_at``)."""
    sources, targets = (lookup.places(ids_of(edges, column)) for column in (columns.source, columns.target))
    rows = np.flatnonzero((sources < 0) | (targets < 0))
    if len(rows) == 0:
        return sources, targets
    shown = []
    for row in rows[:_NUM_SHOWN]:
        column = columns.source if sources[row] < 0 else columns.target
        shown.append(f"{quoted(edges.texts(column)[int(row)])} (column '{column}', row {edges.rows[row]})")
    least = "at least " if edges.is_part else ""
    what = f"{least}1 edge names an id that is" if len(rows) == 1 else f"{least}{len(rows)} edges name ids that are"
    first = "" if len(rows) <= _NUM_SHOWN else "the first "
    raise InputError(f"{edges.name}: {what} not in {ids_at}: {first}{', '.join(shown)}.")


def _read_weights(edges: TableData, column: str) -> np.ndarray:
    """The weight of each row: a number that is not negative, else an error."""
    kind = edges.kind(column)
    if kind not in ("whole", "real", "missing"):
        odd = ~edges.missing(column)
        if kind == "text" and edges.is_text:
            odd &= ~is_number_text(edges.texts(column))
        odd = odd if odd.any() else ~odd
        edges.refuse(column, odd, "a weight must be a number, got {}.", edges.texts(column))
    weight = numbers_of(edges, column)
    edges.refuse(column, np.isnan(weight), "the weight is missing.")
    if (weight < 0).any():
        position = edges.first(weight < 0)
        raise InputError(f"{edges.where(column, position)}: a weight must not be negative, got {weight[position]:g}.")
    return weight


def read_edges(
    edges: TableData, columns: Columns, lookup: IdLookup, ids_at: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
    """The ends and weights of the rows of a table, or of a block of one, and how many with weight 0 are left out."""
    sources, targets = _read_ends(edges, columns, lookup, ids_at)
    if columns.weight is None:
        return sources, targets, None, 0
    weights = _read_weights(edges, columns.weight)
    kept = weights > 0
    return sources[kept], targets[kept], weights[kept], int((~kept).sum())


def merge_repeated(keys: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Each key once, in order, with the sum of its weights, added in the order of their size.

    Keys are numbers from 0 up that name edges; where there are no weights they are sorted in place.
    """
    if weights is None:
        keys.sort()
    else:
        order = np.lexsort((weights, keys))
        keys, weights = keys[order], weights[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    if weights is not None and len(starts):
        with np.errstate(over="ignore"):
            weights = np.add.reduceat(weights, starts)
    return keys[starts], weights


def adjacency(
    lookup: IdLookup, num_nodes: int, edges: TableData, columns: Columns, directed: bool, ids_at: str
) -> tuple[sp.csr_array, list[str]]:
    """The matrix of an edge table, and sentences on what was odd in it."""
    counts = EdgeCounts()
    sources, targets, weights, counts.num_zero = read_edges(edges, columns, lookup, ids_at)
    keys, weights = merge_repeated(sources * num_nodes + targets, weights)
    counts.num_repeated = len(sources) - len(keys)
    sources, targets = keys // num_nodes, keys % num_nodes
    is_loop = sources == targets
    counts.num_loops = int(is_loop.sum())
    touched = np.zeros(num_nodes, dtype=bool)
    touched[sources[~is_loop]] = touched[targets[~is_loop]] = True
    counts.num_alone = int((~touched).sum())
    weights = np.ones(len(keys)) if weights is None else weights
    if not directed:
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        weights = np.concatenate([weights, weights])
    adj = edges_to_csr(sources, targets, num_nodes, weights)
    return adj, counts.messages(edges.name, columns.weight is not None, num_nodes)
