"""The text files of Geom-GCN: Chameleon, Cornell, Texas and Wisconsin, and the ten fixed splits of seven data sets.

A line of ``out1_graph_edges.txt`` is an edge from the first node to the second; it stays directed, self loops stay. A
line of ``out1_node_feature_label.txt`` is a node, its features as zeros and ones between commas, and its class.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
import torch

from adagpr.data.catalogue import EDGES_FILE, NODES_FILE
from adagpr.data.splits import mask_split
from adagpr.errors import InputError, reason_of
from adagpr.graph import Graph, Split, compact_features, edges_to_csr


def graph_from_text(edges: bytes, nodes: bytes, name: str) -> Graph:
    """Makes the graph of the two files' bytes; ``name`` is for the graph and for errors."""
    x, y = _nodes(nodes, name)
    sources, targets = edges_from_text(edges, name)
    try:
        adj = edges_to_csr(sources, targets, len(y))
    except InputError as error:
        raise InputError(f"{name}: {EDGES_FILE}: {error}") from error
    names = tuple(str(label) for label in range(int(y.max()) + 1))
    return Graph(compact_features(x), adj, torch.from_numpy(y), names, name=name)


def edges_from_text(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets, one pair per line, as they are in the file."""
    lines = _lines(content, b"node_id\tnode_id", f"{name}: {EDGES_FILE}")
    pairs = np.array([_two_numbers(line, where) for where, line in lines], dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def split_from_npz(content: bytes, file: str, name: str) -> Split:
    """Makes the split ``name`` of one split file's bytes; its masks are bool or 0/1."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            train, val, test = (stored[f"{part}_mask"] for part in ("train", "val", "test"))
    except Exception as error:
        raise InputError(
            f"{file}: not a split file with train_mask, val_mask and test_mask ({reason_of(error)})."
        ) from error
    return mask_split(train, val, test, name)


def _nodes(content: bytes, name: str) -> tuple[sp.csr_array, np.ndarray]:
    """Features as CSR and classes, by node number."""
    columns: list[np.ndarray] = []
    ids, labels, widths = [], [], set()
    for where, line in _lines(content, b"node_id\tfeature\tlabel", f"{name}: {NODES_FILE}"):
        fields = line.split(b"\t")
        if len(fields) != 3:
            raise InputError(f"{where}: expected 3 fields, got {len(fields)}.")
        digits = np.frombuffer(fields[1], dtype=np.uint8)
        if len(digits) % 2 == 0 or set(fields[1][1::2]) - {ord(",")} or set(fields[1][::2]) - {ord("0"), ord("1")}:
            raise InputError(f"{where}: features must be 0 or 1 between commas.")
        columns.append(np.flatnonzero(digits[::2] == ord("1")))
        widths.add((len(digits) + 1) // 2)
        node, label = _two_numbers(b"\t".join(fields[::2]), where)
        ids.append(node)
        labels.append(label)
    if len(widths) != 1 or sorted(ids) != list(range(len(ids))):
        raise InputError(f"{name}: {NODES_FILE}: expected each node once, numbered from 0, with equally many features.")
    rows = np.repeat(np.array(ids), [len(column) for column in columns])
    entries = (np.ones(len(rows), dtype=np.float32), (rows, np.concatenate(columns)))
    y = np.empty(len(ids), dtype=np.int64)
    y[ids] = labels
    return sp.csr_array(entries, shape=(len(ids), widths.pop())), y


def _lines(content: bytes, header: bytes, file: str) -> Iterator[tuple[str, bytes]]:
    """The lines below the header, each with its place for errors."""
    first, *lines = content.split(b"\n")
    if first != header:
        raise InputError(f"{file}, line 1: expected the header '{header.decode()}'.")
    if not lines or lines.pop() != b"":
        raise InputError(f"{file}: the last line is not complete.")
    return ((f"{file}, line {number}", line) for number, line in enumerate(lines, start=2))


def _two_numbers(line: bytes, where: str) -> tuple[int, int]:
    """The two fields of a line as numbers from 0 up."""
    fields = line.split(b"\t")
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise InputError(f"{where}: expected 2 whole numbers, got '{line.decode('latin1')}'.")
    return int(fields[0]), int(fields[1])
