"""Stage 5: rows and features sent to a file for each part, and the sums of the graph and the split."""

from __future__ import annotations

from typing import Any

import numpy as np

from adagpr.partitioning.stream import sizes
from adagpr.partitioning.stream.buckets import append, fresh, ranges
from adagpr.partitioning.stream.features import ordered_features
from adagpr.partitioning.stream.hashing import GraphSum, split_sum
from adagpr.partitioning.stream.job import Job
from adagpr.partitioning.stream.rows import read_entries

__all__ = ["scatter"]


def scatter(job: Job) -> dict[str, Any]:
    """Leaves columns, weights and features in folders with one file a part."""
    part, indptr, y = np.array(job.load("part")), job.load("indptr"), job.load("y")
    total = GraphSum(job.num_features, job.progress.stages["nodes"]["class_names"], job.load_ids())
    total.begin(np.int64, indptr.shape)
    total.add(indptr)
    total.begin(np.int64, (int(indptr[-1]),))
    _scatter_entries(job, "columns", part, indptr, total)
    total.begin(np.float64, (int(indptr[-1]),))
    if job.is_weighted:
        _scatter_entries(job, "weights", part, indptr, total)
    else:
        _add_ones(job, int(indptr[-1]), total)
    total.begin(np.int64, y.shape)
    for low in range(0, len(y), sizes.MAX_EDGES):
        total.add(y[low : low + sizes.MAX_EDGES])
    total.begin(np.float32, (len(y), job.num_features))
    _scatter_features(job, part, total)
    return {"graph_sha256": total.hexdigest(), "split_sha256": split_sum(job.load("role"))}


def _scatter_entries(job: Job, name: str, part: np.ndarray, indptr: np.ndarray, total: GraphSum) -> None:
    folder = fresh(job.work / f"{name}-of-parts")
    for low, high in ranges(indptr, job.slice_bytes // 96):
        entries = read_entries(job, name, indptr, low, high)
        total.add(entries)
        append(folder, np.repeat(part[low:high], np.diff(indptr[low : high + 1])), entries)
        job.tell("sorting the edges", high, len(part))


def _add_ones(job: Job, count: int, total: GraphSum) -> None:
    """Adds the weights of edges that have none."""
    step = job.slice_bytes // 96
    for low in range(0, count, step):
        total.add(np.ones(min(step, count - low)))


def _scatter_features(job: Job, part: np.ndarray, total: GraphSum) -> None:
    folder = fresh(job.work / "features")
    for low, x in ordered_features(job):
        total.add(x)
        append(folder, part[low : low + len(x)], x)
        job.tell("sorting the features", low + len(x), len(part))
