"""The Planetoid files of Cora, Citeseer and Pubmed: Python 2 pickles of SciPy and NumPy objects.

Unpickling can run anything that a file names. Here it cannot: the six names that these files hold are resolved to small
classes that only keep the state given to them, every other name is refused, and no SciPy or NumPy code runs until the
state has been checked.

As in the papers' loaders the graph is made undirected, repeated links count once, self loops stay, and the node ids
that Citeseer's test rows leave out become nodes without features and of class 0.
"""

from __future__ import annotations

import io
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from adagpr.data.catalogue import PLANETOID_PARTS
from adagpr.errors import InputError, reason_of
from adagpr.graph import Graph, Split, compact_features, edges_to_csr

NUM_VAL = 500

_DTYPE = re.compile(r"[biuf][1248]")


class _State:
    """Keeps the state of an object that is unpickled."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _DtypeState(_State):
    """Stands in for ``numpy.dtype``: a type code and, in its state, a byte order."""

    state = (None, "<")

    def __init__(self, code: str, align: int = 0, copy: int = 0) -> None:
        self.code = code

    def dtype(self) -> np.dtype[Any]:
        """The plain number type, nothing else."""
        order: str = self.state[1]
        if not _DTYPE.fullmatch(self.code) or order not in ("<", ">", "|"):
            raise ValueError(f"numbers of type {order}{self.code}")
        return np.dtype(order + self.code)


class _ArrayState(_State):
    """Stands in for ``numpy.ndarray``: shape, type, memory order and bytes."""

    def array(self) -> np.ndarray:
        """The array that the state describes."""
        _, shape, dtype, column_major, content = self.state
        flat = np.frombuffer(content.encode("latin1"), dtype=dtype.dtype())
        return flat.reshape(shape, order="F" if column_major else "C")


class _MatrixState(_State):
    """Stands in for SciPy's ``csr_matrix``: the attributes it was saved with."""

    def matrix(self) -> sp.csr_array:
        """The matrix that the state describes."""
        data, indices, indptr = (self.state[name].array() for name in ("data", "indices", "indptr"))
        matrix = sp.csr_array((data, indices, indptr), shape=self.state["_shape"])
        matrix.check_format()
        return matrix


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("scipy.sparse.csr", "csr_matrix"): _MatrixState,
    # NumPy's function that makes an empty array for the state to fill.
    ("numpy.core.multiarray", "_reconstruct"): lambda kind, shape, code: _ArrayState(),
    ("numpy", "ndarray"): _ArrayState,
    ("numpy", "dtype"): _DtypeState,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}


class _Unpickler(pickle.Unpickler):
    """Knows the admitted names and no others."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _ADMITTED:
            raise InputError(f"refused, because it names '{module}.{name}', which no Planetoid file needs.")
        return _ADMITTED[module, name]


def unpickle(content: bytes, file: str) -> Any:
    """Reads a Planetoid pickle into an array, a CSR array or a dictionary of lists, running nothing that it names."""
    try:
        value = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        if isinstance(value, _ArrayState):
            return value.array()
        return value.matrix() if isinstance(value, _MatrixState) else value
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    except Exception as error:
        raise InputError(f"{file}: not a Planetoid file ({reason_of(error)}).") from error


def graph_from_planetoid(read: Callable[[str], bytes], stem: str, name: str) -> tuple[Graph, Split]:
    """The graph of the eight files ``ind.<stem>.<part>``, whose bytes ``read`` gives, and its public split."""
    files = {part: f"ind.{stem}.{part}" for part in PLANETOID_PARTS}
    test = _test_index(read(files["test.index"]), files.pop("test.index"))
    parts = {part: unpickle(read(file), file) for part, file in files.items()}
    num_known, num_nodes = parts["allx"].shape[0], len(parts["graph"])
    if len(test) != parts["tx"].shape[0] or test.min() < num_known or test.max() >= num_nodes:
        raise InputError(f"ind.{stem}.test.index: its {len(test)} rows do not fit the other files.")
    rows = np.concatenate([np.arange(num_known), test])
    stacked = sp.coo_array(sp.vstack([parts["allx"], parts["tx"]]))
    x = sp.csr_array((stacked.data, (rows[stacked.row], stacked.col)), shape=(num_nodes, stacked.shape[1]))
    y = np.zeros(num_nodes, dtype=np.int64)
    y[rows] = np.concatenate([parts["ally"], parts["ty"]]).argmax(axis=1)
    sources, targets = edges_from_lists(parts["graph"])
    adj = edges_to_csr(np.concatenate([sources, targets]), np.concatenate([targets, sources]), num_nodes)
    names = tuple(str(label) for label in range(parts["ally"].shape[1]))
    num_train = len(parts["y"])
    public = Split(
        torch.arange(num_train), torch.arange(num_train, num_train + NUM_VAL), torch.from_numpy(np.sort(test)), "public"
    )
    return Graph(compact_features(x), adj, torch.from_numpy(y), names, name=name), public


def edges_from_lists(neighbours: Mapping[int, list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of the neighbour lists, as they are in the file."""
    counts = [len(ends) for ends in neighbours.values()]
    sources = np.repeat(np.fromiter(neighbours, dtype=np.int64), counts)
    targets = np.fromiter((end for ends in neighbours.values() for end in ends), dtype=np.int64, count=sum(counts))
    return sources, targets


def _test_index(content: bytes, file: str) -> np.ndarray:
    """Node of each test row."""
    lines = content.split()
    if not lines or not all(line.isdigit() for line in lines):
        raise InputError(f"{file}: expected one whole number per line.")
    return np.array([int(line) for line in lines], dtype=np.int64)
