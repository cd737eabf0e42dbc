"""`Graph` and `Split`: what every other room is given.

A graph is frozen and checked once, when it is made. Its matrices are SciPy CSR arrays (features may also be a dense
tensor): plain, well known, and turned into torch's form once per training by ``ops``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError

SPLIT_NAMES = ("train", "val", "test")

# The way out of missing values; features from tables are filled in by their recipe.
FILL_IN = "fill them in first, for example with the mean of their column, or give tables, where that is done for you."


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A graph whose nodes have features and, some of them, a class.

    Attributes:
        x: Features, one row per node: a dense float tensor, or a SciPy CSR array where that is smaller.
        adj: Adjacency as given: entry ``[i, j]`` is the weight of the edge from ``i`` to ``j``.
        y: Class of each node as int64, -1 where it is unknown.
        class_names: Name of each class; also fixes the number of classes.
        node_ids: Name of each node, by default its position.
        name: What to call the graph in results.
        notes: What a reader of a result on this graph must know, one sentence each.
        origin: The arguments of `adagpr.load` that give this graph again, where it came from there.
        recipe: How the features were made from tables, as plain data; saved with a run, to make them again.
    """

    x: Tensor | sp.csr_array
    adj: sp.csr_array
    y: Tensor
    class_names: tuple[str, ...]
    node_ids: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    name: str = "graph"
    notes: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        num_nodes, num_columns = self.adj.shape
        if num_nodes != num_columns:
            raise InputError(f"Graph: adj must be square, got {num_nodes} x {num_columns}.")
        if num_nodes == 0:
            raise InputError("Graph: there are no nodes.")
        if not np.isfinite(self.adj.data).all():
            raise InputError("Graph: adj holds weights that are NaN or infinite.")
        if self.adj.nnz and self.adj.data.min() < 0:
            raise InputError(f"Graph: edge weights must not be negative, got {self.adj.data.min():g}.")
        if self.x.ndim != 2 or self.x.shape[0] != num_nodes:
            raise InputError(f"Graph: x must have one row for each of {num_nodes} nodes, got {tuple(self.x.shape)}.")
        if self.x.shape[1] == 0:
            raise InputError(
                "Graph: x has no feature columns. With nothing known of the nodes, give an identity matrix."
            )
        _check_finite(self.x)
        if self.y.dtype != torch.int64 or tuple(self.y.shape) != (num_nodes,):
            raise InputError(f"Graph: y must be {num_nodes} int64 values, got {self.y.dtype} {tuple(self.y.shape)}.")
        low, high = int(self.y.min()), int(self.y.max())
        if low < -1 or high >= len(self.class_names):
            raise InputError(
                f"Graph: y must be in [-1, {len(self.class_names) - 1}] for {len(self.class_names)} classes, "
                f"got values from {low} to {high}."
            )
        if len(set(self.class_names)) < len(self.class_names):
            raise InputError(f"Graph: class_names must differ from each other, got {', '.join(self.class_names)}.")
        if len(self.node_ids) == 0:
            object.__setattr__(self, "node_ids", np.arange(num_nodes))
        _check_ids(self.node_ids, num_nodes)

    def __repr__(self) -> str:
        sizes = f"{self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features"
        return f"Graph({self.name}: {sizes}, {self.num_classes} classes)"

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        """Itself: nothing in it changes."""
        return self

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return int(self.adj.shape[0])

    @property
    def num_edges(self) -> int:
        """Number of stored adjacency entries: an undirected edge counts twice, a self loop once."""
        return int(self.adj.nnz)

    @property
    def num_features(self) -> int:
        """Number of feature columns."""
        return int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def relations(self) -> Mapping[str, sp.csr_array]:
        """The adjacency matrix of each kind of edge by its name; this graph has one kind."""
        return {"edges": self.adj}

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse with the same weight."""
        return bool(abs(self.adj - self.adj.T).nnz == 0)

    def reordered(self, order: np.ndarray) -> Graph:
        """The same graph with its nodes in another order: the first is the one at position ``order[0]``, and so on."""
        x = self.x[order] if isinstance(self.x, sp.csr_array) else self.x[torch.from_numpy(order)]
        adj = sp.csr_array(self.adj[order][:, order])
        found = replace(self, x=x, adj=adj, y=self.y[torch.from_numpy(order)], node_ids=self.node_ids[order])
        # What does not depend on the order need not be found out again.
        found.__dict__["is_symmetric"] = self.is_symmetric
        return found

    def with_features(self, x: Tensor | sp.csr_array) -> Graph:
        """The same graph with other features."""
        if x is self.x:
            return self
        found = replace(self, x=x)
        if "is_symmetric" in self.__dict__:
            found.__dict__["is_symmetric"] = self.is_symmetric
        return found

    @cached_property
    def num_neighbours(self) -> np.ndarray:
        """How many nodes other than itself each node is linked with, in either direction."""
        both = sp.csr_array(self.adj.maximum(self.adj.T))
        counts: np.ndarray = np.diff(both.indptr) - (both.diagonal() != 0)
        return counts

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over everything that a training run reads from the graph."""
        hasher = hashlib.sha256(json.dumps([self.x.shape[1], self.class_names]).encode())
        if self.node_ids.dtype.kind not in "iu" or not np.array_equal(self.node_ids, np.arange(self.num_nodes)):
            hasher.update(json.dumps([str(item) for item in self.node_ids]).encode())
        parts: list[np.ndarray] = [*_csr_parts(self.adj), self.y.numpy()]
        parts += _csr_parts(self.x) if isinstance(self.x, sp.csr_array) else [self.x.numpy()]
        for part in parts:
            hasher.update(f"{part.dtype}{part.shape}".encode())
            hasher.update(np.ascontiguousarray(part).tobytes())
        return hasher.hexdigest()


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint sets of node positions: to learn from, to choose the epoch on, and to report.

    Attributes:
        train: Positions of the training nodes.
        val: Positions of the validation nodes; where there are none, the training nodes choose the epoch.
        test: Positions of the test nodes; there may be none.
        name: How the split was made, with its number or seed, such as ``geom-gcn/3``.
    """

    train: Tensor
    val: Tensor
    test: Tensor
    name: str = "given"

    def __post_init__(self) -> None:
        seen = torch.cat([self.train, self.val, self.test])
        if seen.dtype != torch.int64:
            raise InputError(f"Split {self.name}: positions must be int64, got {seen.dtype}.")
        values, counts = seen.unique(return_counts=True)
        if bool((counts > 1).any()):
            raise InputError(
                f"Split {self.name}: {int((counts > 1).sum())} nodes are in more than one part or twice in one, "
                f"the first of them node {int(values[counts > 1][0])}; train, val and test must be disjoint."
            )
        if len(self.train) == 0:
            raise InputError(f"Split {self.name}: there are no train nodes.")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the positions of all three parts."""
        hasher = hashlib.sha256()
        for part in (self.train, self.val, self.test):
            hasher.update(f"{len(part)}:".encode() + part.numpy().tobytes())
        return hasher.hexdigest()

    def check(self, graph: Graph) -> None:
        """Raises an `InputError` unless the split fits ``graph`` and leaves something to learn."""
        for part in SPLIT_NAMES:
            index: Tensor = getattr(self, part)
            low, high = (int(index.min()), int(index.max())) if len(index) else (0, 0)
            if low < 0 or high >= graph.num_nodes:
                raise InputError(
                    f"Split {self.name}: {part} names nodes from {low} to {high}, "
                    f"but the graph has {graph.num_nodes} nodes."
                )
            unlabelled = int((graph.y[index] < 0).sum())
            if unlabelled:
                raise InputError(f"Split {self.name}: {unlabelled} {part} nodes have no label.")
        if len(graph.y[self.train].unique()) < 2:
            raise InputError(f"Split {self.name}: the training nodes are all of one class; at least two are needed.")


def from_scipy(
    adj: Any,
    x: Any,
    y: Any,
    *,
    class_names: Sequence[str] | None = None,
    node_ids: Sequence[Any] | None = None,
    name: str = "graph",
) -> Graph:
    """Makes a `Graph` from a SciPy adjacency matrix, features and labels.

    Args:
        adj: Sparse or dense N x N matrix; entry ``[i, j]`` is the weight of the edge from ``i`` to ``j``.
        x: N rows of features: an array, a tensor or a sparse matrix. Kept sparse where that is smaller.
        y: N integer labels from 0 up, -1 where unknown.
        class_names: Names of the classes, by default their numbers.
        node_ids: Names of the nodes, by default their positions.
        name: What to call the graph in results.

    Raises:
        InputError: Shapes do not fit, features are not finite, or no label is known.

    Example:
        >>> import numpy as np, scipy.sparse as sp
        >>> ring = sp.csr_array(np.roll(np.eye(4), 1, axis=1))
        >>> from_scipy(ring, np.eye(4), [0, 1, 0, -1]).num_edges
        4
    """
    adjacency = _csr(adj, "adj")
    labels = _labels(y)
    count = int(labels.max()) + 1
    names = tuple(str(item) for item in (range(count) if class_names is None else class_names))
    ids = np.empty(0, dtype=np.int64) if node_ids is None else np.asarray(node_ids)
    return Graph(compact_features(x), adjacency, labels, names, ids, name)


def from_edge_index(
    edge_index: Any,
    x: Any,
    y: Any,
    *,
    edge_weight: Any = None,
    class_names: Sequence[str] | None = None,
    node_ids: Sequence[Any] | None = None,
    name: str = "graph",
) -> Graph:
    """Makes a `Graph` from pairs of node positions, 2 x E, sources above targets; repeated edges count once.

    The other arguments are those of `from_scipy`. Of repeated edges with different weights the largest stays.
    """
    pairs = np.asarray(edge_index)
    if pairs.ndim != 2 or pairs.shape[0] != 2 or (pairs.size and pairs.dtype.kind not in "iu"):
        raise InputError(f"from_edge_index: edge_index must be 2 x E integers, got {pairs.dtype} {pairs.shape}.")
    num_nodes = int(x.shape[0]) if hasattr(x, "shape") else len(x)
    weight = np.ones(pairs.shape[1]) if edge_weight is None else np.asarray(edge_weight, dtype=np.float64)
    if weight.shape != (pairs.shape[1],):
        raise InputError(f"from_edge_index: edge_weight must hold {pairs.shape[1]} values, got {weight.shape}.")
    adj = edges_to_csr(pairs[0].astype(np.int64), pairs[1].astype(np.int64), num_nodes, weight)
    return from_scipy(adj, x, y, class_names=class_names, node_ids=node_ids, name=name)


def edges_to_csr(
    sources: np.ndarray, targets: np.ndarray, num_nodes: int, weight: np.ndarray | None = None
) -> sp.csr_array:
    """Adjacency of a list of edges, each counted once; of repeated ones the largest weight stays."""
    for role, ends in (("source", sources), ("target", targets)):
        wrong = np.flatnonzero((ends < 0) | (ends >= num_nodes))
        if len(wrong):
            raise InputError(
                f"Edge {int(wrong[0])} has the {role} {int(ends[wrong[0]])}, but the nodes are 0 to {num_nodes - 1} "
                f"({len(wrong)} such edges)."
            )
    values = np.ones(len(sources)) if weight is None else weight
    order = np.lexsort((-values, targets, sources))
    sources, targets, values = sources[order], targets[order], values[order]
    first = np.ones(len(sources), dtype=bool)
    first[1:] = (sources[1:] != sources[:-1]) | (targets[1:] != targets[:-1])
    return sp.csr_array((values[first], (sources[first], targets[first])), shape=(num_nodes, num_nodes))


def compact_features(x: Any) -> Tensor | sp.csr_array:
    """Features as float32, as CSR where that takes less memory than a dense tensor."""
    is_sparse = sp.issparse(x)
    matrix = (_csr(x, "x") if is_sparse else _numbers(x, "x")).astype(np.float32)
    if matrix.ndim != 2:
        raise InputError(f"x must be a matrix with one row per node, got shape {matrix.shape}.")
    # CSR takes 8 bytes for each value that is not 0, and a dense tensor 4 for every value.
    if 8 * (matrix.nnz if is_sparse else np.count_nonzero(matrix)) < 4 * matrix.shape[0] * matrix.shape[1]:
        return sp.csr_array(matrix)
    return torch.from_numpy(matrix.toarray() if is_sparse else matrix)


def _csr(matrix: Any, what: str) -> sp.csr_array:
    matrix = _numbers(matrix, what)
    if matrix.ndim != 2:
        raise InputError(f"{what} must be a matrix, got shape {matrix.shape}.")
    csr = sp.csr_array(matrix).astype(np.float32 if matrix.dtype == np.float32 else np.float64)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return csr


def _numbers(values: Any, what: str) -> Any:
    array = values if sp.issparse(values) else np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what} must hold real numbers, got {array.dtype}.")
    return array


def _labels(y: Any) -> Tensor:
    array = np.asarray(y)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"y must be whole numbers, one per node, -1 where unknown; got {array.dtype} {array.shape}.")
    if not (array >= 0).any():
        raise InputError("y: every label is missing; at least two classes are needed to learn.")
    if len(np.unique(array[array >= 0])) < 2:
        raise InputError(f"y: every known label is {int(array.max())}; at least two classes are needed to learn.")
    return torch.from_numpy(array.astype(np.int64))


def _check_finite(x: Tensor | sp.csr_array) -> None:
    values = x.data if isinstance(x, sp.csr_array) else x.numpy()
    bad = ~np.isfinite(values)
    if bad.any():
        first = np.argwhere(bad)[0, 0]
        row = np.searchsorted(x.indptr, first, side="right") - 1 if isinstance(x, sp.csr_array) else first
        raise InputError(
            f"Graph: x holds {int(bad.sum())} values that are NaN or infinite, the first in row {row}; {FILL_IN}"
        )


def _check_ids(ids: np.ndarray, num_nodes: int) -> None:
    if len(ids) != num_nodes:
        raise InputError(f"Graph: node_ids must name {num_nodes} nodes, got {len(ids)}.")
    if ids.dtype.kind not in "iuU" and not all(isinstance(item, str) for item in ids):
        raise InputError("Graph: node_ids must be all whole numbers or all texts.")
    if len(set(ids.tolist())) < num_nodes:
        raise InputError("Graph: node_ids must differ from each other.")


def _csr_parts(matrix: sp.csr_array) -> list[np.ndarray]:
    return [matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data]
