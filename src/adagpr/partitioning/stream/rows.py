"""Stage 3: the rows of the adjacency in two long files, columns and weights, each edge once."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import scipy.sparse as sp

from adagpr.errors import InputError
from adagpr.partitioning.stream.buckets import in_slices, ranges
from adagpr.partitioning.stream.edges import bucket_size, record_kind, unit_size
from adagpr.partitioning.stream.hashing import hashed
from adagpr.partitioning.stream.job import Job, counted

__all__ = ["ENTRIES", "merge_rows", "read_entries"]

# The files, and what an entry is in each.
ENTRIES: dict[str, np.dtype[Any]] = {"columns": np.dtype(np.int32), "weights": np.dtype(np.float64)}


def merge_rows(job: Job) -> dict[str, Any]:
    """Leaves the two files (that of the weights empty if edges have none), ``indptr``, and ``degree`` of weights."""
    num_nodes, unit = job.num_nodes, unit_size(job.num_nodes)
    before = np.concatenate([[0], np.cumsum(job.load("unit_counts"))])
    tally = _Tally(num_nodes, job.is_weighted)
    with (job.work / "columns").open("wb") as columns, (job.work / "weights").open("wb") as weights:
        for low, high in ranges(before, job.slice_bytes // (128 if job.is_weighted else 64)):
            low, high = low * unit, min(high * unit, num_nodes)
            keys, values, num_repeated = _merged(_edges_from(job, low, high))
            tally.add(low, high, keys, values, num_repeated)
            (keys % num_nodes).astype(ENTRIES["columns"]).tofile(columns)
            if values is not None:
                values.tofile(weights)
            job.tell("merging the edges", high, num_nodes)
    num_edges = int(tally.lengths.sum())
    _check_memory(job, num_edges)
    job.keep("indptr", np.cumsum(tally.lengths))
    if job.is_weighted:
        job.keep("degree", tally.degree)
    shutil.rmtree(job.work / "edges")
    return {"is_symmetric": tally.is_symmetric, "num_edges": num_edges, "said": _said(job, tally)}


def read_entries(job: Job, name: str, indptr: np.ndarray, low: int, high: int) -> np.ndarray:
    """Columns or weights of the rows of a range of nodes.

    Args:
        job: The job.
        name: Which of `ENTRIES`.
        indptr: Where rows start and end.
        low: First row.
        high: Row behind the last.
    """
    start, end = int(indptr[low]), int(indptr[high])
    return np.fromfile(job.work / name, ENTRIES[name], end - start, offset=start * ENTRIES[name].itemsize)


def _edges_from(job: Job, low: int, high: int) -> np.ndarray:
    """The edges from a range of sources, as they came."""
    bucket, kind = bucket_size(job.num_nodes), record_kind(job.is_weighted)
    first, last = 2 * job.num_nodes * low, 2 * job.num_nodes * high
    found = [np.empty(0, dtype=kind)]
    for number in range(low // bucket, (high - 1) // bucket + 1):
        for records in in_slices(job.work / "edges", number, kind, max(1, job.slice_bytes // 512)):
            keys = records["key"] if job.is_weighted else records
            found.append(records[(keys >= first) & (keys < last)])
    return np.concatenate(found)


def _merged(records: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Each entry once, in order, its weight if it has one, and how many rows of the table repeated one.

    The last bit of a record's key says that it is the reverse of a row. Weights of one way are added, in the order of
    their size so that the rows may come in any; of the two ways the larger counts.
    """
    if records.dtype.names is None:
        records.sort()
        keys, totals = records, None
    else:
        order = np.lexsort((records["weight"], records["key"]))
        keys, totals = records["key"][order], records["weight"][order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    num_forward = int((keys & 1 == 0).sum())
    keys = keys[starts]
    num_repeated = num_forward - int((keys & 1 == 0).sum())
    keys >>= 1
    ways = np.flatnonzero(np.diff(keys, prepend=-1))
    if totals is not None and len(starts):
        with np.errstate(over="ignore"):
            totals = np.maximum.reduceat(np.add.reduceat(totals, starts), ways)
    return keys[ways], totals, num_repeated


def _check_memory(job: Job, num_edges: int) -> None:
    """Raises an `InputError` unless one part at a time fits."""
    needed = 1.1 * (48 * num_edges + (4 * job.num_features + 64) * job.num_nodes) / job.num_parts
    if needed > job.slice_bytes:
        raise InputError(
            f"One of {job.num_parts} parts needs about {needed / 1e9:.3f} GB of memory, more than the "
            f"{job.slice_bytes / 1e9:.3f} GB that are left for it: ask for more parts."
        )


def _said(job: Job, tally: _Tally) -> list[str]:
    """Sentences about edges that are repeated or loops, and nodes without one."""
    said, alone = [], int((~tally.touched).sum())
    if tally.num_repeated:
        how = "merged, their weights added" if job.is_weighted else "merged, each edge counted once"
        said.append(f"{counted(tally.num_repeated, 'row')} of {job.edges.path} that repeat an edge {how}.")
    if tally.num_loops:
        said.append(f"{counted(tally.num_loops, 'edge')} from a node to itself kept.")
    if alone:
        said.append(f"Without an edge to another node: {alone} of {len(tally.touched)} nodes.")
    return said


class _Tally:
    """What is found in the rows of the adjacency while they are written.

    Attributes:
        lengths: Entries of each row, behind a 0.
        degree: Sum of each row's weights, if entries have some.
        touched: Which nodes have an edge to another.
        num_loops: Edges from a node to itself.
        num_repeated: Rows of the table that repeat another.
    """

    def __init__(self, num_nodes: int, is_weighted: bool) -> None:
        self.lengths = np.zeros(num_nodes + 1, dtype=np.int64)
        self.degree = np.zeros(num_nodes if is_weighted else 0)
        self.touched = np.zeros(num_nodes, dtype=bool)
        self.num_loops = self.num_repeated = 0
        self._forward = self._backward = 0

    @property
    def is_symmetric(self) -> bool:
        """Whether a sum of hashes over all entries is that over their reverses."""
        return self._forward == self._backward

    def add(self, low: int, high: int, keys: np.ndarray, weights: np.ndarray | None, num_repeated: int) -> None:
        """Takes note of the entries of a range of rows.

        Args:
            low: First row.
            high: Row behind the last.
            keys: Row times the number of nodes plus column, ascending.
            weights: Weights of the entries, if they have some.
            num_repeated: Rows of the table that repeat one of the entries.
        """
        num_nodes = len(self.touched)
        rows, columns = keys // num_nodes, keys % num_nodes
        lengths = np.bincount(rows - low, minlength=high - low)
        self.lengths[low + 1 : high + 1] = lengths
        is_other = rows != columns
        self.touched[rows[is_other]] = self.touched[columns[is_other]] = True
        self.num_loops += int((~is_other).sum())
        self.num_repeated += num_repeated
        if weights is not None:
            indptr = np.concatenate([[0], np.cumsum(lengths)])
            self.degree[low:high] = sp.csr_array((weights, columns, indptr), shape=(high - low, num_nodes)).sum(axis=1)
        self._forward = (self._forward + _sum_of_hashes(keys, weights)) % 2**64
        self._backward = (self._backward + _sum_of_hashes(columns * num_nodes + rows, weights)) % 2**64


def _sum_of_hashes(keys: np.ndarray, weights: np.ndarray | None) -> int:
    marks = hashed(keys) if weights is None else hashed(hashed(keys) ^ weights.view(np.uint64))
    return int(marks.sum(dtype=np.uint64))
