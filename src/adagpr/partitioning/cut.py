"""A graph in memory cut into parts on disk, and what every way of cutting shares.

Until the manifest is written, the folder has a subfolder ``.work`` with what is done, so that the same call resumes
after a stop.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from torch import Tensor

from adagpr.errors import InputError
from adagpr.files import digest, folder_lock, make_folder, write_json
from adagpr.graph import Graph, Split
from adagpr.partitioning.assign import OnProgress, check_num_parts, greedy, ignore_progress, metis
from adagpr.partitioning.parts import Manifest, Method, PartInfo, Parts, Rows, open_parts, part_name, roles, write_part
from adagpr.schemas import PartitionProgress, PartRecord, read_json, with_sum

_PROGRESS = Path(".work", "progress.json")
# What else there is beside that, by stages of `partition_tables` too.
_WORK = re.compile(
    r"part-\d+\.json|ids\.arrow|(rank|y|role|unit_counts|indptr|degree|part)\.npy|edges|columns|weights"
    r"|(columns|weights)-of-parts|features|features-by-place|\..+\.\d+\.adagpr-tmp"
)
# Measured with 500,000 nodes, 64 features and 5,000,000 entries: Python itself, METIS per entry, tables read whole.
_BYTES, _BYTES_PER_ENTRY, _TIMES_TABLE = 3e8, 200, 5


def partition_graph(
    graph: Graph,
    split: Split,
    num_parts: int,
    out: Path | str,
    method: Method = "metis",
    on_progress: OnProgress = ignore_progress,
) -> Parts:
    """Cuts a graph into parts on disk; the same call resumes after a stop, or opens what is complete.

    ``metis`` gives the fewest edges between parts, ``greedy`` takes less time and memory.
    """
    check_num_parts(num_parts, graph.num_nodes)
    split.check(graph)
    asked: dict[str, Any] = {"graph_sha256": graph.fingerprint, "split_sha256": split.fingerprint, "method": method}
    asked |= {"name": graph.name, "origin": dict(graph.origin), "recipe": graph.recipe, "split": split.name}

    def cut(state: PartitionState) -> Manifest:
        adj = graph.adj
        if method == "metis":
            part = metis(adj, num_parts)
        else:
            part = greedy(lambda: [(0, adj.indptr, adj.indices)], graph.num_nodes, adj.nnz, num_parts)
        numbering = Numbering(part, num_parts)
        degree, role = adj.sum(axis=1, dtype=np.float64), roles(split, graph.num_nodes)
        # Whole numbers as they are, everything else as texts.
        is_whole = graph.node_ids.dtype.kind in "iu"
        ids = pa.array(graph.node_ids) if is_whole else pa.array(graph.node_ids.tolist(), pa.large_string())

        def rows(number: int) -> Rows:
            places = numbering.positions(number)
            own, own_ids = adj[places], ids.take(pa.array(places))
            entries = own.data, own.indices, own.indptr
            return numbering.rows(number, entries, degree, graph.x[places], graph.y[places], role, own_ids)

        return Manifest(
            key=state.key,
            num_features=graph.num_features,
            class_names=graph.class_names,
            is_symmetric=graph.is_symmetric,
            num_train=len(split.train),
            num_val=len(split.val),
            num_test=len(split.test),
            parts=write_parts(state, num_parts, rows, on_progress),
            notes=graph.notes,
            **asked,
        )

    return complete(Path(out), {**asked, "num_parts": num_parts}, cut)


def metis_memory(num_edges: int, table_bytes: float) -> float:
    """Bytes that METIS needs, roughly, for so many entries and a table of nodes of this size, 0 if there is none."""
    return _BYTES + _BYTES_PER_ENTRY * num_edges + _TIMES_TABLE * table_bytes


def method_of(folder: Path) -> Method | None:
    """The method of the partition that a folder holds, complete or under way."""
    if (folder / "manifest.json").is_file():
        return open_parts(folder).manifest.method
    if (folder / _PROGRESS).is_file():
        method: Method = _read_progress(folder).get("method", "metis")
        return method
    return None


def _read_progress(folder: Path) -> dict[str, Any]:
    return read_json(folder / _PROGRESS, PartitionProgress, f"Remove the folder {folder} to partition anew.")


class Numbering:
    """The numbers that nodes have by part: ``order`` is the position of each number, ``number`` its inverse.

    ``offsets`` are the first number of each part, and the number of nodes at the end.
    """

    def __init__(self, part: np.ndarray, num_parts: int) -> None:
        index = np.int32 if len(part) < 2**31 else np.int64
        self.offsets = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=num_parts))]).astype(np.int64)
        self.order = np.argsort(part, kind="stable").astype(index)
        self.number = np.empty(len(part), dtype=index)
        self.number[self.order] = np.arange(len(part), dtype=index)

    def positions(self, number: int) -> np.ndarray:
        """Positions of the nodes of a part, ascending."""
        return self.order[self.offsets[number] : self.offsets[number + 1]]

    def rows(
        self,
        number: int,
        entries: tuple[np.ndarray, np.ndarray, np.ndarray],
        degree: np.ndarray,
        x: Tensor | sp.csr_array,
        y: Tensor,
        role: np.ndarray,
        node_ids: pa.Array,
    ) -> Rows:
        """The rows of a part; ``degree`` and ``role`` are those of the whole graph.

        ``entries`` are weights, columns as positions in the graph, and where rows start and end.
        """
        (weights, columns, indptr), places = entries, self.positions(number)
        first, last = self.offsets[number : number + 2]
        wanted = self.number[columns]
        is_own = (wanted >= first) & (wanted < last)
        halo = np.unique(wanted[~is_own])
        local = np.where(is_own, wanted - first, len(places) + np.searchsorted(halo, wanted))
        adj = sp.csr_array((weights, local, indptr), shape=(len(places), len(places) + len(halo)))
        adj.sort_indices()
        degree = degree[np.concatenate([places, self.order[halo]])].astype(np.float64)
        return Rows(adj, degree, halo, x, y, role[places], node_ids, places)


class PartitionState:
    """How far a partition is that is not complete: ``stages`` has the result of each stage that is done."""

    def __init__(self, folder: Path, key: str, method: Method) -> None:
        self.folder, self.work, self.key = folder, folder / ".work", key
        make_folder(self.work)
        self._path = folder / _PROGRESS
        self._stored: dict[str, Any] = {"key": key, "method": method, "stages": {}}
        if self._path.is_file():
            self._stored |= _read_progress(folder)
        if self._stored["key"] != key:
            raise InputError(
                f"{folder} holds a partition under way of other data or arguments. Repeat that command, remove the "
                "folder, or choose another."
            )
        self.stages: dict[str, Any] = self._stored["stages"]
        self._write()

    def record(self, stage: str, found: Any) -> None:
        """Records that a stage is done, with its result."""
        self.stages[stage] = found
        self._write()

    def _write(self) -> None:
        write_json(self._path, with_sum(self._stored))


def complete(folder: Path, asked: Mapping[str, Any], cut: Callable[[PartitionState], Manifest]) -> Parts:
    """The partition in a folder, which is made and cut if there is none; the folder is locked meanwhile.

    The state is kept after any stop but an `InputError`, which another try would meet again. ``asked`` is all that the
    partition is a function of, as plain data.
    """
    key = digest(dict(asked), 16)
    with folder_lock(folder):
        if not (folder / "manifest.json").is_file():
            state = PartitionState(folder, key, asked["method"])
            try:
                cut(state).write(folder)
            except InputError:
                _remove_work(folder)
                raise
        parts = open_parts(folder)
        if parts.manifest.key != key:
            raise InputError(f"{folder} holds a partition of other data or arguments. Remove it or choose another.")
        _remove_work(folder)
        return parts


def _remove_work(folder: Path) -> None:
    """Removes what a partition under way left, its progress last, and the folder of that unless others use it."""
    progress = folder / _PROGRESS
    if progress.exists():
        for path in progress.parent.iterdir():
            if _WORK.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        progress.unlink()
    with contextlib.suppress(OSError):
        progress.parent.rmdir()


def write_parts(
    state: PartitionState, num_parts: int, rows: Callable[[int], Rows], on_progress: OnProgress
) -> tuple[PartInfo, ...]:
    """Writes the parts that are not there yet, one after another."""
    infos = []
    for number in range(num_parts):
        record = state.work / f"{part_name(number)}.json"
        if not record.is_file():
            write_json(record, with_sum(asdict(write_part(state.folder, number, rows(number), state.key))))
        infos.append(PartInfo(**read_json(record, PartRecord, f"Remove the folder {state.folder} to partition anew.")))
        on_progress("writing the parts", number + 1, num_parts)
    return tuple(infos)
