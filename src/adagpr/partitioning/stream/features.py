"""The features, block by block: as the table has them, or in the order of the nodes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from adagpr.errors import InputError
from adagpr.partitioning.stream import sizes
from adagpr.partitioning.stream.buckets import append, fresh
from adagpr.partitioning.stream.job import Job
from adagpr.partitioning.stream.table import Table
from adagpr.partitioning.stream.values import first_true, nulls

__all__ = ["ordered_features"]


def ordered_features(job: Job) -> Iterator[tuple[int, np.ndarray]]:
    """The features in the order of the nodes, each block with the place of its first row."""
    if job.progress.stages["nodes"]["is_sorted"]:
        yield from _in_table(job)
        return
    rank, width, folder = job.load("rank"), job.num_features, fresh(job.work / "features-by-place")
    step = max(1, min(sizes.MAX_ROWS, job.slice_bytes // 4 // (16 * width + 64)))
    for first, x in _in_table(job):
        places = rank[first : first + len(x)].astype(np.int32)
        append(folder, places // step, np.concatenate([places.view(np.float32)[:, None], x], axis=1))
    for low in range(0, len(rank), step):
        rows = np.fromfile(folder / str(low // step), np.float32).reshape(-1, width + 1)
        order = np.argsort(np.ascontiguousarray(rows[:, 0]).view(np.int32))
        yield low, np.ascontiguousarray(rows[order, 1:])
    shutil.rmtree(folder)


def _in_table(job: Job) -> Iterator[tuple[int, np.ndarray]]:
    """The features as the table has them, each block with its first row."""
    width = job.num_features
    rows = max(256, min(sizes.MAX_ROWS, job.slice_bytes // 4 // (32 * width + 64)))
    kinds = {name: job.nodes.schema.field(name).type for name in job.features}
    wanted = {name: kind if pa.types.is_boolean(kind) else pa.float64() for name, kind in kinds.items()}
    for first, table in job.nodes.batches(wanted, rows):
        x, start = np.empty((table.num_rows, width), dtype=np.float32), 0
        for name, count in job.features.items():
            x[:, start : start + count] = _numbers(job.nodes, table, name, count, first)
            start += count
        yield first, x


def _numbers(nodes: Table, table: Any, name: str, count: int, first: int) -> np.ndarray:
    """The features that a column gives, so many a row."""
    values, per_row = table[name].combine_chunks(), 1
    if pa.types.is_fixed_size_list(values.type) and not values.null_count:
        values, per_row = values.flatten(), count
    missing = first_true(nulls(values)) if values.null_count else None
    if missing is not None:
        raise InputError(f"{nodes.where(name, first + missing // per_row)}: the value is missing.")
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if not pa.types.is_float32(values.type):
        values = pc.cast(values, pa.float64(), safe=False)
    with np.errstate(over="ignore"):
        numbers = np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.float32).reshape(-1, count)
    odd = first_true(~np.isfinite(numbers).all(axis=1))
    if odd is not None:
        raise InputError(f"{nodes.where(name, first + odd)}: the number is missing, infinite or too large.")
    return numbers
