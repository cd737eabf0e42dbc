"""Two tables that do not fit, cut into parts in a bounded amount of memory.

The tables are read in batches. What stays in memory grows with the nodes alone, by some 50 bytes each; edges and
features go through files below ``.work``, in slices that fit what is left:

1. *nodes*: ids, classes and the split; nodes are put in the order of their ids.
2. *edges*: each end looked up and written, both ways unless directed, to the bucket of its source.
3. *rows*: every slice of sources sorted, repeated edges merged: the rows of the adjacency in one long file.
4. *assign*: `greedy` reads that file again and again.
5. *scatter*: rows and features sent to a file for each part, and the sum of the graph taken.
6. The parts, one by one.

A stage that was interrupted starts anew, one that is done is not repeated. The result is a function of the tables and
the arguments, not of the memory, and its graph is that of the tables when they are read whole with ``as_is``, to the
bit and with the same sums (unless features are so sparse that they are then kept as such).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import scipy.sparse as sp
import torch

from adagpr.errors import InputError, unknown_name
from adagpr.files import write_atomically
from adagpr.graph import PARTS
from adagpr.scale.assign import Block, block_size, check_num_parts, greedy
from adagpr.scale.partition import Numbering, OnProgress, Progress, local_rows, opened, write_parts
from adagpr.scale.parts import ROLES, Manifest, Parts, Rows

__all__ = ["Columns", "Table", "partition_tables"]

# Ids, parts, numbers by part, where rows start, degrees, and a copy of one of them.
BYTES_PER_NODE = 48
BYTES_PER_TEXT_ID = 64
MIN_SLICE = 16 * 2**20
MAX_NODES = 2**31 - 1
FRACTIONS = (0.6, 0.8)
MAX_CLASSES = 10_000
NUM_BUCKETS = 256
NUM_UNITS = 1 << 16
MAX_ROWS = 1 << 17
MAX_EDGES = 1 << 22
CSV_BLOCK = 1 << 22
WEIGHTED = np.dtype([("key", np.int64), ("weight", np.float64)])

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PARQUET = (".parquet", ".pq")
_ARROW = (".feather", ".arrow", ".ipc")
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_MISSING_WORDS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
    *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
_PART_OF = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val"}
_PART_OF |= {"test": "test", "testing": "test"}
# Bytes of a short row of a text file, and how much larger a compressed table may become.
_SHORT_ROW, _PACKED = 12, 4
_WHOLE = r"^-?(0|[1-9]\d{0,17})$"


@dataclass(frozen=True)
class Columns:
    """The columns of the two tables.

    Attributes:
        label: Classes, in the table of nodes; a missing value means that the class is unknown.
        id: Ids of the nodes.
        source: Where edges start.
        target: Where edges end.
        weight: Weights of the edges, if they have some.
        split: What says train, val or test; else a split is drawn.
        features: What features are made of; by default all columns of numbers that are left.
    """

    label: str
    id: str = "id"
    source: str = "source"
    target: str = "target"
    weight: str | None = None
    split: str | None = None
    features: tuple[str, ...] | None = None


def partition_tables(
    nodes: Path | str,
    edges: Path | str,
    columns: Columns,
    num_parts: int,
    out: Path | str,
    memory: float,
    *,
    directed: bool = False,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Parts:
    """Cuts the graph of two tables into parts on disk, in bounded memory; the same call goes on after a stop.

    Numbers are features as they are, in float32; a column of lists of one length gives one feature for each item, and
    other columns are left out. Repeated edges are merged and their weights added; where edges go both ways, the larger
    weight of the two counts.

    Args:
        nodes: Table of nodes: .csv, .tsv, .parquet, .feather or .arrow.
        edges: Table of edges.
        columns: Their columns.
        num_parts: Number of parts, at most that of the nodes.
        out: Folder of the partition.
        memory: Bytes to use beside what Python and its libraries take; the result does not depend on it.
        directed: Whether edges go one way.
        seed: Chooses the split where one is drawn: 60 percent train, 20 val, 20 test, by a hash of each node's place.
        on_progress: Told of every slice.

    Raises:
        InputError: A table cannot be used, ``memory`` is too small for the nodes, or ``out`` holds another partition.
    """
    folder = Path(out)
    tables = Table(Path(nodes)), Table(Path(edges))
    asked = {**asdict(columns), "directed": directed, "seed": seed, "num_parts": num_parts, "method": "greedy"}
    with opened(folder, {**asked, "files": [table.stamp for table in tables]}) as progress:
        if isinstance(progress, Parts):
            return progress
        return _Streaming(
            *tables, columns, num_parts, directed, seed, int(min(memory, 2**60)), progress, on_progress
        ).run()


@dataclass(eq=False)
class _Streaming:
    """The stages, each of which leaves files below ``.work`` and a few facts in the progress."""

    nodes: Table
    edges: Table
    columns: Columns
    num_parts: int
    directed: bool
    seed: int
    memory: int
    progress: Progress
    on_progress: OnProgress | None

    def run(self) -> Parts:
        """Does what is not done yet."""
        self._check_columns()
        for stage in ("nodes", "edges", "rows", "assign", "scatter"):
            if stage not in self.progress.stages:
                self.progress.record(stage, getattr(self, f"_{stage}")())
        return self._finish()

    def _check_columns(self) -> None:
        names = self.columns
        for column in (names.id, names.label, names.split, *(names.features or ())):
            self.nodes.require(column)
        for column in (names.source, names.target, names.weight):
            self.edges.require(column)
        for column in names.features or ():
            if column in (names.id, names.label, names.split):
                where = self.nodes.where(column)
                raise InputError(f"{where}: a column of ids, labels or the split cannot be a feature too.")
            if self._width(column) == 0:
                raise InputError(f"{self.nodes.where(column)}: no feature can be made of it, as it holds no numbers.")
        if not self._features():
            raise InputError(f"{self.nodes.path}: no column of numbers is left to make features of.")

    def _width(self, column: str) -> int:
        """How many features a column gives."""
        kind = self.nodes.schema.field(column).type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size) if _is_number(kind.value_type) else 0
        return int(_is_number(kind))

    def _features(self) -> dict[str, int]:
        """The columns that features are made of, each with how many it gives."""
        taken = (self.columns.id, self.columns.label, self.columns.split)
        names = [name for name in self.nodes.schema.names if name not in taken]
        wanted = self.columns.features
        return {name: self._width(name) for name in names if self._width(name) and (wanted is None or name in wanted)}

    @property
    def _num_nodes(self) -> int:
        return int(self.progress.stages["nodes"]["num_nodes"])

    @property
    def _slice(self) -> int:
        """Bytes that one slice may take: half of what is left, as copies come and go."""
        return max(MIN_SLICE, self.memory - BYTES_PER_NODE * self._num_nodes) // 2

    def _load(self, name: str) -> np.ndarray:
        """An array that an earlier stage left, mapped into memory."""
        found: np.ndarray = np.load(self.progress.work / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return found

    def _keep(self, name: str, array: np.ndarray) -> None:
        _save(self.progress.work / f"{name}.npy", array)

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, total)

    # Stage 1.

    def _nodes(self) -> dict[str, Any]:
        num_nodes = self.nodes.count(self.columns.id)
        if num_nodes == 0:
            raise InputError(f"{self.nodes.path}: there are columns but no rows.")
        check_num_parts(self.num_parts, num_nodes)
        if num_nodes > MAX_NODES:
            raise InputError(f"{self.nodes.path}: there are {num_nodes} nodes; at most {MAX_NODES} can be cut.")
        is_text = _is_text(self.nodes.schema.field(self.columns.id).type) and not self.nodes.is_text
        self._check_memory(num_nodes, is_text)
        scan = _Scan(self.nodes, self.columns, self._tell, num_nodes)
        if is_text or not scan.read(as_whole=True):
            self._check_memory(num_nodes, True)
            scan = _Scan(self.nodes, self.columns, self._tell, num_nodes)
            scan.read(as_whole=False)
        ids, order = scan.ordered()
        y, names = scan.classes()
        if order is not None:
            y = y[order]
            rank = np.empty(num_nodes, dtype=np.int32)
            rank[order] = np.arange(num_nodes, dtype=np.int32)
            self._keep("rank", rank)
        is_plain = pa.types.is_integer(ids.type) and ids[0].as_py() == 0 and ids[-1].as_py() == num_nodes - 1
        if not is_plain:
            self._keep_ids(ids)
        role, said, split = self._roles(scan.role if order is None else scan.role[order], y)
        self._keep("y", y)
        self._keep("role", role)
        counts = {f"num_{name}": int((role == number).sum()) for name, number in ROLES.items()}
        missing = int((y < 0).sum())
        said = [f"Without a label: {missing} of {num_nodes} nodes.", *said] if missing else said
        found = {"num_nodes": num_nodes, "is_plain": is_plain, "is_sorted": order is None, "class_names": names}
        return {**found, "counts": counts, "split": split, "said": said}

    def _check_memory(self, num_nodes: int, is_text: bool) -> None:
        needed = num_nodes * (BYTES_PER_NODE + (BYTES_PER_TEXT_ID if is_text else 0)) + MIN_SLICE
        if needed > self.memory:
            raise InputError(
                f"{self.nodes.path}: what is kept of {num_nodes} nodes needs {needed / 1e9:.3f} GB of memory, but "
                f"{self.memory / 1e9:.3f} GB are allowed."
            )

    def _keep_ids(self, ids: Any) -> None:
        def write(temporary: Path) -> None:
            table = pa.table({"node_id": ids})
            with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)

        write_atomically(self.progress.work / "ids.arrow", write)

    def _ids(self) -> Any:
        """The ids in order, mapped into memory; none where they are the numbers from 0 on."""
        if self.progress.stages["nodes"]["is_plain"]:
            return None
        with pa.memory_map(str(self.progress.work / "ids.arrow")) as source:
            return pa.ipc.open_file(source).read_all()["node_id"].chunk(0)

    def _roles(self, given: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, list[str], str]:
        """The part of the split of each node, sentences about it, and its name."""
        said = []
        if self.columns.split is None:
            chance = (_hash(np.arange(len(y)) + (self.seed << 32)) >> np.uint64(11)) / 2.0**53
            role, name = (1 + np.searchsorted(FRACTIONS, chance, side="right")).astype(np.int8), f"hashed/{self.seed}"
            role[y < 0] = 0
        else:
            role, name = np.where(y < 0, 0, given).astype(np.int8), "given"
            for part, number in ROLES.items():
                without = int(((given == number) & (y < 0)).sum())
                if without:
                    said.append(f"Left out of {part} for want of a label: {_counted(without, 'node')}.")
        for part, number in ROLES.items():
            if not (role == number).any():
                raise InputError(f"{self.nodes.path}: there are no {part} nodes with a label.")
        if len(np.unique(y[role == ROLES["train"]])) < 2:
            raise InputError(f"{self.nodes.path}: the training nodes are all of one class; at least two are needed.")
        return role, said, name

    # Stage 2.

    def _edges(self) -> dict[str, Any]:
        num_nodes, names = self._num_nodes, self.columns
        folder = _fresh(self.progress.work / "edges")
        width, unit = -(-num_nodes // NUM_BUCKETS), -(-num_nodes // NUM_UNITS)
        counts = np.zeros(-(-num_nodes // unit), dtype=np.int64)
        find = _Finder(self._ids(), num_nodes)
        wanted = {names.source: pa.large_string(), names.target: pa.large_string()}
        if names.weight is not None:
            wanted[names.weight] = pa.float64()
        num_zero, num_rows = 0, 0
        for first, table in self.edges.batches(wanted, max(4096, min(MAX_EDGES, self._slice // 512))):
            sources, targets = (self._places(find, table, name, first) for name in (names.source, names.target))
            weights = None if names.weight is None else self._weights(table, first)
            if weights is not None and (weights == 0).any():
                kept = weights > 0
                num_zero += int((~kept).sum())
                sources, targets, weights = sources[kept], targets[kept], weights[kept]
            num_rows = first + table.num_rows
            for way in range(1 if self.directed else 2):
                keys = 2 * (sources * num_nodes + targets) + way
                _append(folder, sources // width, keys if weights is None else _weighted(keys, weights))
                counts += np.bincount(sources // unit, minlength=len(counts))
                sources, targets = targets, sources
            self._tell("reading the edges", num_rows, 0)
        if num_rows == 0:
            raise InputError(f"{self.edges.path}: there are columns but no rows.")
        self._keep("unit_counts", counts)
        said = [f"{_counted(num_zero, 'row')} of {self.edges.path} with weight 0 left out."]
        return {"num_rows": num_rows, "said": said if num_zero else []}

    def _places(self, find: _Finder, table: Any, column: str, first: int) -> np.ndarray:
        values = _values(table, column)
        missing = _first(_nulls(values))
        if missing is not None:
            raise InputError(f"{self.edges.where(column, first + missing)}: the id is missing.")
        places = find(values)
        unknown = _first(places < 0)
        if unknown is not None:
            raise InputError(
                f"{self.edges.where(column, first + unknown)}: the edge names the id '{values[unknown]}', which is not "
                f"in {self.nodes.where(self.columns.id)}."
            )
        return places

    def _weights(self, table: Any, first: int) -> np.ndarray:
        column = str(self.columns.weight)
        values = _values(table, column)
        if not _is_number(values.type):
            raise InputError(f"{self.edges.where(column)}: a weight must be a number, got {values.type}.")
        weights: np.ndarray = pc.fill_null(values.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
        odd = _first(~(np.isfinite(weights) & (weights >= 0)))
        if odd is not None:
            raise InputError(
                f"{self.edges.where(column, first + odd)}: a weight must be a number and not negative, got "
                f"{values[odd]}."
            )
        return weights

    # Stage 3.

    def _rows(self) -> dict[str, Any]:
        num_nodes, work = self._num_nodes, self.progress.work
        unit = -(-num_nodes // NUM_UNITS)
        before = np.concatenate([[0], np.cumsum(self._load("unit_counts"))])
        written = _Written(num_nodes, self.columns.weight is not None)
        with (work / "columns").open("wb") as columns, (work / "weights").open("wb") as weights:
            for low, high in _ranges(before, self._slice // (128 if written.is_weighted else 64)):
                low, high = low * unit, min(high * unit, num_nodes)
                keys, values, repeated = _merged(self._records(low, high))
                written.num_repeated += repeated
                written.add(low, high, keys, values)
                (keys % num_nodes).astype(np.int32).tofile(columns)
                if values is not None:
                    values.tofile(weights)
                self._tell("merging the edges", high, num_nodes)
        num_edges = int(written.lengths.sum())
        self._check_parts(num_edges)
        self._keep("indptr", np.cumsum(written.lengths))
        if written.is_weighted:
            self._keep("degree", written.degree)
        shutil.rmtree(work / "edges")
        return {"is_symmetric": written.is_symmetric, "num_edges": num_edges, "said": self._said_of_edges(written)}

    def _records(self, low: int, high: int) -> np.ndarray:
        """The edges from a range of sources, as they came."""
        width, first = -(-self._num_nodes // NUM_BUCKETS), 2 * self._num_nodes
        kind = (
            np.dtype(np.int64) if self.columns.weight is None else _weighted(np.empty(0, np.int64), np.empty(0)).dtype
        )
        found = [np.empty(0, dtype=kind)]
        for number in range(low // width, (high - 1) // width + 1):
            path = self.progress.work / "edges" / str(number)
            size = path.stat().st_size if path.is_file() else 0
            step = max(1, self._slice // 512) * kind.itemsize
            for offset in range(0, size, step):
                records = np.fromfile(path, kind, step // kind.itemsize, offset=offset)
                keys = records if kind.names is None else records["key"]
                found.append(records[(keys >= low * first) & (keys < high * first)])
        return np.concatenate(found)

    def _check_parts(self, num_edges: int) -> None:
        num_features = sum(self._features().values())
        needed = 1.1 * (48 * num_edges + (4 * num_features + 64) * self._num_nodes) / self.num_parts
        if needed > self._slice:
            raise InputError(
                f"One of {self.num_parts} parts needs about {needed / 1e9:.3f} GB of memory, more than the "
                f"{self._slice / 1e9:.3f} GB that are left for it: ask for more parts."
            )

    def _said_of_edges(self, written: _Written) -> list[str]:
        said, alone = [], int((~written.touched).sum())
        if written.num_repeated:
            how = "merged, each edge counted once" if self.columns.weight is None else "merged, their weights added"
            said.append(f"{_counted(written.num_repeated, 'row')} of {self.edges.path} that repeat an edge {how}.")
        if written.num_loops:
            said.append(f"{_counted(written.num_loops, 'edge')} from a node to itself kept.")
        if alone:
            said.append(f"Without an edge to another node: {alone} of {len(written.touched)} nodes.")
        return said

    # Stage 4.

    def _assign(self) -> dict[str, Any]:
        num_nodes = self._num_nodes
        indptr = np.array(self._load("indptr"))
        step = block_size(num_nodes, self.num_parts)

        def read_rows() -> Iterator[Block]:
            for low, high in _ranges(indptr, self._slice // 64, step):
                yield low, indptr[low : high + 1] - indptr[low], self._entries("columns", indptr, low, high)

        def tell(number: int, node: int) -> None:
            self._tell(f"assigning the nodes, pass {number + 1}", node, num_nodes)

        self._keep("part", greedy(read_rows, num_nodes, int(indptr[-1]), self.num_parts, on_block=tell))
        return {}

    def _entries(self, name: str, indptr: np.ndarray, low: int, high: int) -> np.ndarray:
        """Columns or weights of the rows of a range of nodes."""
        kind = np.dtype(np.int32 if name == "columns" else np.float64)
        start, end = int(indptr[low]), int(indptr[high])
        return np.fromfile(self.progress.work / name, kind, end - start, offset=start * kind.itemsize)

    # Stage 5.

    def _scatter(self) -> dict[str, Any]:
        part, indptr = np.array(self._load("part")), self._load("indptr")
        hasher = self._start_of_sum()
        hasher.update(f"int64{indptr.shape}".encode())
        hasher.update(indptr)
        self._scatter_entries("columns", part, indptr, hasher)
        self._scatter_entries("weights", part, indptr, hasher)
        y = self._load("y")
        hasher.update(f"int64{y.shape}".encode())
        for low in range(0, len(y), MAX_EDGES):
            hasher.update(y[low : low + MAX_EDGES].astype(np.int64))
        folder = _fresh(self.progress.work / "features")
        hasher.update(f"float32{(len(y), sum(self._features().values()))}".encode())
        for low, x in self._ordered_features():
            hasher.update(x)
            _append(folder, part[low : low + len(x)], x)
            self._tell("sorting the features", low + len(x), len(y))
        return {"graph_sha256": hasher.hexdigest(), "split_sha256": self._sum_of_split()}

    def _scatter_entries(self, name: str, part: np.ndarray, indptr: np.ndarray, hasher: Any) -> None:
        """Sends columns or weights of every row to the file of its part, and adds them to the sum."""
        folder = _fresh(self.progress.work / f"{name}-of-parts")
        hasher.update(f"{'int64' if name == 'columns' else 'float64'}{(int(indptr[-1]),)}".encode())
        for low, high in _ranges(indptr, self._slice // 96):
            if name == "weights" and self.columns.weight is None:
                hasher.update(np.ones(int(indptr[high] - indptr[low])))
                continue
            entries = self._entries(name, indptr, low, high)
            hasher.update(entries.astype(np.int64) if name == "columns" else entries)
            _append(folder, np.repeat(part[low:high], np.diff(indptr[low : high + 1])), entries)
            self._tell("sorting the edges", high, len(part))

    def _start_of_sum(self) -> Any:
        """The sum of a graph as `Graph.fingerprint` begins it."""
        names = self.progress.stages["nodes"]["class_names"]
        hasher = hashlib.sha256(json.dumps([sum(self._features().values()), names]).encode())
        ids = self._ids()
        for low in range(0, 0 if ids is None else len(ids), MAX_ROWS):
            texts = ids[low : low + MAX_ROWS].cast(pa.large_string()).to_pylist()
            hasher.update(f"{', ' if low else '['}{json.dumps(texts)[1:-1]}".encode())
        if ids is not None:
            hasher.update(b"]")
        return hasher

    def _sum_of_split(self) -> str:
        hasher, role = hashlib.sha256(), np.array(self._load("role"))
        for name in PARTS:
            places: Any = np.flatnonzero(role == ROLES[name])
            hasher.update(f"{len(places)}:".encode())
            hasher.update(places)
        return hasher.hexdigest()

    def _ordered_features(self) -> Iterator[tuple[int, np.ndarray]]:
        """The features in the order of the nodes, each block with the place of its first row."""
        blocks = self._read_features()
        if self.progress.stages["nodes"]["is_sorted"]:
            yield from blocks
            return
        rank, folder = self._load("rank"), _fresh(self.progress.work / "features-by-place")
        width = sum(self._features().values())
        step = max(1, min(MAX_ROWS, self._slice // 4 // (16 * width + 64)))
        for first, x in blocks:
            places = rank[first : first + len(x)].astype(np.int32)
            _append(folder, places // step, np.concatenate([places.view(np.float32)[:, None], x], axis=1))
        for low in range(0, len(rank), step):
            rows = np.fromfile(folder / str(low // step), np.float32).reshape(-1, width + 1)
            order = np.argsort(np.ascontiguousarray(rows[:, 0]).view(np.int32))
            yield low, np.ascontiguousarray(rows[order, 1:])
        shutil.rmtree(folder)

    def _read_features(self) -> Iterator[tuple[int, np.ndarray]]:
        """The features as the table has them."""
        features = self._features()
        width = sum(features.values())
        rows = max(256, min(MAX_ROWS, self._slice // 4 // (32 * width + 64)))
        kinds = {name: self.nodes.schema.field(name).type for name in features}
        wanted = {name: kind if pa.types.is_boolean(kind) else pa.float64() for name, kind in kinds.items()}
        for first, table in self.nodes.batches(wanted, rows):
            x, start = np.empty((table.num_rows, width), dtype=np.float32), 0
            for name, count in features.items():
                x[:, start : start + count] = self._numbers(table, name, count, first)
                start += count
            yield first, x

    def _numbers(self, table: Any, name: str, count: int, first: int) -> np.ndarray:
        values = table[name].combine_chunks()
        is_list = pa.types.is_fixed_size_list(values.type)
        missing = _nulls(values).any()
        items = values.flatten() if is_list and not missing else values
        if missing or items.null_count:
            row = first + (_first(_nulls(items)) or 0) // (count if is_list and not missing else 1)
            raise InputError(f"{self.nodes.where(name, row)}: the value is missing.")
        if pa.types.is_boolean(items.type):
            items = items.cast(pa.int8())
        if not pa.types.is_float32(items.type):
            items = pc.cast(items, pa.float64(), safe=False)
        with np.errstate(over="ignore"):
            numbers = np.asarray(items.to_numpy(zero_copy_only=False)).astype(np.float32).reshape(-1, count)
        odd = _first(~np.isfinite(numbers).all(axis=1))
        if odd is not None:
            raise InputError(f"{self.nodes.where(name, first + odd)}: the number is missing, infinite or too large.")
        return numbers

    # The parts.

    def _finish(self) -> Parts:
        stages, features = self.progress.stages, self._features()
        numbering = Numbering(np.array(self._load("part")), self.num_parts)
        lengths = np.diff(self._load("indptr"))
        parts = write_parts(
            self.progress,
            self.num_parts,
            lambda number: self._rows_of_part(number, numbering, lengths),
            self.on_progress,
        )
        manifest = Manifest(
            key=self.progress.key,
            name=self.nodes.path.name.partition(".")[0] or "tables",
            num_features=sum(features.values()),
            class_names=tuple(stages["nodes"]["class_names"]),
            is_symmetric=stages["rows"]["is_symmetric"],
            method="greedy",
            split=stages["nodes"]["split"],
            **stages["nodes"]["counts"],
            **stages["scatter"],
            parts=parts,
            notes=self._notes(),
            origin=self._origin(),
            recipe=None if any(count != 1 for count in features.values()) else self._recipe(features),
        )
        return self.progress.finish(manifest)

    def _rows_of_part(self, number: int, numbering: Numbering, lengths: np.ndarray) -> Rows:
        positions, ids = numbering.positions(number), self._ids()
        own = np.concatenate([[0], np.cumsum(lengths[positions])])
        columns = self._of_part("columns", number, np.int32)
        is_weighted = self.columns.weight is not None
        weights = self._of_part("weights", number, float) if is_weighted else np.ones(len(columns))
        adj, halo = local_rows(numbering, number, own, columns, weights)
        degree = self._load("degree") if is_weighted else lengths
        shape = len(positions), sum(self._features().values())
        # Copied on writing, which nobody does: torch takes no array that cannot be written.
        x = np.memmap(self.progress.work / "features" / str(number), np.float32, "c", shape=shape)
        return Rows(
            adj,
            degree[np.concatenate([positions, numbering.order[halo]])].astype(np.float64),
            halo,
            torch.from_numpy(x),
            torch.from_numpy(self._load("y")[positions].astype(np.int64)),
            self._load("role")[positions],
            pa.array(positions, pa.int64()) if ids is None else ids.take(pa.array(positions)),
            positions,
        )

    def _of_part(self, name: str, number: int, kind: Any) -> np.ndarray:
        path = self.progress.work / f"{name}-of-parts" / str(number)
        return np.fromfile(path, kind) if path.is_file() else np.empty(0, dtype=kind)

    def _notes(self) -> tuple[str, ...]:
        """What was found and done, one sentence each."""
        stages, names, features = self.progress.stages, self.columns, self._features()
        kind = "directed" if self.directed else "undirected"
        width, taken = sum(features.values()), (names.id, names.label, names.split, *features)
        others = [name for name in self.nodes.schema.names if name not in taken] if names.features is None else []
        return (
            f"{self.nodes.path}: {self._num_nodes} rows; ids from column '{names.id}', labels from column "
            f"'{names.label}'" + (f", split from column '{names.split}'." if names.split is not None else "."),
            f"{self.edges.path}: {stages['edges']['num_rows']} rows; {kind} edges from column '{names.source}' to "
            f"column '{names.target}'" + (f", weights from column '{names.weight}'." if names.weight else "."),
            f"{_counted(width, 'feature')} from {_counted(len(features), 'column')}: numbers as they are.",
            *stages["edges"]["said"],
            *stages["rows"]["said"],
            *(f"Column '{name}' is left out: it holds no numbers." for name in others),
            *stages["nodes"]["said"],
        )

    def _origin(self) -> dict[str, Any]:
        """The arguments of `adagpr.load` that give the graph."""
        names = self.columns
        origin = {"name": "tables", "nodes": os.fspath(self.nodes.path), "edges": os.fspath(self.edges.path)}
        given: dict[str, Any] = {"label": names.label, "id": names.id, "source": names.source, "target": names.target}
        given |= {"weight": names.weight or "", "features": list(self._features()), "as_is": True}
        given |= {"directed": True} if self.directed else {}
        return origin | given | ({} if names.split is None else {"split_column": names.split})

    def _recipe(self, features: Mapping[str, int]) -> dict[str, Any]:
        """How the features were made, to make them again at prediction."""
        names = self.columns
        columns = {"id": names.id, "source": names.source, "target": names.target, "weight": names.weight or ""}
        entry = {"kind": "as is", "shift": 0.0, "scale": 1.0, "fill": None, "has_missing": False}
        made = {"version": 1, "columns": [{"name": name, **entry} for name in features]}
        return {"columns": {**columns, "directed": self.directed}, "features": made}


class _Written:
    """What is found in the rows of the adjacency while they are written.

    Attributes:
        is_weighted: Whether entries have weights.
        lengths: Entries of each row, behind a 0.
        degree: Sum of each row's weights.
        touched: Which nodes have an edge to another.
        num_loops: Edges from a node to itself.
        num_repeated: Rows of the table that repeat another.
    """

    def __init__(self, num_nodes: int, is_weighted: bool) -> None:
        self.is_weighted = is_weighted
        self.lengths = np.zeros(num_nodes + 1, dtype=np.int64)
        self.degree = np.zeros(num_nodes if is_weighted else 0)
        self.touched = np.zeros(num_nodes, dtype=bool)
        self.num_loops = self.num_repeated = 0
        self._forward = self._backward = 0

    @property
    def is_symmetric(self) -> bool:
        """Whether a sum of hashes over all entries is that over their reverses."""
        return self._forward == self._backward

    def add(self, low: int, high: int, keys: np.ndarray, weights: np.ndarray | None) -> None:
        """Takes note of the entries of a range of rows.

        Args:
            low: First row.
            high: Row behind the last.
            keys: Row times the number of nodes plus column, ascending.
            weights: Weights of the entries, if they have some.
        """
        num_nodes = len(self.touched)
        rows, columns = keys // num_nodes, keys % num_nodes
        lengths = np.bincount(rows - low, minlength=high - low)
        self.lengths[low + 1 : high + 1] = lengths
        is_other = rows != columns
        self.touched[rows[is_other]] = self.touched[columns[is_other]] = True
        self.num_loops += int((~is_other).sum())
        if weights is not None:
            indptr = np.concatenate([[0], np.cumsum(lengths)])
            self.degree[low:high] = sp.csr_array((weights, columns, indptr), shape=(high - low, num_nodes)).sum(axis=1)
        self._forward = (self._forward + _sum_of_hashes(keys, weights)) % 2**64
        self._backward = (self._backward + _sum_of_hashes(columns * num_nodes + rows, weights)) % 2**64


def _sum_of_hashes(keys: np.ndarray, weights: np.ndarray | None) -> int:
    marks = _hash(keys) if weights is None else _hash(_hash(keys) ^ weights.view(np.uint64))
    return int(marks.sum(dtype=np.uint64))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _weighted(keys: np.ndarray, weights: np.ndarray) -> np.ndarray:
    records = np.empty(len(keys), dtype=WEIGHTED)
    records["key"], records["weight"] = keys, weights
    return records


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


def _hash(numbers: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 of 64-bit words."""
    word = numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def _append(folder: Path, bucket: np.ndarray, rows: np.ndarray) -> None:
    """Appends each row to the file of its bucket; rows of one bucket stay in order."""
    # Numbers of 16 bits are sorted by radix.
    small = bucket.astype(np.uint16) if int(bucket.max(initial=0)) < 2**16 else bucket
    order = np.argsort(small, kind="stable")
    rows, ends = rows[order], np.cumsum(np.bincount(bucket))
    for number in np.flatnonzero(np.diff(ends, prepend=0)):
        with (folder / str(number)).open("ab") as file:
            rows[ends[number - 1] if number else 0 : ends[number]].tofile(file)


def _fresh(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _save(path: Path, array: np.ndarray) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)

    write_atomically(path, write)


def _ranges(ends: np.ndarray, limit: int, step: int = 1) -> Iterator[tuple[int, int]]:
    """Ranges of nodes with at most ``limit`` entries each, of multiples of ``step`` nodes, one step at the least.

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


class Table:
    """A file that is read in batches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._compression = _COMPRESSIONS.get(path.suffix.lower())
        self._ending = (path.with_suffix("") if self._compression else path).suffix.lower()
        if self._ending not in (*_DELIMITERS, *_PARQUET, *_ARROW):
            known = ", ".join((*_DELIMITERS, *_PARQUET, *_ARROW))
            raise InputError(f"{path}: unknown ending '{path.suffix}'. Known: {known}.")
        if not path.is_file():
            raise InputError(f"{path}: there is no such file.")
        if self._compression and not self.is_text:
            raise InputError(f"{path}: a compressed table of this kind cannot be read in batches. Unpack it first.")
        self.schema: pa.Schema = self._opened(self._read_schema)

    @property
    def is_text(self) -> bool:
        """Whether values are written as texts."""
        return self._ending in _DELIMITERS

    @property
    def stamp(self) -> list[int]:
        """What changes when the file does: size and time."""
        status = self.path.stat()
        return [status.st_size, status.st_mtime_ns]

    def require(self, column: str | None) -> None:
        """Raises an `InputError` unless there is such a column, or none is asked for."""
        if column is not None and column not in self.schema.names:
            raise InputError(f"{self.path}: {unknown_name('column', column, self.schema.names)}")

    def where(self, column: str, row: int | None = None) -> str:
        """A place for errors; rows count from 1."""
        return f"{self.path}, column '{column}'" + ("" if row is None else f", row {row + 1}")

    def count(self, column: str) -> int:
        """Number of rows."""
        if self._ending in _PARQUET:
            return int(pq.ParquetFile(self.path).metadata.num_rows)
        return sum(table.num_rows for _, table in self.batches({column: None}, MAX_EDGES))

    def most_rows(self) -> int:
        """Number of rows; of a text file as if they were very short."""
        if self.is_text:
            return int(self.most_bytes()) // _SHORT_ROW
        return self.count(self.schema.names[0])

    def most_bytes(self) -> int:
        """Size of the table in memory, or a little more."""
        packed = self._compression is not None or self._ending in _PARQUET
        return self.path.stat().st_size * (_PACKED if packed else 1)

    def head(self, rows: int) -> Any:
        """The first rows."""
        found = next(self.batches(dict.fromkeys(self.schema.names), rows), None)
        return self.schema.empty_table() if found is None else found[1].slice(0, rows)

    def batches(self, wanted: Mapping[str, Any], rows: int) -> Iterator[tuple[int, Any]]:
        """Tables of at least so many rows and less than twice as many, each with the number of its first row.

        Args:
            wanted: The columns, each with the type to read it as from a text file.
            rows: How many rows at a time.
        """
        first, count, held = 0, 0, []
        for batch in self._raw(wanted, rows):
            for start in range(0, batch.num_rows, rows):
                held.append(batch.slice(start, rows))
                count += held[-1].num_rows
                if count >= rows:
                    yield first, pa.Table.from_batches(held)
                    first, count, held = first + count, 0, []
        if held:
            yield first, pa.Table.from_batches(held)

    def _raw(self, wanted: Mapping[str, Any], rows: int) -> Iterator[Any]:
        """Batches as they stand in the file."""
        batches = self._opened(lambda: self._read(wanted, rows))
        while (batch := self._opened(lambda: next(batches, None))) is not None:
            yield batch.select(list(wanted))

    def _opened(self, read: Callable[[], Any]) -> Any:
        """What ``read`` gives; a file that cannot be read is an `InputError`."""
        try:
            return read()
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200].rstrip(".")
            raise InputError(f"{self.path}: the file is broken, cut short or of another kind ({reason}).") from error

    def _read_schema(self) -> Any:
        if self.is_text:
            return self._csv({}).schema
        if self._ending in _PARQUET:
            return pq.ParquetFile(self.path).schema_arrow
        return self._arrow(None).schema

    def _read(self, wanted: Mapping[str, Any], rows: int) -> Iterator[Any]:
        if self.is_text:
            return iter(self._csv(wanted))
        if self._ending in _PARQUET:
            file = pq.ParquetFile(self.path, memory_map=True, pre_buffer=False)
            found: Iterator[Any] = file.iter_batches(min(rows, MAX_ROWS), columns=list(wanted), use_threads=False)
            return found
        reader = self._arrow([self.schema.get_field_index(name) for name in wanted])
        if isinstance(reader, pa.RecordBatchFileReader):
            return (reader.get_batch(number) for number in range(reader.num_record_batches))
        return iter(reader)

    def _csv(self, wanted: Mapping[str, Any]) -> Any:
        types = {name: kind for name, kind in wanted.items() if kind is not None}
        return arrow_csv.open_csv(
            pa.input_stream(str(self.path), compression=self._compression),
            arrow_csv.ReadOptions(use_threads=False, block_size=CSV_BLOCK),
            arrow_csv.ParseOptions(delimiter=_DELIMITERS[self._ending], newlines_in_values=True),
            arrow_csv.ConvertOptions(
                include_columns=list(wanted),
                column_types=types,
                null_values=list(_MISSING_WORDS),
                strings_can_be_null=True,
            ),
        )

    def _arrow(self, fields: list[int] | None) -> Any:
        """The reader of a Feather or Arrow file, mapped into memory, or of an Arrow stream."""
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        try:
            return pa.ipc.open_file(pa.memory_map(str(self.path)), options=options)
        except pa.ArrowInvalid as error:
            try:
                return pa.ipc.open_stream(pa.memory_map(str(self.path)), options=options)
            except pa.ArrowException:
                raise error from None


class _Finder:
    """The places of ids among those of the nodes, -1 for an id that is none of them."""

    def __init__(self, ids: Any, num_nodes: int) -> None:
        self._ids, self._num_nodes = ids, num_nodes
        self._is_text = ids is not None and _is_text(ids.type)

    def __call__(self, values: Any) -> np.ndarray:
        if self._is_text:
            texts = values if _is_text(values.type) else values.cast(pa.large_string())
            found = pc.fill_null(pc.index_in(texts, value_set=self._ids), -1)
            return np.asarray(found.to_numpy(zero_copy_only=False)).astype(np.int64)
        whole = _whole_or_missing(values)
        numbers = pc.fill_null(whole, -1).to_numpy(zero_copy_only=False)
        if self._ids is None:
            return np.where((numbers >= 0) & (numbers < self._num_nodes), numbers, -1)
        ids = self._ids.to_numpy()
        places = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
        return np.where((ids[places] == numbers) & ~_nulls(whole), places, -1)


class _Scan:
    """One reading of the table of nodes: ids, classes and parts of the split."""

    def __init__(self, table: Table, columns: Columns, tell: OnProgress, num_nodes: int) -> None:
        self._table, self._columns, self._tell, self._num_nodes = table, columns, tell, num_nodes
        self._ids: list[Any] = []
        self._codes: list[np.ndarray] = []
        self._roles: list[np.ndarray] = []
        self._class_of: dict[Any, int] = {}

    def read(self, as_whole: bool) -> bool:
        """Reads the table; false where ids were to be whole numbers and are not."""
        names = self._columns
        wanted = {name: pa.large_string() for name in (names.id, names.label, names.split) if name is not None}
        for first, table in self._table.batches(wanted, MAX_ROWS):
            ids = _values(table, names.id)
            missing = _first(_nulls(ids))
            if missing is not None:
                raise InputError(f"{self._table.where(names.id, first + missing)}: the id is missing.")
            whole = _whole(ids) if as_whole else None
            if as_whole and whole is None:
                return False
            if not (as_whole or _is_text(ids.type)):
                raise InputError(f"{self._table.where(names.id)}: ids must be whole numbers or texts, not {ids.type}.")
            self._ids.append(whole if as_whole else ids)
            self._codes.append(self._labels(_values(table, names.label), first))
            if names.split is not None:
                self._roles.append(self._parts(_values(table, names.split), first))
            self._tell("reading the nodes", first + table.num_rows, self._num_nodes)
        return True

    @property
    def role(self) -> np.ndarray:
        """The part of the split that each row names, 0 for none."""
        return np.concatenate(self._roles) if self._roles else np.zeros(self._num_nodes, dtype=np.int8)

    def ordered(self) -> tuple[Any, np.ndarray | None]:
        """The ids in order, and the row of each unless that is the order of the table."""
        ids = pa.concat_arrays(self._ids)
        self._ids = []
        if pc.all(pc.less(ids[:-1], ids[1:])).as_py() in (True, None):
            return ids, None
        order = pc.array_sort_indices(ids)
        ids = ids.take(order)
        twice = _first(pc.equal(ids[:-1], ids[1:]).to_numpy(zero_copy_only=False))
        if twice is not None:
            rows = sorted(order[twice : twice + 2].to_pylist())
            raise InputError(
                f"{self._table.where(self._columns.id)}: the id '{ids[twice]}' stands in more than one row: rows "
                f"{rows[0] + 1} and {rows[1] + 1}."
            )
        return ids, order.to_numpy().astype(np.int64)

    def classes(self) -> tuple[np.ndarray, list[str]]:
        """The class of each row, -1 where it is unknown, and the names of the classes in order."""
        names = _canonical(list(self._class_of)) if self._table.is_text else list(self._class_of)
        if len(set(names)) < 2:
            raise InputError(
                f"{self._table.where(self._columns.label)}: there are {len(set(names))} different labels; at least two "
                "classes are needed to learn."
            )
        ordered = sorted(set(names))
        place = {name: number for number, name in enumerate(ordered)}
        code_to_class = np.array([*(place[name] for name in names), -1], dtype=np.int32)
        texts = [str(name).lower() if isinstance(name, bool) else str(name) for name in ordered]
        return code_to_class[np.concatenate(self._codes)], texts

    def _labels(self, values: Any, first: int) -> np.ndarray:
        """A number for each label in the order in which they first appear, -1 where there is none."""
        where = self._table.where(self._columns.label)
        if pa.types.is_floating(values.type):
            whole = _whole(values)
            if whole is None:
                raise InputError(f"{where}: labels must be classes, not a measure.")
            values = whole
        elif pa.types.is_temporal(values.type):
            values = values.cast(pa.large_string())
        if not (_is_text(values.type) or _is_number(values.type) or pa.types.is_null(values.type)):
            raise InputError(f"{where}: values of the type {values.type} cannot be labels.")
        encoded = values.dictionary_encode()
        known = [self._class_of.setdefault(label, len(self._class_of)) for label in encoded.dictionary.to_pylist()]
        if len(self._class_of) > MAX_CLASSES:
            raise InputError(f"{where}: there are more than {MAX_CLASSES} different values; labels must be classes.")
        codes = pc.fill_null(encoded.indices, len(known)).to_numpy(zero_copy_only=False)
        found: np.ndarray = np.array([*known, -1], dtype=np.int32)[codes]
        return found

    def _parts(self, values: Any, first: int) -> np.ndarray:
        column = str(self._columns.split)
        texts = pc.utf8_lower(values.cast(pa.large_string()))
        found = pc.fill_null(pc.index_in(texts, value_set=pa.array(list(_PART_OF), pa.large_string())), -1)
        codes = found.to_numpy(zero_copy_only=False)
        odd = _first((codes < 0) & ~_nulls(texts))
        if odd is not None:
            raise InputError(
                f"{self._table.where(column, first + odd)}: '{values[odd]}' is no part of a split; expected train, "
                "val or test."
            )
        roles: np.ndarray = np.array([*(ROLES[name] for name in _PART_OF.values()), 0], dtype=np.int8)[codes]
        return roles


def _canonical(labels: list[str]) -> list[Any]:
    """Labels of a text file as truth values or whole numbers where all are."""
    lower = [label.lower() for label in labels]
    if set(lower) <= {"true", "false"}:
        return [label == "true" for label in lower]
    whole = _whole(pa.array(labels, pa.large_string()))
    return labels if whole is None else list(whole.to_pylist())


def _values(table: Any, name: str) -> Any:
    """A column as one array: categories as what they stand for, texts trimmed, nothing for NaN and the empty text."""
    values = table[name].combine_chunks()
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    if _is_text(values.type):
        values = pc.utf8_trim_whitespace(values.cast(pa.large_string()))
        return pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    return values


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _whole(values: Any) -> Any:
    """Numbers, or texts of numbers, as int64; nothing where that would change one."""
    if _is_text(values.type):
        values = _bare(values)
        if not pc.all(pc.match_substring_regex(values, _WHOLE)).as_py() and len(values) > values.null_count:
            return None
    elif not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return None
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _whole_or_missing(values: Any) -> Any:
    """Each value as int64 where it is one."""
    if _is_text(values.type):
        values = _bare(values)
        values = pc.if_else(pc.match_substring_regex(values, _WHOLE), values, pa.scalar(None, values.type))
    elif pa.types.is_floating(values.type):
        values = pc.if_else(pc.equal(values, pc.floor(values)), values, pa.scalar(None, values.type))
    found = _whole(values)
    return pa.nulls(len(values), pa.int64()) if found is None else found


def _bare(texts: Any) -> Any:
    """Texts without what a whole number does not need: a plus before it, zeros behind a point."""
    return pc.replace_substring_regex(texts, r"^\+|\.0+$", "")


def _first(is_odd: Any) -> int | None:
    """Place of the first true value."""
    found = np.flatnonzero(np.asarray(is_odd))
    return int(found[0]) if len(found) else None


def _nulls(values: Any) -> np.ndarray:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=bool)
