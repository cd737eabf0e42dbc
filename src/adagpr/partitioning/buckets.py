"""Rows of arrays in one file per bucket: written batch by batch, read again bucket by bucket."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def fresh(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def append(folder: Path, bucket: np.ndarray, rows: np.ndarray) -> None:
    """Appends each row to the file of its bucket; rows of one bucket stay in order.

    Args:
        folder: Folder of the buckets.
        bucket: Number of the bucket of each row.
        rows: The rows.
    """
    # Numbers of 16 bits are sorted by radix.
    small = bucket.astype(np.uint16) if int(bucket.max(initial=0)) < 2**16 else bucket
    rows, counts = rows[np.argsort(small, kind="stable")], np.bincount(bucket)
    ends = np.cumsum(counts)
    for number in np.flatnonzero(counts):
        with (folder / str(number)).open("ab") as file:
            rows[ends[number] - counts[number] : ends[number]].tofile(file)


def read_bucket(folder: Path, number: int, kind: Any) -> np.ndarray:
    """The numbers of a bucket; none where nothing was written to it."""
    path = folder / str(number)
    return np.fromfile(path, kind) if path.is_file() else np.empty(0, dtype=kind)


def in_slices(folder: Path, number: int, kind: np.dtype[Any], rows: int) -> Iterator[np.ndarray]:
    """The rows of a bucket, so many at a time."""
    path = folder / str(number)
    size = path.stat().st_size if path.is_file() else 0
    step = rows * kind.itemsize
    for offset in range(0, size, step):
        # No more than there is: the count is allocated at once.
        yield np.fromfile(path, kind, min(step, size - offset) // kind.itemsize, offset=offset)


def ranges(ends: np.ndarray, limit: int, step: int = 1) -> Iterator[tuple[int, int]]:
    """Ranges of nodes with at most ``limit`` entries each, of multiples of ``step`` nodes, at least one step.

    Args:
        ends: Entries before each node, and all of them at the end.
        limit: The most entries.
        step: What every range but the last is a multiple of.
    """
    low, last = 0, len(ends) - 1
    while low < last:
        high = int(np.searchsorted(ends, ends[low] + limit, side="right")) - 1
        high = low + max(step, (high - low) // step * step)
        yield low, min(high, last)
        low = high
