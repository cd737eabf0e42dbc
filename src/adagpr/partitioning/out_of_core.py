"""Two tables that do not fit, cut into parts in a bounded amount of memory.

The tables are read in batches. What stays in memory grows with the nodes alone, by some 50 bytes each; edges and
features go through files below ``.work``, in slices that fit what is left. The stages:

1. *nodes*: ids, classes and the split; nodes are put in the order of their ids.
2. *edges*: each end looked up and written, in both directions unless directed, to the bucket of its source.
3. *rows*: every slice of sources sorted, repeated edges merged: the rows of the adjacency in one long file.
4. *assign*: `greedy` reads that file several times.
5. *scatter*: rows and features sent to one file per part, and the sum of the graph taken.
6. *finish*: the parts, one by one.

A stage that was interrupted starts anew, one that is done is not repeated. The result is a function of the tables and
the arguments, not of the memory. Its graph and split are those of the tables when they are read whole with ``as_is``,
to the bit and with the same sums (unless features are so sparse that they are then kept as such).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from adagpr.data import parse_split, tables
from adagpr.errors import InputError
from adagpr.graph import SPLIT_NAMES, Split
from adagpr.partitioning import work_folder
from adagpr.partitioning.assign import Block, OnProgress, block_size, check_num_parts, greedy, ignore_progress
from adagpr.partitioning.cut import Numbering, PartitionState, complete, metis_memory, write_parts
from adagpr.partitioning.parts import ROLES, Manifest, Parts, Rows, positions, roles
from adagpr.partitioning.work_folder import ENTRIES, MAX_EDGES, EdgeSorter, Job, RowMerger, append, fresh, ranges

MAX_NODES = 2**31 - 1
_AS_IS = (
    "The tables were not read whole: numbers are features as they are, not scaled, and columns of anything else are "
    "left out."
)


def partition_tables(
    nodes: Path | str,
    edges: Path | str,
    num_parts: int,
    out: Path | str,
    memory: float,
    *,
    directed: bool = False,
    features: Sequence[str] | None = None,
    as_is: bool = False,
    split: str | None = None,
    seed: int = 0,
    on_progress: OnProgress = ignore_progress,
    **named: Any,
) -> Parts:
    """Cuts the graph of two tables into parts on disk, in bounded memory; the same call resumes after a stop.

    Columns are ``named`` or found, and edges merged, as `adagpr.from_tables` does. Numbers are features as they are, in
    float32, missing and infinite ones the mean; a column of lists of one length gives one feature for each item, and
    other columns are left out. Without ``as_is`` a note says so. ``memory`` is the bytes to use beside what Python and
    its libraries take. ``split`` is ``given``, ``stratified`` or ``stratified/7``; by default that of the column, else
    ``stratified``.
    """
    scratch = next(folder for folder in Path(out).absolute().parents if folder.is_dir())
    files = tables.TableFile(nodes, scratch), tables.TableFile(edges, scratch)
    columns = tables.find_columns(*files, **named)
    kind, number = parse_split(split, ("given", "stratified"), 1, "adagpr partition --help") if split else (None, None)
    if kind == "given" and columns.split is None:
        raise InputError("Split 'given': the table of nodes has no column that says train, val or test.")
    is_drawn, seed = kind == "stratified" or columns.split is None, seed if number is None else number
    asked = {**asdict(columns), "features": features, "directed": directed, "seed": seed, "num_parts": num_parts}
    asked |= {"split": None} if is_drawn else {}
    asked |= {"method": "greedy", "files": [file.stamp for file in files]}

    def cut(state: PartitionState) -> Manifest:
        limit = int(min(memory, 2**60))
        job = Job(*files, columns, features, num_parts, directed, is_drawn, seed, limit, as_is, state, on_progress)
        for name, stage in _STAGES.items():
            if name not in state.stages:
                state.record(name, stage(job))
        return _finish(job)

    return complete(Path(out), asked, cut)


def tables_memory(nodes: Path | str, edges: Path | str) -> float:
    """Bytes that `adagpr.partitioning.partition_graph` needs for the graph of two tables, roughly."""
    return metis_memory(2 * tables.TableFile(edges).most_rows, tables.TableFile(nodes).most_bytes)


def _read_nodes(job: Job) -> dict[str, Any]:
    """Leaves ``y`` and ``role`` in the order of the ids, the ids, and ``rank``, the place of each row in that order."""
    _ = job.features
    num_nodes = job.nodes.num_rows
    if num_nodes == 0:
        raise InputError(f"{job.nodes.name}: there are columns but no rows.")
    check_num_parts(job.num_parts, num_nodes)
    if num_nodes > MAX_NODES:
        raise InputError(f"{job.nodes.name}: there are {num_nodes} nodes; at most {MAX_NODES} can be cut.")
    ids, labels, codes = _scan(job, as_text=False)
    if ids is None:
        ids, labels, codes = _scan(job, as_text=True)
    about_ids = tables.id_messages(ids, job.nodes.where(job.columns.id))
    ids, order = tables.ordered_ids(ids, job.nodes.where(job.columns.id))
    y, class_names = labels.classes()
    if order is not None:
        y, codes = y[order], codes[order]
        rank = np.empty(num_nodes, dtype=np.int32)
        rank[order] = np.arange(num_nodes, dtype=np.int32)
        job.keep("rank", rank)
    if not (pa.types.is_integer(ids.type) and ids[0].as_py() == 0 and ids[-1].as_py() == num_nodes - 1):
        job.keep_ids(ids)
    is_sorted = order is None
    del ids, order
    role, messages = _roles(job, codes, y)
    job.keep("y", y)
    job.keep("role", role)
    return {
        "num_nodes": num_nodes,
        "is_sorted": is_sorted,
        "class_names": class_names,
        "counts": {f"num_{part}": int((role == number).sum()) for part, number in ROLES.items()},
        "split": f"stratified/{job.seed}" if job.is_drawn else "given",
        "messages": [*about_ids, *labels.messages(), *tables.label_messages(y, class_names), *messages],
    }


def _scan(job: Job, as_text: bool) -> tuple[Any, tables.Labels, np.ndarray]:
    """Ids, labels and what the rows say of the split; no ids where they were to be whole numbers and are not."""
    num_nodes, columns = job.nodes.num_rows, job.columns
    has_texts = as_text or job.nodes.kind(columns.id) == "text"
    each = work_folder.BYTES_PER_NODE + (work_folder.BYTES_PER_TEXT_ID if has_texts else 0)
    needed = num_nodes * each + work_folder.MIN_SLICE
    if needed > job.memory:
        raise InputError(
            f"{job.nodes.name}: what is kept of {num_nodes} nodes needs {needed / 1e9:.3f} GB of memory, but "
            f"{job.memory / 1e9:.3f} GB are allowed."
        )
    ids, codes, labels = [], [], tables.Labels(job.nodes.where(str(columns.label)), str(columns.label))
    for block in job.nodes.blocks(columns.of_nodes, work_folder.MAX_ROWS):
        own = tables.ids_of(block, columns.id)
        if pa.types.is_large_string(own.type) and not has_texts:
            return None, labels, np.empty(0)
        ids.append(block.texts(columns.id) if has_texts else own)
        labels.add(block)
        if not job.is_drawn:
            codes.append(tables.split_codes(block, str(columns.split)))
        job.on_progress("reading the nodes", int(block.rows[-1]), num_nodes)
    return pa.concat_arrays(ids), labels, np.concatenate(codes) if codes else np.zeros(num_nodes, dtype=np.int8)


def _roles(job: Job, codes: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """What each node is for, 0 for one without a label, and sentences about it."""
    if job.is_drawn:
        drawn = tables.stratified_split(torch.from_numpy(y), job.seed)
        if drawn is None:
            raise InputError("There are too few labels for a split: no class has three labelled nodes.")
        codes, messages = roles(drawn, len(y)), []
    else:
        messages = tables.check_split_codes(codes, y, job.nodes.where(str(job.columns.split)))
    role = np.where(y < 0, 0, codes).astype(np.int8)
    if len(np.unique(y[role == ROLES["train"]])) < 2:
        raise InputError(f"{job.nodes.name}: the training nodes are all of one class; at least two are needed.")
    return role, messages


def _sort_edges(job: Job) -> dict[str, Any]:
    """Leaves the edges in buckets of sources, and ``unit_counts``, how many there are from each unit of sources."""
    columns, ids = job.columns, job.load_ids()
    sorter = EdgeSorter(fresh(job.state.work / "edges"), job.num_nodes)
    lookup = tables.IdLookup(job.num_nodes if ids is None else ids)
    num_zero, num_rows = 0, 0
    if lookup.is_coded:
        # A block of whole numbers may be of a column of texts.
        job.edges.survey([columns.source, columns.target])
    for block in job.edges.blocks(columns.of_edges, max(4096, min(MAX_EDGES, job.slice_bytes // 512))):
        sources, targets, weights, num_left_out = tables.read_edges(block, columns, lookup, job.nodes.where(columns.id))
        num_zero += num_left_out
        sorter.add(sources, targets, weights, is_reverse=False)
        if not job.directed:
            sorter.add(targets, sources, weights, is_reverse=True)
        num_rows = int(block.rows[-1])
        job.on_progress("reading the edges", num_rows, 0)
    if num_rows == 0:
        raise InputError(f"{job.edges.name}: there are columns but no rows.")
    job.keep("unit_counts", sorter.unit_counts)
    about = lookup.messages(job.edges.name, job.nodes.where(columns.id))
    return {"num_rows": num_rows, "num_zero": num_zero, "messages": about}


def _merge_rows(job: Job) -> dict[str, Any]:
    """Leaves the rows of the adjacency, ``indptr``, and ``degree`` where edges have weights."""
    merger = RowMerger(job.state.work, job.num_nodes, job.is_weighted)
    merger.merge(job.load("unit_counts"), job.slice_bytes, job.on_progress)
    num_edges = int(merger.lengths.sum())
    needed = 1.1 * (48 * num_edges + (4 * job.num_features + 64) * job.num_nodes) / job.num_parts
    if needed > job.slice_bytes:
        raise InputError(
            f"One of {job.num_parts} parts needs about {needed / 1e9:.3f} GB of memory, more than the "
            f"{job.slice_bytes / 1e9:.3f} GB that are left for it: ask for more parts."
        )
    job.keep("indptr", np.cumsum(merger.lengths))
    if job.is_weighted:
        job.keep("degree", merger.degree)
    merger.counts.num_zero = job.state.stages["edges"].get("num_zero", 0)
    messages = merger.counts.messages(job.edges.name, job.is_weighted, job.num_nodes)
    return {"is_symmetric": merger.is_symmetric, "num_edges": num_edges, "messages": messages}


def _assign(job: Job) -> dict[str, Any]:
    """Leaves ``part``, the part of each node."""
    num_nodes, indptr = job.num_nodes, np.array(job.load("indptr"))

    def read_rows() -> Iterator[Block]:
        for low, high in ranges(indptr, job.slice_bytes // 64, block_size(num_nodes, job.num_parts)):
            yield low, indptr[low : high + 1] - indptr[low], job.entries("columns", indptr, low, high)

    job.keep("part", greedy(read_rows, num_nodes, int(indptr[-1]), job.num_parts, on_progress=job.on_progress))
    return {}


def _scatter(job: Job) -> dict[str, Any]:
    """Leaves columns, weights and features in folders with one file per part; takes the sums of graph and split."""
    part, indptr, y, ids = np.array(job.load("part")), job.load("indptr"), job.load("y"), job.load_ids()
    # As in `Graph.fingerprint`.
    hasher = hashlib.sha256(json.dumps([job.num_features, job.state.stages["nodes"]["class_names"]]).encode())
    if ids is not None:
        for low in range(0, len(ids), work_folder.MAX_ROWS):
            texts = ids[low : low + work_folder.MAX_ROWS].cast(pa.large_string()).to_pylist()
            hasher.update(f"{', ' if low else '['}{json.dumps(texts)[1:-1]}".encode())
        hasher.update(b"]")

    def add(kind: Any, shape: tuple[int, ...], blocks: Iterable[np.ndarray]) -> None:
        hasher.update(f"{np.dtype(kind)}{shape}".encode())
        for block in blocks:
            hasher.update(np.ascontiguousarray(block, kind).data)

    add(np.int64, indptr.shape, [indptr])
    add(np.int64, (int(indptr[-1]),), _scattered_entries(job, "columns", part, indptr))
    add(np.float64, (int(indptr[-1]),), _scattered_entries(job, "weights", part, indptr))
    add(np.int64, y.shape, (y[low : low + MAX_EDGES] for low in range(0, len(y), MAX_EDGES)))
    add(np.float32, (len(y), job.num_features), _scattered_features(job, part))
    train, val, test = (positions(job.load("role"), name) for name in SPLIT_NAMES)
    return {"graph_sha256": hasher.hexdigest(), "split_sha256": Split(train, val, test).fingerprint}


def _scattered_entries(job: Job, name: str, part: np.ndarray, indptr: np.ndarray) -> Iterator[np.ndarray]:
    """Sends columns or weights to the files of the parts, and yields them block by block."""
    folder = fresh(job.state.work / f"{name}-of-parts")
    for low, high in ranges(indptr, job.slice_bytes // 96):
        if name == "weights" and not job.is_weighted:
            yield np.ones(int(indptr[high] - indptr[low]))
            continue
        entries = job.entries(name, indptr, low, high)
        append(folder, np.repeat(part[low:high], np.diff(indptr[low : high + 1])), entries)
        job.on_progress("sorting the edges", high, len(part))
        yield entries


def _scattered_features(job: Job, part: np.ndarray) -> Iterator[np.ndarray]:
    """Sends the features to the files of the parts, and yields them block by block in the order of the nodes."""
    folder = fresh(job.state.work / "features")
    for low, x in _ordered_features(job):
        append(folder, part[low : low + len(x)], x)
        job.on_progress("sorting the features", low + len(x), len(part))
        yield x


def _ordered_features(job: Job) -> Iterator[tuple[int, np.ndarray]]:
    """The features in the order of the nodes, each block with the place of its first row."""
    if job.state.stages["nodes"]["is_sorted"]:
        yield from _features(job)
        return
    rank, width, folder = job.load("rank"), job.num_features, fresh(job.state.work / "features-by-place")
    step = max(1, min(work_folder.MAX_ROWS, job.slice_bytes // 4 // (16 * width + 64)))
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
    names = [entry.name for entry in job.features[0]]
    rows = max(256, min(work_folder.MAX_ROWS, job.slice_bytes // 4 // (32 * job.num_features + 64)))
    for block in job.nodes.blocks(names, rows):
        x = np.concatenate([entry.block(block) for entry in job.features[0]], axis=1)
        yield int(block.rows[0]) - 1, x


def _finish(job: Job) -> Manifest:
    """Writes the parts that are not there yet, and gives the manifest."""
    stages, (entries, about) = job.state.stages, job.features
    numbering = Numbering(np.array(job.load("part")), job.num_parts)
    lengths = np.diff(job.load("indptr"))
    parts = write_parts(job.state, job.num_parts, lambda part: _rows(job, part, numbering, lengths), job.on_progress)
    # A stage that an earlier version has done calls its messages ``said``.
    found = {name: stage.get("messages", stage.get("said", [])) for name, stage in stages.items()}
    notes = [*job.columns.describe(job.nodes, job.edges, job.directed), about[0]]
    if not job.as_is:
        notes.insert(0, _AS_IS)
    origin: dict[str, Any] = {"name": "tables", "nodes": job.nodes.name, "edges": job.edges.name}
    origin |= {"label": job.columns.label}
    origin |= {key: value for key, value in job.columns.stored(job.directed).items() if value is not False}
    origin |= {"features": [entry.name for entry in entries], "as_is": True}
    return Manifest(
        key=job.state.key,
        name=job.nodes.path.name.partition(".")[0] or "tables",
        num_features=job.num_features,
        class_names=tuple(stages["nodes"]["class_names"]),
        is_symmetric=stages["rows"]["is_symmetric"],
        method="greedy",
        split=stages["nodes"]["split"],
        **stages["nodes"]["counts"],
        **stages["scatter"],
        parts=parts,
        notes=(*notes, *found["edges"], *found["rows"], *about[1:], *found["nodes"]),
        origin=origin | ({} if job.columns.split is None else {"split_column": job.columns.split}),
        recipe=job.columns.recipe(job.nodes, job.edges, job.directed, tables.Recipe(columns=tuple(entries))),
    )


def _rows(job: Job, number: int, numbering: Numbering, lengths: np.ndarray) -> Rows:
    """A part, from the files of its rows; ``lengths`` are the entries of each row of the graph."""
    places, ids = numbering.positions(number), job.load_ids()
    indptr = np.concatenate([[0], np.cumsum(lengths[places])])
    columns, weights = (job.entries_of_part(name, number) for name in ENTRIES)
    weights = weights if job.is_weighted else np.ones(len(columns))
    # Copied on writing, which nobody does: torch takes no array that cannot be written.
    x = np.memmap(job.state.work / "features" / str(number), np.float32, "c", shape=(len(places), job.num_features))
    return numbering.rows(
        number,
        (weights, columns, indptr),
        job.load("degree") if job.is_weighted else lengths,
        torch.from_numpy(x),
        torch.from_numpy(job.load("y")[places].astype(np.int64)),
        job.load("role"),
        pa.array(places, pa.int64()) if ids is None else ids.take(pa.array(places)),
    )


# Each leaves files below ``.work`` and returns the few facts that are recorded when it is done.
_STAGES = {"nodes": _read_nodes, "edges": _sort_edges, "rows": _merge_rows, "assign": _assign, "scatter": _scatter}
