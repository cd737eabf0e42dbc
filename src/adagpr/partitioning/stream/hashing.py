"""Hashes of numbers, and the sums of a graph and its split as `adagpr.graph` takes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from adagpr.graph import SPLIT_NAMES
from adagpr.partitioning.parts import positions
from adagpr.partitioning.stream import sizes

__all__ = ["GraphSum", "hashed", "split_sum"]


def hashed(numbers: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 of 64-bit words."""
    word = numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


class GraphSum:
    """`Graph.fingerprint` of a graph that comes block by block: ``indptr``, columns, weights, classes, features."""

    def __init__(self, num_features: int, class_names: Sequence[str], ids: Any) -> None:
        self._hasher = hashlib.sha256(json.dumps([num_features, class_names]).encode())
        self._kind: np.dtype[Any] = np.dtype(np.int64)
        if ids is None:
            return
        for low in range(0, len(ids), sizes.MAX_ROWS):
            texts = ids[low : low + sizes.MAX_ROWS].cast(pa.large_string()).to_pylist()
            self._hasher.update(f"{', ' if low else '['}{json.dumps(texts)[1:-1]}".encode())
        self._hasher.update(b"]")

    def begin(self, kind: Any, shape: tuple[int, ...]) -> None:
        """Begins the next array.

        Args:
            kind: Type that it has in a `Graph`.
            shape: Its whole shape.
        """
        self._kind = np.dtype(kind)
        self._hasher.update(f"{self._kind}{shape}".encode())

    def add(self, block: np.ndarray) -> None:
        """Adds the next block of the array."""
        self._hasher.update(np.ascontiguousarray(block, self._kind).data)

    def hexdigest(self) -> str:
        """The sum of all that was added."""
        return self._hasher.hexdigest()


def split_sum(role: np.ndarray) -> str:
    """`Split.fingerprint` of the split in which nodes have these roles."""
    hasher = hashlib.sha256()
    for part in SPLIT_NAMES:
        index = positions(role, part)
        hasher.update(f"{len(index)}:".encode())
        hasher.update(index.numpy().data)
    return hasher.hexdigest()
