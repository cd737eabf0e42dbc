"""The fifth stage of `partition_tables`: rows and features sent to one file per part, and the sums of the graph."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from adagpr.graph import SPLIT_NAMES
from adagpr.partitioning import tables_job
from adagpr.partitioning.disk_rows import append, fresh, ranges, read_entries
from adagpr.partitioning.parts import positions
from adagpr.partitioning.tables_job import MAX_EDGES, Job


def scatter(job: Job) -> dict[str, Any]:
    """Leaves columns, weights and features in folders with one file per part; takes the sums of graph and split."""
    part, indptr, y = np.array(job.load("part")), job.load("indptr"), job.load("y")
    total = _GraphSum(job.num_features, job.progress.stages["nodes"]["class_names"], job.load_ids())
    total.begin(np.int64, indptr.shape)
    total.add(indptr)
    for name, kind in (("columns", np.int64), ("weights", np.float64)):
        total.begin(kind, (int(indptr[-1]),))
        folder = fresh(job.progress.work / f"{name}-of-parts")
        for low, high in ranges(indptr, job.slice_bytes // 96):
            if name == "weights" and not job.is_weighted:
                total.add(np.ones(int(indptr[high] - indptr[low])))
                continue
            entries = read_entries(job.progress.work, name, indptr, low, high)
            total.add(entries)
            append(folder, np.repeat(part[low:high], np.diff(indptr[low : high + 1])), entries)
            job.tell("sorting the edges", high, len(part))
    total.begin(np.int64, y.shape)
    for low in range(0, len(y), MAX_EDGES):
        total.add(y[low : low + MAX_EDGES])
    total.begin(np.float32, (len(y), job.num_features))
    folder = fresh(job.progress.work / "features")
    for low, x in _ordered_features(job):
        total.add(x)
        append(folder, part[low : low + len(x)], x)
        job.tell("sorting the features", low + len(x), len(part))
    return {"graph_sha256": total.hasher.hexdigest(), "split_sha256": _split_sum(job.load("role"))}


def _ordered_features(job: Job) -> Iterator[tuple[int, np.ndarray]]:
    """The features in the order of the nodes, each block with the place of its first row."""
    if job.progress.stages["nodes"]["is_sorted"]:
        yield from _features(job)
        return
    rank, width, folder = job.load("rank"), job.num_features, fresh(job.progress.work / "features-by-place")
    step = max(1, min(tables_job.MAX_ROWS, job.slice_bytes // 4 // (16 * width + 64)))
    for first, x in _features(job):
        places = rank[first : first + len(x)].astype(np.int32)
        append(folder, places // step, np.concatenate([places.view(np.float32)[:, None], x], axis=1))
    for low in range(0, len(rank), step):
        rows = np.fromfile(folder / str(low // step), np.float32).reshape(-1, width + 1)
        order = np.argsort(np.ascontiguousarray(rows[:, 0]).view(np.int32))
        yield low, np.ascontiguousarray(rows[order, 1:])
    shutil.rmtree(folder)


def _features(job: Job) -> Iterator[tuple[int, np.ndarray]]:
    """The features in the order of the table, each block with the position of its first row."""
    entries, width = job.features[0], job.num_features
    rows = max(256, min(tables_job.MAX_ROWS, job.slice_bytes // 4 // (32 * width + 64)))
    for block in job.nodes.blocks([entry.name for entry in entries], rows):
        x, start = np.empty((len(block), width), dtype=np.float32), 0
        for entry in entries:
            own = entry.block(block)
            x[:, start : start + own.shape[1]] = own
            start += own.shape[1]
        yield int(block.rows[0]) - 1, x


class _GraphSum:
    """`Graph.fingerprint` of a graph that comes block by block: ``indptr``, columns, weights, classes, features."""

    def __init__(self, num_features: int, class_names: Sequence[str], ids: Any) -> None:
        self.hasher = hashlib.sha256(json.dumps([num_features, class_names]).encode())
        self._kind: np.dtype[Any] = np.dtype(np.int64)
        if ids is None:
            return
        for low in range(0, len(ids), tables_job.MAX_ROWS):
            texts = ids[low : low + tables_job.MAX_ROWS].cast(pa.large_string()).to_pylist()
            self.hasher.update(f"{', ' if low else '['}{json.dumps(texts)[1:-1]}".encode())
        self.hasher.update(b"]")

    def begin(self, kind: Any, shape: tuple[int, ...]) -> None:
        """Begins the next array, of the type that it has in a `Graph` and of this whole shape."""
        self._kind = np.dtype(kind)
        self.hasher.update(f"{self._kind}{shape}".encode())

    def add(self, block: np.ndarray) -> None:
        """Adds the next block of the array."""
        self.hasher.update(np.ascontiguousarray(block, self._kind).data)


def _split_sum(role: np.ndarray) -> str:
    """`Split.fingerprint` of the split in which nodes have these roles."""
    hasher = hashlib.sha256()
    for part in SPLIT_NAMES:
        index = positions(role, part)
        hasher.update(f"{len(index)}:".encode())
        hasher.update(index.numpy().data)
    return hasher.hexdigest()
