r"""The normalised adjacency that every graph product goes through.

.. math:: \tilde A = D^{-1/2} (A + I) D^{-1/2}, \qquad D_{ii} = \sum_j (A + I)_{ij}

``direction="directed"`` takes the edges as they are, as the paper's authors do: row ``i`` reads the nodes that ``i``
points to, both sides are divided by row sums, and the result is unsymmetric where the graph is. ``"symmetric"`` first
takes the larger of ``A`` and its transpose. A self loop that the graph already has is kept and added to. A node
without any weight has a zero row and column.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.ops.backend import backend_of
from adagpr.ops.dropout import MaskSource

Direction = Literal["directed", "symmetric"]

# Graphs of so many nodes are trained with their nodes in the order of `cache_order`.
_LARGE = 2**16


def csr_tensor(matrix: sp.csr_array, dtype: torch.dtype = torch.float32) -> Tensor:
    """A torch CSR tensor of ``matrix``, with int32 indices wherever they suffice: only those reach MKL's products."""
    index = torch.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else torch.int64
    return csr(
        torch.from_numpy(np.ascontiguousarray(matrix.indptr)).to(index),
        torch.from_numpy(np.ascontiguousarray(matrix.indices)).to(index),
        torch.from_numpy(np.ascontiguousarray(matrix.data)).to(dtype),
        matrix.shape,
    )


def to_scipy(matrix: Tensor) -> sp.csr_array:
    """The SciPy matrix of a torch CSR tensor on a CPU, whose memory it shares."""
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    return sp.csr_array(tuple(part.numpy() for part in parts), shape=tuple(matrix.shape))


def replace_values(matrix: Tensor, values: Tensor) -> Tensor:
    """A CSR tensor with the structure of ``matrix``, shared and not copied, and other values."""
    return csr(matrix.crow_indices(), matrix.col_indices(), values, (matrix.shape[0], matrix.shape[1]))


def transposed_order(matrix: sp.csr_array) -> tuple[sp.csr_array, Tensor]:
    """The transpose, and ``order`` such that its values are ``values[order]`` of the values of ``matrix``."""
    numbered = sp.csr_array((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    transpose = sp.csr_array(numbered.T)
    order = transpose.data.astype(np.int64)
    transpose.data = matrix.data[order]
    return transpose, torch.from_numpy(order)


def multiply(matrix: Tensor, h: Tensor, out: Tensor) -> Tensor:
    """A CSR tensor times ``h``, written into ``out``."""
    return backend_of(h).multiply(matrix, h, out)


def csr(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A torch CSR tensor of its parts, unchecked."""
    return torch.sparse_csr_tensor(rows, columns, values, shape, check_invariants=False)


# Torch warns once per process that CSR is in beta state: here, where the warning is ignored.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    csr(torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64), torch.tensor([]), (1, 1))


def read_edges(adj: sp.csr_array, direction: Direction) -> sp.csr_array:
    """The edges as they are read: with ``"symmetric"`` the larger of ``adj`` and its transpose."""
    return sp.csr_array(adj.maximum(adj.T)) if direction == "symmetric" else adj


@dataclass(frozen=True, eq=False)
class Operator:
    """A normalised adjacency, ready for products.

    Attributes:
        matrix: The operator as a torch CSR tensor.
        transpose: Its transpose, the same object when the operator is symmetric.
        direction: How the edges were read.
        self_loops: Whether the identity was added.
        both_ends: Whether edges are divided by the degrees at both ends, as in `directed_operator`.
    """

    matrix: Tensor
    transpose: Tensor
    direction: Direction
    self_loops: bool
    both_ends: bool = field(default=False, kw_only=True)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, that is rows."""
        return int(self.matrix.shape[0])

    @property
    def is_symmetric(self) -> bool:
        """Whether the operator equals its transpose."""
        return self.transpose is self.matrix

    def multiply(self, h: Tensor, out: Tensor, transposed: bool = False) -> Tensor:
        """The operator, or its transpose, times ``h``, written into ``out``."""
        return multiply(self.transpose if transposed else self.matrix, h, out)

    def single_matrix(self, transposed: bool = False) -> Tensor | None:
        """The matrix that `multiply` multiplies with; none where it does more than one product."""
        return self.transpose if transposed else self.matrix

    def sum_over_ranks(self, values: Tensor) -> Tensor:
        """What is summed over rows, summed over the rows of all ranks, where they share the nodes out."""
        return values

    def to(self, target: torch.dtype | torch.device | str) -> Operator:
        """The same operator in another precision or on another device."""
        return self._changed(lambda matrix: matrix.to(target))

    def reversed(self) -> Operator:
        """The operator that reads every edge the other way."""
        return Operator(self.transpose, self.matrix, self.direction, self.self_loops, both_ends=self.both_ends)

    def repeated(self, count: int) -> Operator:
        """The operator of ``count`` copies of the graph side by side, unconnected."""
        return self._changed(lambda one: csr_tensor(sp.block_diag([to_scipy(one)] * count, format="csr"), one.dtype))

    def like(self, matrix: sp.csr_array, self_loops: bool) -> Operator:
        """Another matrix as an operator of the same direction and precision, on the same device."""
        dtype, device = self.matrix.dtype, self.matrix.device
        transpose = csr_tensor(sp.csr_array(matrix.T), dtype).to(device)
        return Operator(csr_tensor(matrix, dtype).to(device), transpose, self.direction, self_loops)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> Operator:
        matrix = change(self.matrix)
        transpose = matrix if self.is_symmetric else change(self.transpose)
        return Operator(matrix, transpose, self.direction, self.self_loops, both_ends=self.both_ends)


def require_rows(op: Operator, h: Tensor) -> None:
    """Raises an `InputError` unless the operator has a row for each row of ``h``; kernels do not look."""
    matrix = op.single_matrix()
    if matrix is not None and matrix.shape[0] != len(h):
        raise InputError(f"The operator has {matrix.shape[0]} rows, but there are {len(h)} rows of features.")


def operator(
    graph: Graph, direction: Direction = "directed", self_loops: bool = True, dtype: torch.dtype = torch.float32
) -> Operator:
    """Builds the operator of ``graph``; see the module for the equation.

    Args:
        graph: The graph.
        direction: ``"directed"`` for the edges as given, ``"symmetric"`` to read each edge both ways.
        self_loops: Whether to add the identity before normalising.
        dtype: Precision of the result; degrees are always summed in float64.

    Raises:
        InputError: ``direction`` is unknown.

    Example:
        >>> from adagpr.graph import from_scipy
        >>> path = from_scipy([[0, 1, 0], [1, 0, 1], [0, 1, 0]], [[1.0], [2.0], [3.0]], [0, 1, 0])
        >>> operator(path).matrix.to_dense()[0].tolist()
        [0.5, 0.40824830532073975, 0.0]
    """
    if direction not in ("directed", "symmetric"):
        raise InputError(f"operator: direction must be 'directed' or 'symmetric', got {direction!r}.")
    found = normalised(graph, direction, self_loops)
    matrix = csr_tensor(found, dtype)
    symmetric = direction == "symmetric" or graph.is_symmetric
    transpose = matrix if symmetric else csr_tensor(sp.csr_array(found.T), dtype)
    return Operator(matrix, transpose, direction, self_loops)


def directed_operator(graph: Graph, self_loops: bool = True, dtype: torch.dtype = torch.float32) -> Operator:
    r"""The operator of a directed graph that is divided at both ends of an edge by the degree there.

    .. math:: \tilde A = D_{out}^{-1/2} A D_{in}^{-1/2}

    Read backwards it is its transpose, `Operator.reversed`, with the same weights.

    Example:
        >>> from adagpr.graph import from_scipy
        >>> path = from_scipy([[0, 1, 1], [0, 0, 1], [0, 0, 0]], [[1.0], [2.0], [3.0]], [0, 1, 0])
        >>> directed_operator(path, self_loops=False).matrix.to_dense()[0].tolist()
        [0.0, 0.7071067690849304, 0.5]
    """
    weights = sp.csr_array(graph.adj, dtype=np.float64)
    if self_loops:
        weights = sp.csr_array(weights + sp.eye_array(weights.shape[0], format="csr"))
    found = _scaled_at_both_ends(weights)
    transpose = csr_tensor(sp.csr_array(found.T), dtype)
    return Operator(csr_tensor(found, dtype), transpose, "directed", self_loops, both_ends=True)


# Of the graphs that are in memory: training, explanations and bounds ask for the same matrix one after the other.
_normalised: dict[tuple[int, Direction, bool], sp.csr_array] = {}


def normalised(graph: Graph, direction: Direction, self_loops: bool) -> sp.csr_array:
    """`normalise` of a graph's edges, computed once per graph; not to be changed in place."""
    key = (id(graph.adj), "symmetric" if graph.is_symmetric else direction, self_loops)
    if key not in _normalised:
        _normalised[key] = normalise(graph.adj, direction, self_loops)
        weakref.finalize(graph.adj, _normalised.pop, key, None)
    return _normalised[key]


def normalise(adj: sp.csr_array, direction: Direction, self_loops: bool) -> sp.csr_array:
    """The equation of this module in float64, as a SciPy matrix."""
    weights = read_edges(sp.csr_array(adj, dtype=np.float64), direction)
    if self_loops:
        weights = sp.csr_array(weights + sp.eye_array(weights.shape[0], format="csr"))
    scale = _inverse_root(weights.sum(axis=1))
    return _scaled(weights, scale, scale)


def _scaled_at_both_ends(weights: sp.csr_array) -> sp.csr_array:
    """Each weight divided by the roots of the degree of its row and of that of its column."""
    return _scaled(weights, _inverse_root(weights.sum(axis=1)), _inverse_root(weights.sum(axis=0)))


def _inverse_root(degree: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    return found


def _scaled(weights: sp.csr_array, rows: np.ndarray, columns: np.ndarray) -> sp.csr_array:
    """Each entry times the numbers of its row and its column."""
    values = weights.data * np.repeat(rows, np.diff(weights.indptr)) * columns[weights.indices]
    result = sp.csr_array((values, weights.indices, weights.indptr), weights.shape)
    result.sort_indices()
    return result


def edge_operator(
    edge_index: Tensor,
    num_nodes: int,
    edge_weight: Tensor | None = None,
    *,
    normalize: bool = True,
    add_self_loops: bool = True,
    both_ends: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Operator:
    """Builds an operator as torch_geometric's ``gcn_norm`` and ``propagate`` would use it.

    ``edge_index`` is 2 x E whole numbers, sources above targets, with one ``edge_weight`` per edge, 1 unless given; or
    a sparse tensor, ``[targets, sources]``, with its own weights. The weights are constants: no gradient reaches them.
    Without ``normalize`` no self loops are added either; with ``both_ends`` it is as in `directed_operator`. Degrees
    are always summed in float64. Takes time and memory in the number of edges.

    Example:
        >>> edge_operator(torch.tensor([[0], [1]]), num_nodes=2, normalize=False).matrix.to_dense().tolist()
        [[0.0, 0.0], [1.0, 0.0]]
    """
    is_sparse = edge_index.layout != torch.strided
    weights = edge_index if is_sparse else edge_weight
    if weights is not None and weights.requires_grad:
        raise InputError(
            "edge_operator: edge weights are taken as constants, but these ask for a gradient; detach them."
        )
    if is_sparse and edge_weight is not None:
        raise InputError("edge_operator: a sparse tensor has its own weights; edge_weight must be left out.")
    matrix = _from_sparse(edge_index, num_nodes) if is_sparse else _from_pairs(edge_index, edge_weight, num_nodes)
    if normalize:
        if matrix.nnz and matrix.data.min() < 0:
            raise InputError(
                f"edge_operator: edge weights must not be negative where they are divided by degrees, "
                f"got {matrix.data.min():g}."
            )
        if add_self_loops:
            loops = np.ones(num_nodes) if is_sparse else (matrix.diagonal() == 0).astype(np.float64)
            matrix = sp.csr_array(matrix + sp.diags_array(loops, format="csr"))
        matrix = _scaled_at_both_ends(matrix) if both_ends else normalise(matrix, "directed", self_loops=False)
    device = edge_index.device
    transpose = csr_tensor(sp.csr_array(matrix.T), dtype).to(device)
    has_loops, both_ends = normalize and add_self_loops, normalize and both_ends
    return Operator(csr_tensor(matrix, dtype).to(device), transpose, "directed", has_loops, both_ends=both_ends)


def _from_pairs(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> sp.csr_array:
    # A plain tensor also where it is torch_geometric's EdgeIndex.
    pairs = edge_index.as_subclass(Tensor).cpu().numpy()
    if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.dtype.kind not in "iu":
        raise InputError(f"edge_operator: edge_index must be 2 x E whole numbers, got {pairs.dtype} {pairs.shape}.")
    if pairs.size and (pairs.min() < 0 or pairs.max() >= num_nodes):
        raise InputError(
            f"edge_operator: edge_index names nodes from {pairs.min()} to {pairs.max()}, "
            f"but the nodes are 0 to {num_nodes - 1}."
        )
    weights = np.ones(pairs.shape[1]) if edge_weight is None else edge_weight.cpu().double().numpy()
    if weights.shape != (pairs.shape[1],):
        raise InputError(f"edge_operator: edge_weight must hold {pairs.shape[1]} values, got {weights.shape}.")
    return sp.csr_array((weights, (pairs[1], pairs[0])), shape=(num_nodes, num_nodes))


def _from_sparse(matrix: Tensor, num_nodes: int) -> sp.csr_array:
    if tuple(matrix.shape) != (num_nodes, num_nodes):
        raise InputError(
            f"edge_operator: the sparse tensor must be {num_nodes} x {num_nodes} for as many nodes, "
            f"got {tuple(matrix.shape)}."
        )
    # A copy, because merging duplicates sorts in place.
    result = to_scipy(matrix.cpu().to_sparse_csr().double()).copy()
    result.sum_duplicates()
    return result


@dataclass(frozen=True, eq=False)
class DroppableOperator:
    """The operator of all edges, for evaluation, and what is needed to draw thinner ones (DropEdge)."""

    full: Operator
    # Structure of the transpose, and where each entry of it is in the operator.
    transpose: Tensor
    order: Tensor
    # Of each entry the weight without the added self loop, 1 at an added self loop and else 0, and the row.
    weights: Tensor
    loops: Tensor
    rows: Tensor

    @classmethod
    def from_graph(cls, graph: Graph, operator: Operator) -> DroppableOperator:
        """Prepares ``operator``, which was made of ``graph``, for drawing."""
        adj = read_edges(sp.csr_array(graph.adj, dtype=np.float64), operator.direction)
        matrix = operator.matrix.cpu()
        columns, starts = matrix.col_indices().numpy().copy(), matrix.crow_indices().numpy().copy()
        rows = np.repeat(np.arange(graph.num_nodes), np.diff(starts))
        weights = torch.from_numpy(np.asarray(adj[rows, columns], dtype=np.float64).ravel()).to(matrix.dtype)
        loops = torch.from_numpy((rows == columns) & operator.self_loops).to(matrix.dtype)
        transpose, order = transposed_order(sp.csr_array((weights.numpy(), columns, starts), shape=adj.shape))
        parts = (csr_tensor(transpose, matrix.dtype), order, weights, loops, torch.from_numpy(rows))
        return cls(operator, *(part.to(operator.matrix.device) for part in parts))

    def draw(self, rate: float, generator: np.random.Generator) -> Operator:
        """An operator from which each edge is missing with probability ``rate``."""
        kept = self.weights * MaskSource(rate, [generator]).draw(self.weights) + self.loops
        degree = kept.new_zeros(self.full.num_nodes).index_add_(0, self.rows, kept)
        scale = degree.rsqrt().masked_fill_(degree == 0, 0.0)
        values = kept * scale[self.rows] * scale[self.full.matrix.col_indices()]
        matrix, transpose = replace_values(self.full.matrix, values), replace_values(self.transpose, values[self.order])
        return Operator(matrix, transpose, self.full.direction, self.full.self_loops)


def is_large(num_nodes: int) -> bool:
    """Whether a graph of so many nodes is trained with its nodes in the order of `cache_order`."""
    return num_nodes >= _LARGE


def cache_order(adj: sp.csr_array) -> np.ndarray:
    """Puts every node beside the others that share its best connected neighbour; the best connected come first.

    The rows that most edges read then lie together, and rows that follow one another read much the same. On an R-MAT
    graph of a million nodes a product takes about three quarters of the time. Returns the node at each position.

    Example:
        >>> cache_order(sp.csr_array([[0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 0]])).tolist()
        [1, 3, 2, 0]
    """
    num_neighbours = np.diff(adj.indptr)
    rank = np.empty_like(num_neighbours)
    rank[np.argsort(-num_neighbours, kind="stable")] = np.arange(len(rank))
    best = rank.copy()
    np.minimum.at(best, np.repeat(np.arange(len(rank)), num_neighbours), rank[adj.indices])
    return np.lexsort((rank, best))
