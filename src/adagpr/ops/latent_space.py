r"""A plane under a graph (Pei et al., 2020): Isomap of hop distances, and the neighbourhoods of Geom-GCN in it.

Isomap of a graph is classical scaling of its shortest-path distances ``D``: the two leading eigenvectors of
:math:`-\frac12 J D^2 J` (``J`` centres), each times the root of its eigenvalue. Distances to a set of landmarks
suffice (de Silva and Tenenbaum, 2004): with :math:`\lambda, v` the eigenpairs among landmarks, a node lies at
:math:`-\frac12 \lambda^{-1/2} v^\top (\delta - \bar\delta)`, ``delta`` its squared distances to them. Up to
``EXACT_NODES`` nodes every node is a landmark and this is Isomap itself; above, the ``NUM_LANDMARKS`` nodes of largest
degree are, so that 20,000 nodes take 20 million distances and not 400 million.

* Edges are read both ways and their weights are not read: a distance is a number of hops.
* Each connected component has a plane of its own. Two components are infinitely far apart, so that no finite distance
  has to be made up for them: their nodes are never latent neighbours.
* Nodes at the very same place see each other in no direction and are not latent neighbours. Two leaves of one hub are
  such nodes in all but tiny graphs, where an axis may be spent on telling them apart.
* Renumbering the nodes renumbers the places, except where the graph itself leaves them open: a mirror symmetry (which
  way an axis points) and equal eigenvalues (a ring may be turned). There the numbering decides, always in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.spatial import KDTree

from adagpr.errors import InputError
from adagpr.ops.operator import Operator, csr_tensor

EXACT_NODES = 5000
NUM_LANDMARKS = 1000
# Four quadrants among graph neighbours, four among latent neighbours, and the node itself.
NUM_RELATIONS = 9

_DENSE = 400
_DECIMALS = 6
_TIE = 1e-9


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Ordered pairs of a node and a neighbour, each pair once, sorted, int64; without the nodes themselves."""

    rows: np.ndarray
    columns: np.ndarray
    # 0 to 3 for a graph neighbour and 4 to 7 for a latent one, by `quadrant`.
    relation: np.ndarray


def undirected(adj: sp.csr_array) -> sp.csr_array:
    """The pattern of ``adj`` read both ways, all ones, without self loops."""
    pattern = sp.coo_array(adj)
    keep = (pattern.row != pattern.col) & (pattern.data != 0)
    one_way = sp.csr_array((np.ones(keep.sum()), (pattern.row[keep], pattern.col[keep])), shape=adj.shape)
    return sp.csr_array(one_way.maximum(one_way.T))


def hop_distances(adj: sp.csr_array, sources: np.ndarray) -> np.ndarray:
    """Number of hops from each source to each node, ``[sources, nodes]``; infinite where there is no path."""
    return np.asarray(dijkstra(adj, directed=False, unweighted=True, indices=sources))


def isomap(distances: np.ndarray, landmarks: np.ndarray) -> np.ndarray:
    """Places in the plane from distances to landmarks, ``[nodes, 2]``; see the module for the equation.

    An axis whose eigenvalue is not positive is all zero. An axis points to where its third moment is positive, or,
    where that is zero, to where the first node furthest out lies. Coordinates are rounded to a millionth of a hop.
    Distances are finite, one row per landmark and one column per node; ``landmarks`` are the columns of the rows.
    """
    squared = np.square(distances, dtype=np.float64)
    among = squared[:, landmarks]
    mean = among.mean(axis=1)
    values, vectors = _leading(-0.5 * (among - mean[:, None] - mean[None, :] + mean.mean()))
    places = np.zeros((distances.shape[1], 2))
    for axis, (value, vector) in enumerate(zip(values, vectors.T, strict=True)):
        if value > _TIE * max(values[0], 1.0):
            column = -0.5 / np.sqrt(value) * (vector @ (squared - mean[:, None]))
            places[:, axis] = column * _sign(column)
    return places.round(_DECIMALS) + 0.0


def _leading(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two largest eigenvalues, largest first, and their vectors; one or none where there are no more."""
    size = len(matrix)
    if size <= _DENSE:
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[max(0, size - 2), size - 1])
    else:
        # A start that is not drawn from numpy's global state; its choice changes the result by rounding only.
        start = np.random.default_rng(0).normal(size=size)
        operator = LinearOperator(matrix.shape, matvec=matrix.dot, dtype=np.float64)
        values, vectors = eigsh(operator, k=2, which="LA", v0=start)
    order = np.argsort(-values, kind="stable")
    return values[order], vectors[:, order]


def _sign(column: np.ndarray) -> float:
    scaled = column / np.abs(column).max()
    moment = float((scaled**3).sum())
    furthest = scaled[np.abs(scaled) > 1 - 1e-6][0]
    return float(np.sign(moment if abs(moment) > 1e-6 else furthest))


def latent_space(adj: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Place of each node of an `undirected` graph, ``[nodes, 2]``, and the component in whose plane it is."""
    _, component = connected_components(adj, directed=False)
    places = np.zeros((adj.shape[0], 2))
    for nodes in np.split(np.argsort(component, kind="stable"), np.cumsum(np.bincount(component))[:-1]):
        if len(nodes) > 1:
            part = adj[nodes][:, nodes]
            landmarks = _landmarks(part)
            places[nodes] = isomap(hop_distances(part, landmarks), landmarks)
    return places, component.astype(np.int64)


def _landmarks(adj: sp.csr_array) -> np.ndarray:
    count = adj.shape[0] if adj.shape[0] <= EXACT_NODES else NUM_LANDMARKS
    return np.sort(np.argsort(-np.diff(adj.indptr), kind="stable")[:count])


def latent_pairs(places: np.ndarray, component: np.ndarray, num_pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Ordered pairs of nodes within the radius that gives as nearly ``num_pairs`` of them as any radius does.

    Time and memory follow the number of pairs, not the square of the number of nodes.
    """
    width = 1.0 + 2 * np.abs(places).max(initial=0.0)
    # Components side by side, further apart than any two places of one plane.
    apart = np.column_stack([places, component * (3.0 * width)])
    sites, site, weight = np.unique(apart, axis=0, return_inverse=True, return_counts=True)
    site = site.ravel()
    pairs, distance = _closest(sites, weight, num_pairs, width)
    if len(pairs) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    order = np.argsort(distance, kind="stable")
    distance, pairs = distance[order], pairs[order]
    count = np.cumsum(2 * weight[pairs[:, 0]] * weight[pairs[:, 1]])
    # Equal distances come in or stay out together: a radius cannot tell them apart.
    ends = np.append(np.flatnonzero(distance[1:] > distance[:-1] * (1 + _TIE)), len(distance) - 1)
    kept = pairs[: ends[np.argmin(np.abs(count[ends] - num_pairs))] + 1]
    links = sp.coo_array((np.ones(len(kept)), (kept[:, 0], kept[:, 1])), shape=(len(sites), len(sites)))
    members = sp.csr_array((np.ones(len(site)), (np.arange(len(site)), site)), shape=(len(site), len(sites)))
    both = sp.coo_array(members @ sp.csr_array(links + links.T) @ members.T)
    return both.row.astype(np.int64), both.col.astype(np.int64)


def _closest(sites: np.ndarray, weight: np.ndarray, num_pairs: int, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of sites in reach of the smallest radius that gives ``num_pairs`` pairs of nodes, and their distances."""
    tree = KDTree(sites)
    alone = float(np.square(weight, dtype=np.float64).sum())
    low, high = 0.0, 3.0 * width * (1 - _TIE)
    for _ in range(50):
        middle = (low + high) / 2
        within = float(tree.count_neighbors(tree, middle, weights=weight.astype(np.float64))) - alone
        low, high = (low, middle) if within >= num_pairs else (middle, high)
    pairs = tree.query_pairs(high * (1 + _TIE), output_type="ndarray")
    return pairs, np.linalg.norm(sites[pairs[:, 0]] - sites[pairs[:, 1]], axis=1)


def quadrant(places: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Where each neighbour lies as seen from its node: 0 upper left, 1 upper right, 2 lower left, 3 lower right.

    As in the paper's Table 1 a tie counts as right, and as upper.
    """
    here, there = places[rows], places[columns]
    return np.asarray((here[:, 0] <= there[:, 0]) + 2 * (here[:, 1] > there[:, 1]))


def neighbourhoods(adj: sp.csr_array) -> Neighbourhoods:
    """Graph and latent neighbours of every node, and how they lie.

    A pair that is both counts as latent, as in the authors' code, whose graph holds one edge per pair.
    """
    graph = undirected(adj)
    if graph.nnz == 0:
        raise InputError(
            "Geom-GCN: the graph has no edge between two nodes, so there are no distances to embed. Use an mlp instead."
        )
    places, component = latent_space(graph)
    rows, columns = latent_pairs(places, component, graph.nnz)
    latent = sp.csr_array((np.full(len(rows), 2.0), (rows, columns)), shape=graph.shape)
    merged = sp.csr_array(latent.maximum(graph))
    merged.sort_indices()
    pairs = sp.coo_array(merged)
    rows, columns = pairs.row.astype(np.int64), pairs.col.astype(np.int64)
    return Neighbourhoods(rows, columns, quadrant(places, rows, columns) + 4 * (pairs.data == 2.0))


def relation_operators(pairs: Neighbourhoods, num_nodes: int, dtype: torch.dtype = torch.float32) -> list[Operator]:
    """One operator per relation, ``NUM_RELATIONS`` of them; together the normalised adjacency of all pairs and loops.

    Entry ``[v, u]`` is ``(deg(v) deg(u))^(-1/2)``; a node's degree counts its neighbours of both kinds and itself.
    """
    scale = (np.bincount(pairs.rows, minlength=num_nodes) + 1.0) ** -0.5
    found = []
    for relation in range(NUM_RELATIONS - 1):
        keep = pairs.relation == relation
        rows, columns = pairs.rows[keep], pairs.columns[keep]
        matrix = sp.csr_array((scale[rows] * scale[columns], (rows, columns)), shape=(num_nodes, num_nodes))
        transpose = csr_tensor(sp.csr_array(matrix.T), dtype)
        found.append(Operator(csr_tensor(matrix, dtype), transpose, "symmetric", False))
    loops = csr_tensor(sp.csr_array(sp.diags_array(scale**2)), dtype)
    return [*found, Operator(loops, loops, "symmetric", True)]
