"""Stage 2: the edges, looked up among the nodes and sorted on disk by their source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from adagpr.errors import InputError
from adagpr.partitioning.stream import sizes
from adagpr.partitioning.stream.buckets import append, fresh
from adagpr.partitioning.stream.job import Job, counted
from adagpr.partitioning.stream.values import cleaned, first_true, is_number, is_text, nulls, whole_or_missing

__all__ = ["bucket_size", "record_kind", "sort_edges", "unit_size"]


def sort_edges(job: Job) -> dict[str, Any]:
    """Leaves the edges in buckets of sources, and ``unit_counts``, how many there are from each unit of sources.

    An edge is the number ``2 * (source * num_nodes + target)``, plus 1 where it is the reverse of a row of the table.
    """
    num_nodes, names = job.num_nodes, job.columns
    bucket, unit = bucket_size(num_nodes), unit_size(num_nodes)
    counts = np.zeros(-(-num_nodes // unit), dtype=np.int64)
    folder, finder = fresh(job.work / "edges"), _Finder(job.load_ids(), num_nodes)
    num_zero, num_rows = 0, 0
    for first, table in job.edges.batches(_wanted(job), max(4096, min(sizes.MAX_EDGES, job.slice_bytes // 512))):
        sources, targets = (_places(job, finder, table, name, first) for name in (names.source, names.target))
        weights = None if names.weight is None else _weights(job, table, names.weight, first)
        if weights is not None:
            kept = weights > 0
            num_zero += int((~kept).sum())
            sources, targets, weights = sources[kept], targets[kept], weights[kept]
        for way in range(1 if job.directed else 2):
            append(folder, sources // bucket, _records(2 * (sources * num_nodes + targets) + way, weights))
            counts += np.bincount(sources // unit, minlength=len(counts))
            sources, targets = targets, sources
        num_rows = first + table.num_rows
        job.tell("reading the edges", num_rows, 0)
    if num_rows == 0:
        raise InputError(f"{job.edges.path}: there are columns but no rows.")
    job.keep("unit_counts", counts)
    said = [f"{counted(num_zero, 'row')} of {job.edges.path} with weight 0 left out."]
    return {"num_rows": num_rows, "said": said if num_zero else []}


def bucket_size(num_nodes: int) -> int:
    """How many sources share a bucket."""
    return -(-num_nodes // sizes.NUM_BUCKETS)


def unit_size(num_nodes: int) -> int:
    """How many sources are counted together."""
    return -(-num_nodes // sizes.NUM_UNITS)


def record_kind(is_weighted: bool) -> np.dtype[Any]:
    """How an edge is written: its number, and its weight if it has one."""
    return np.dtype([("key", np.int64), ("weight", np.float64)]) if is_weighted else np.dtype(np.int64)


def _records(keys: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    if weights is None:
        return keys
    records = np.empty(len(keys), dtype=record_kind(True))
    records["key"], records["weight"] = keys, weights
    return records


def _wanted(job: Job) -> dict[str, Any]:
    """The columns to read, with the types to read them as."""
    ends = dict.fromkeys((job.columns.source, job.columns.target), pa.large_string())
    return ends if job.columns.weight is None else {**ends, job.columns.weight: pa.float64()}


def _places(job: Job, finder: _Finder, table: Any, column: str, first: int) -> np.ndarray:
    """The nodes that a column names."""
    values = cleaned(table, column)
    missing = first_true(nulls(values))
    if missing is not None:
        raise InputError(f"{job.edges.where(column, first + missing)}: the id is missing.")
    places = finder.places(values)
    unknown = first_true(places < 0)
    if unknown is not None:
        raise InputError(
            f"{job.edges.where(column, first + unknown)}: the edge names the id '{values[unknown]}', which is not in "
            f"{job.nodes.where(job.columns.id)}."
        )
    return places


def _weights(job: Job, table: Any, column: str, first: int) -> np.ndarray:
    values = cleaned(table, column)
    if not is_number(values.type):
        raise InputError(f"{job.edges.where(column)}: a weight must be a number, got {values.type}.")
    weights: np.ndarray = pc.fill_null(values.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
    odd = first_true(~(np.isfinite(weights) & (weights >= 0)))
    if odd is not None:
        raise InputError(
            f"{job.edges.where(column, first + odd)}: a weight must be a number and not negative, got {values[odd]}."
        )
    return weights


class _Finder:
    """Looks up ids among those of the nodes; no ids stand for the numbers from 0 on."""

    def __init__(self, ids: Any, num_nodes: int) -> None:
        self._ids, self._num_nodes = ids, num_nodes

    def places(self, values: Any) -> np.ndarray:
        """The place of each id, -1 for one that no node has."""
        if self._ids is not None and is_text(self._ids.type):
            texts = values if is_text(values.type) else values.cast(pa.large_string())
            found = pc.fill_null(pc.index_in(texts, value_set=self._ids), -1)
            return np.asarray(found.to_numpy(zero_copy_only=False)).astype(np.int64)
        whole = whole_or_missing(values)
        numbers = pc.fill_null(whole, -1).to_numpy(zero_copy_only=False)
        if self._ids is None:
            return np.where((numbers >= 0) & (numbers < self._num_nodes), numbers, -1)
        ids = self._ids.to_numpy()
        places = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
        return np.where((ids[places] == numbers) & ~nulls(whole), places, -1)
