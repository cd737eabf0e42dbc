"""Graphs in one ``.npz`` file: the format of the heterophilous-graphs collection, and of a user's own graph.

========================================  =====================================================================
``node_features``                         N x F real numbers
``node_labels``                           N whole numbers, classes from 0 up, -1 where unknown
``edges``                                 E x 2 node positions, source and target
``train_masks``, ``val_masks``,           optional: N values that are true or false, or several rows of them,
``test_masks``                            one split per row
``directed``                              optional: false if each edge is meant in both directions
========================================  =====================================================================
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from numpy.lib.npyio import NpzFile

from adagpr.data.splits import mask_split
from adagpr.errors import InputError, unknown_name
from adagpr.files import require_file
from adagpr.graph import FILL_IN, Graph, Split, compact_features, edges_to_csr
from adagpr.system import memory_guard

REQUIRED = ("node_features", "node_labels", "edges")
MASKS = ("train_masks", "val_masks", "test_masks")
KNOWN = (*REQUIRED, *MASKS, "directed")


def graph_from_npz(
    source: Path | bytes, file: str, name: str, directed: bool | None = None
) -> tuple[Graph, list[Split]]:
    """Makes the graph of a file, given by its path or bytes, and its splits if it has masks.

    Edges are directed if the argument says so, by default if the file's ``directed`` does, else always.
    """
    arrays = read_arrays(source, file)
    features = arrays["node_features"]
    if features.ndim != 2 or features.dtype.kind not in "biuf":
        raise InputError(f"{file}: node_features must be a matrix of real numbers, got {_kind(features)}.")
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise InputError(
            f"{file}: node_features holds values that are NaN or infinite, the first in row {row}; {FILL_IN}"
        )
    y = _labels(arrays["node_labels"], len(features), file)
    sources, targets = edges_from_npz(arrays, file)
    if directed is None:
        stored = arrays.get("directed", np.array(True))
        if stored.size != 1 or stored.dtype.kind != "b":
            raise InputError(f"{file}: directed must be one value, true or false, got {_kind(stored)}.")
        directed = bool(stored.item())
    if not directed:
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
    try:
        adj = edges_to_csr(sources, targets, len(features))
    except InputError as error:
        raise InputError(f"{file}: edges: {error}") from error
    names = tuple(str(label) for label in range(int(y.max()) + 1))
    graph = Graph(compact_features(features), adj, torch.from_numpy(y), names, name=name)
    return graph, _splits(arrays, y, file)


def read_arrays(source: Path | bytes, file: str) -> dict[str, np.ndarray]:
    """The arrays of a file by key, once the keys are known to be the right ones; pickled objects are refused."""
    arrays: dict[str, np.ndarray] = {}
    key = ""
    if isinstance(source, Path):
        require_file(source)
    try:
        with (
            memory_guard(file),
            io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream,
        ):
            stored = np.load(stream, allow_pickle=False)
            if not isinstance(stored, NpzFile):
                raise InputError(f"{file}: a single array, not an .npz file of several; write it with numpy.savez.")
            with stored:
                for key in stored.files:
                    if key not in KNOWN:
                        raise InputError(f"{file}: {unknown_name('key', key, KNOWN)}")
                    arrays[key] = np.asarray(stored[key])
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{file}: there is no such file.") from error
    except Exception as error:
        if key and "allow_pickle" in str(error):
            raise InputError(f"{file}: {key} holds pickled objects, which are refused; store plain numbers.") from None
        raise InputError(f"{file}: not an .npz file, or cut short; write it with numpy.savez.") from error
    needed = [*REQUIRED, *(MASKS if any(key in arrays for key in MASKS) else ())]
    for key in needed:
        if key not in arrays:
            raise InputError(f"{file}: the key {key} is missing; it needs {', '.join(needed)}.")
    return arrays


def edges_from_npz(arrays: dict[str, np.ndarray], file: str) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets as they are in the file."""
    edges = arrays["edges"]
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise InputError(f"{file}: edges must be E x 2 whole numbers, got {_kind(edges)}.")
    return edges[:, 0].astype(np.int64), edges[:, 1].astype(np.int64)


def _labels(labels: np.ndarray, num_nodes: int, file: str) -> np.ndarray:
    """Checked classes."""
    if labels.shape != (num_nodes,) or labels.dtype.kind not in "iu":
        raise InputError(f"{file}: node_labels must be {num_nodes} whole numbers, one per node, got {_kind(labels)}.")
    y = labels.astype(np.int64)
    known = np.unique(y[y >= 0])
    if num_nodes and (y.min() < -1 or y.max() >= num_nodes):
        raise InputError(
            f"{file}: node_labels must be classes numbered from 0, -1 where unknown, got {y.min()} to {y.max()}."
        )
    if len(known) == 0:
        raise InputError(f"{file}: node_labels: every label is missing; at least two classes are needed to learn.")
    if len(known) == 1:
        raise InputError(f"{file}: node_labels: every known label is {known[0]}; at least two classes are needed.")
    return y


def _splits(arrays: dict[str, np.ndarray], y: np.ndarray, file: str) -> list[Split]:
    """The splits of the masks, if there are any."""
    if MASKS[0] not in arrays:
        return []
    masks = []
    for key in MASKS:
        mask = np.atleast_2d(arrays[key])
        is_binary = mask.dtype.kind == "b" or (mask.dtype.kind in "iu" and bool(((mask == 0) | (mask == 1)).all()))
        if not is_binary or mask.shape != (len(np.atleast_2d(arrays[MASKS[0]])), len(y)):
            raise InputError(
                f"{file}: {key} must be true or false for each of {len(y)} nodes, in as many rows as train_masks, "
                f"got {_kind(arrays[key])}."
            )
        mask = mask.astype(bool)
        unlabelled = mask & (y < 0)
        if unlabelled.any():
            row, node = (int(place) for place in np.argwhere(unlabelled)[0])
            raise InputError(f"{file}: {key}, row {row}: node {node} has no label.")
        if not mask.any(axis=1).all():
            raise InputError(f"{file}: {key}, row {int(np.argmin(mask.any(axis=1)))}: there are no nodes.")
        masks.append(mask)
    twice = np.argwhere(np.sum(masks, axis=0) > 1)
    if len(twice):
        row, node = (int(place) for place in twice[0])
        raise InputError(f"{file}: {', '.join(MASKS)} overlap in row {row}: node {node} is in more than one part.")
    return [mask_split(train, val, test, f"given/{i}") for i, (train, val, test) in enumerate(zip(*masks, strict=True))]


def _kind(array: np.ndarray) -> str:
    """Type and shape of an array, for errors."""
    return f"{array.dtype} {array.shape}"
