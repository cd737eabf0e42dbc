"""What `partition_tables` keeps in its folder ``.work``: edges sorted by source, rows, buckets and arrays of stages.

What is sorted goes through buckets, one file each: written batch by batch, read again bucket by bucket. An edge is the
number ``2 * (source * num_nodes + target)``, plus 1 where it is the reverse of a row of the table.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from adagpr.data import tables
from adagpr.files import write_atomically
from adagpr.partitioning.assign import OnProgress
from adagpr.partitioning.cut import PartitionState
from adagpr.partitioning.parts import write_arrow
from adagpr.schemas import reading

# How much is read and held at a time; the result depends on none of it. Bytes per node: ids, parts, numbers by part,
# where rows start, degrees, and a copy of one of them.
BYTES_PER_NODE, BYTES_PER_TEXT_ID = 48, 64
# Bytes that are there for slices however many nodes there are.
MIN_SLICE = 16 * 2**20
# The most rows of a table of nodes, and of one of edges, at a time.
MAX_ROWS, MAX_EDGES = 1 << 17, 1 << 22
# Files that edges are sorted into, and ranges of sources whose edges are counted.
NUM_BUCKETS = 256
NUM_UNITS = 1 << 16
# The files of the merged rows, and what an entry is in each; that of the weights is empty if edges have none.
ENTRIES: dict[str, np.dtype[Any]] = {"columns": np.dtype(np.int32), "weights": np.dtype(np.float64)}


@dataclass(frozen=True, eq=False)
class Job:
    """What every stage is given: what was asked, and what earlier stages left."""

    nodes: tables.TableFile
    edges: tables.TableFile
    columns: tables.Columns
    asked_features: Sequence[str] | None
    num_parts: int
    directed: bool
    is_drawn: bool
    seed: int
    memory: int
    as_is: bool
    state: PartitionState
    on_progress: OnProgress

    @cached_property
    def features(self) -> tuple[list[tables.NumberColumn | tables.VectorColumn], list[str]]:
        """What features are made of, and sentences about it."""
        wanted, about = tables.feature_columns(self.nodes, self.columns.of_nodes, self.asked_features)
        self.nodes.survey([*self.columns.of_nodes, *wanted])
        entries, messages = tables.as_is_columns(self.nodes, wanted, self.asked_features is not None)
        return entries, [*messages, *about]

    @cached_property
    def num_features(self) -> int:
        """Number of features."""
        return sum(len(entry.feature_names) for entry in self.features[0])

    @cached_property
    def num_nodes(self) -> int:
        """Number of nodes, once they are read."""
        return int(self.state.stages["nodes"]["num_nodes"])

    @cached_property
    def is_weighted(self) -> bool:
        """Whether edges have weights."""
        return self.columns.weight is not None

    @cached_property
    def slice_bytes(self) -> int:
        """Bytes that one slice may take: half of what is left, as copies come and go."""
        return max(MIN_SLICE, self.memory - BYTES_PER_NODE * self.num_nodes) // 2

    def keep(self, name: str, array: np.ndarray) -> None:
        """Leaves an array for later stages."""

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.save(file, array, allow_pickle=False)

        write_atomically(self.state.work / f"{name}.npy", write)

    def load(self, name: str) -> np.ndarray:
        """An array that an earlier stage left, mapped into memory."""
        path = self.state.work / f"{name}.npy"
        with reading(path, f"Remove the folder {self.state.folder} to partition anew."):
            found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        return found

    def entries(self, name: str, indptr: np.ndarray, low: int, high: int) -> np.ndarray:
        """Columns or weights, whichever of `ENTRIES` is named, of the rows of a range of nodes."""
        start, end = int(indptr[low]), int(indptr[high])
        return np.fromfile(self.state.work / name, ENTRIES[name], end - start, offset=start * ENTRIES[name].itemsize)

    def entries_of_part(self, name: str, number: int) -> np.ndarray:
        """Columns or weights of the rows of a part; none where nothing was written."""
        path = self.state.work / f"{name}-of-parts" / str(number)
        return np.fromfile(path, ENTRIES[name]) if path.is_file() else np.empty(0, dtype=ENTRIES[name])

    def keep_ids(self, ids: Any) -> None:
        """Leaves the ids of the nodes in order."""
        table = pa.table({"node_id": ids})
        write_atomically(self.state.work / "ids.arrow", lambda path: write_arrow(path, table, self.state.key))

    def load_ids(self) -> Any:
        """The ids in order, mapped into memory; none where they are the numbers from 0 on."""
        path = self.state.work / "ids.arrow"
        if not path.exists():
            return None
        way_out = f"Remove the folder {self.state.folder} to partition anew."
        with reading(path, way_out), pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all()["node_id"].chunk(0)


def fresh(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def append(folder: Path, bucket: np.ndarray, rows: np.ndarray) -> None:
    """Appends each row to the file of its bucket; rows of one bucket stay in order."""
    # Numbers of 16 bits are sorted by radix.
    small = bucket.astype(np.uint16) if int(bucket.max(initial=0)) < 2**16 else bucket
    rows, counts = rows[np.argsort(small, kind="stable")], np.bincount(bucket)
    ends = np.cumsum(counts)
    for number in np.flatnonzero(counts):
        with (folder / str(number)).open("ab") as file:
            rows[ends[number] - counts[number] : ends[number]].tofile(file)


def ranges(ends: np.ndarray, limit: int, step: int = 1) -> Iterator[tuple[int, int]]:
    """Ranges of nodes with at most ``limit`` entries each, of multiples of ``step`` nodes, at least one step.

    ``ends`` are the entries before each node, and all of them at the end.
    """
    low, last = 0, len(ends) - 1
    while low < last:
        high = int(np.searchsorted(ends, ends[low] + limit, side="right")) - 1
        high = low + max(step, (high - low) // step * step)
        yield low, min(high, last)
        low = high


class EdgeSorter:
    """Sends edges to files by their source; ``unit_counts`` are the edges from each unit of sources."""

    def __init__(self, folder: Path, num_nodes: int) -> None:
        self._folder, self._num_nodes = folder, num_nodes
        self._unit = -(-num_nodes // NUM_UNITS)
        self.unit_counts = np.zeros(-(-num_nodes // self._unit), dtype=np.int64)

    def add(self, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, is_reverse: bool) -> None:
        """Adds edges; a reverse one counts as no row of the table."""
        keys = 2 * (sources * self._num_nodes + targets) + is_reverse
        records = keys
        if weights is not None:
            records = np.empty(len(keys), dtype=_record_kind(True))
            records["key"], records["weight"] = keys, weights
        append(self._folder, sources // -(-self._num_nodes // NUM_BUCKETS), records)
        self.unit_counts += np.bincount(sources // self._unit, minlength=len(self.unit_counts))


class RowMerger:
    """Makes rows of the adjacency from sorted edges, each entry once, and notes what is found in them.

    ``lengths`` are the entries of each row, behind a 0, and ``degree`` the sums of their weights, if they have some.
    """

    def __init__(self, work: Path, num_nodes: int, is_weighted: bool) -> None:
        self._work, self._num_nodes, self._is_weighted = work, num_nodes, is_weighted
        self.lengths = np.zeros(num_nodes + 1, dtype=np.int64)
        self.degree = np.zeros(num_nodes if is_weighted else 0)
        self.counts = tables.EdgeCounts(num_alone=num_nodes)
        self._touched = np.zeros(num_nodes, dtype=bool)
        self._forward = self._backward = 0

    def merge(self, unit_counts: np.ndarray, slice_bytes: int, on_progress: OnProgress) -> None:
        """Writes the files of `ENTRIES`, with so many bytes at a time."""
        unit = -(-self._num_nodes // NUM_UNITS)
        before = np.concatenate([[0], np.cumsum(unit_counts)])
        with (self._work / "columns").open("wb") as columns, (self._work / "weights").open("wb") as weights:
            for low, high in ranges(before, slice_bytes // (128 if self._is_weighted else 64)):
                low, high = low * unit, min(high * unit, self._num_nodes)
                keys, values = self._merged(self._edges_from(low, high, max(1, slice_bytes // 512)))
                self._note(low, high, keys, values)
                (keys % self._num_nodes).astype(ENTRIES["columns"]).tofile(columns)
                if values is not None:
                    values.tofile(weights)
                on_progress("merging the edges", high, self._num_nodes)
        self.counts.num_alone = int((~self._touched).sum())
        # Sums of hashes over all entries and over their reverses.
        self.is_symmetric = self._forward == self._backward
        shutil.rmtree(self._work / "edges")

    def _edges_from(self, low: int, high: int, num_rows: int) -> np.ndarray:
        """The edges from a range of sources, as they came."""
        bucket, kind = -(-self._num_nodes // NUM_BUCKETS), _record_kind(self._is_weighted)
        first, last = 2 * self._num_nodes * low, 2 * self._num_nodes * high
        found = [np.empty(0, dtype=kind)]
        for number in range(low // bucket, (high - 1) // bucket + 1):
            # Where no edge came from these sources there is no file.
            with suppress(FileNotFoundError), (self._work / "edges" / str(number)).open("rb") as file:
                while len(records := np.fromfile(file, kind, num_rows)):
                    keys = records["key"] if self._is_weighted else records
                    found.append(records[(keys >= first) & (keys < last)])
        return np.concatenate(found)

    def _merged(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Each entry once, in order, and its weight if it has one: of the two directions the larger."""
        keys, weights = (records["key"], records["weight"]) if self._is_weighted else (records, None)
        num_forward = len(keys) - int((keys & 1).sum())
        keys, weights = tables.merge_repeated(keys, weights)
        self.counts.num_repeated += num_forward - int((keys & 1 == 0).sum())
        keys >>= 1
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        if weights is not None and len(starts):
            weights = np.maximum.reduceat(weights, starts)
        return keys[starts], weights

    def _note(self, low: int, high: int, keys: np.ndarray, weights: np.ndarray | None) -> None:
        """Takes note of the entries of a range of rows, given as row times number of nodes plus column."""
        num_nodes = self._num_nodes
        rows, columns = keys // num_nodes, keys % num_nodes
        lengths = np.bincount(rows - low, minlength=high - low)
        self.lengths[low + 1 : high + 1] = lengths
        is_other = rows != columns
        self._touched[rows[is_other]] = self._touched[columns[is_other]] = True
        self.counts.num_loops += int((~is_other).sum())
        if weights is not None:
            indptr = np.concatenate([[0], np.cumsum(lengths)])
            self.degree[low:high] = sp.csr_array((weights, columns, indptr), shape=(high - low, num_nodes)).sum(axis=1)
        self._forward = (self._forward + _sum_of_hashes(keys, weights)) % 2**64
        self._backward = (self._backward + _sum_of_hashes(columns * num_nodes + rows, weights)) % 2**64


def _record_kind(is_weighted: bool) -> np.dtype[Any]:
    """How an edge is written: its number, and its weight if it has one."""
    return np.dtype([("key", np.int64), ("weight", np.float64)]) if is_weighted else np.dtype(np.int64)


def _sum_of_hashes(keys: np.ndarray, weights: np.ndarray | None) -> int:
    marks = _hashed(keys) if weights is None else _hashed(_hashed(keys) ^ weights.view(np.uint64))
    return int(marks.sum(dtype=np.uint64))


def _hashed(numbers: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 of 64-bit words."""
    word = numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
