from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.manifold import Isomap

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.ops import latent_space as space


def from_edges(num_nodes: int, edges: list[tuple[int, int]]) -> sp.csr_array:
    rows, columns = np.array(edges).T
    return sp.csr_array((np.ones(len(edges)), (rows, columns)), shape=(num_nodes, num_nodes))


def path(num_nodes: int) -> sp.csr_array:
    return from_edges(num_nodes, [(i, i + 1) for i in range(num_nodes - 1)])


def naive_distances(adj: np.ndarray) -> np.ndarray:
    hops = np.where(adj > 0, 1.0, np.inf)
    np.fill_diagonal(hops, 0.0)
    for k, i, j in itertools.product(range(len(adj)), repeat=3):
        hops[i, j] = min(hops[i, j], hops[i, k] + hops[k, j])
    return hops


@pytest.fixture
def graph(make_graph: Callable[..., Graph]) -> sp.csr_array:
    return space.undirected(make_graph().adj)


def test_undirected_reads_edges_both_ways_without_weights_and_self_loops() -> None:
    adj = sp.csr_array([[5.0, 2.0, 0.0], [3.0, 0.0, 7.0], [0.0, 0.0, 0.0]])
    assert space.undirected(adj).toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_hop_distances_are_those_of_floyd_and_warshall(graph: sp.csr_array) -> None:
    expected = naive_distances(graph.toarray())
    np.testing.assert_array_equal(space.hop_distances(graph, np.arange(30)), expected)
    np.testing.assert_array_equal(space.hop_distances(graph, np.array([3, 1])), expected[[3, 1]])


def test_isomap_is_scikit_learn_s_up_to_the_direction_of_its_axes(graph: sp.csr_array) -> None:
    distances = space.hop_distances(graph, np.arange(30))
    places = space.isomap(distances, np.arange(30))
    theirs = Isomap(n_neighbors=29, metric="precomputed", eigen_solver="dense").fit_transform(distances)
    np.testing.assert_allclose(np.abs(places), np.abs(theirs), atol=1e-5)
    np.testing.assert_allclose(np.abs((places * theirs).sum(axis=0)), np.square(theirs).sum(axis=0), rtol=1e-4)


@pytest.mark.parametrize("landmarks", [[0, 1, 2, 3, 4, 5, 6], [0, 6], [2, 3, 5]])
def test_any_landmarks_lay_a_path_out_straight(landmarks: list[int]) -> None:
    where = np.array(landmarks)
    places = space.isomap(space.hop_distances(space.undirected(path(7)), where), where)
    np.testing.assert_allclose(np.abs(np.diff(places[:, 0])), 1.0, atol=1e-5)
    assert not places[:, 1].any()


def test_the_iterative_solver_finds_the_places_of_the_dense_one(
    graph: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense, _ = space.latent_space(graph)
    monkeypatch.setattr(space, "_DENSE", 5)
    iterative, _ = space.latent_space(graph)
    np.testing.assert_allclose(iterative, dense, atol=2e-6)


def test_large_graphs_measure_from_the_nodes_of_largest_degree(
    graph: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "EXACT_NODES", 20)
    monkeypatch.setattr(space, "NUM_LANDMARKS", 8)
    places, _ = space.latent_space(graph)
    hubs = np.sort(np.argsort(-graph.sum(axis=1), kind="stable")[:8])
    np.testing.assert_array_equal(places, space.isomap(space.hop_distances(graph, hubs), hubs))


def test_renumbering_nodes_renumbers_places_and_neighbourhoods(graph: sp.csr_array) -> None:
    order = np.random.default_rng(1).permutation(30)
    moved = sp.csr_array(graph[order][:, order])
    np.testing.assert_allclose(space.latent_space(moved)[0], space.latent_space(graph)[0][order], atol=2e-6)
    one, other = space.neighbourhoods(graph), space.neighbourhoods(moved)
    relations = {(int(v), int(u), int(r)) for v, u, r in zip(one.rows, one.columns, one.relation, strict=True)}
    back = zip(order[other.rows], order[other.columns], other.relation, strict=True)
    assert {(int(v), int(u), int(r)) for v, u, r in back} == relations


def test_two_leaves_of_one_hub_share_a_place_and_are_not_latent_neighbours() -> None:
    arms = [(0, 3), (3, 4), (4, 5), (5, 6), (0, 7), (7, 8), (8, 9), (0, 10), (10, 11), (11, 12)]
    adj = space.undirected(from_edges(13, [(0, 1), (0, 2), *arms]))
    places, component = space.latent_space(adj)
    assert places[1].tolist() == places[2].tolist()
    rows, columns = space.latent_pairs(places, component, 10**6)
    assert len(rows) == 13 * 12 - 2
    assert not {(1, 2), (2, 1)} & set(zip(rows.tolist(), columns.tolist(), strict=True))


def test_each_component_has_its_own_plane_and_no_neighbours_elsewhere(graph: sp.csr_array) -> None:
    both = sp.csr_array(sp.block_diag([graph, space.undirected(path(4)), np.zeros((1, 1))]))
    places, component = space.latent_space(both)
    np.testing.assert_array_equal(places[:30], space.latent_space(graph)[0])
    np.testing.assert_allclose(np.abs(np.diff(places[30:34, 0])), 1.0, atol=1e-5)
    rows, columns = space.latent_pairs(places, component, 10**6)
    assert (component[rows] == component[columns]).all()
    assert len(rows) == 30 * 29 + 4 * 3
    assert places[34].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("num_pairs", [1, 7, 60, 333])
def test_latent_pairs_are_those_of_the_radius_nearest_to_the_number(num_pairs: int) -> None:
    rng = np.random.default_rng(num_pairs)
    places = rng.integers(0, 6, size=(25, 2)).astype(float)
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    radii = np.unique(distance[distance > 0].round(9))
    within = [(distance > 0) & (distance <= radius + 1e-6) for radius in radii]
    expected = min(within, key=lambda pairs: (abs(int(pairs.sum()) - num_pairs), pairs.sum()))
    rows, columns = space.latent_pairs(places, np.zeros(25, dtype=np.int64), num_pairs)
    found = np.zeros((25, 25), dtype=bool)
    found[rows, columns] = True
    np.testing.assert_array_equal(found, expected)


def test_quadrants_are_the_paper_s_with_ties_right_and_up() -> None:
    places = np.array([[0.0, 0.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [0.0, 0.0]])
    seen = space.quadrant(places, np.zeros(5, dtype=np.int64), np.arange(1, 6))
    assert seen.tolist() == [0, 1, 2, 3, 1]


def test_a_pair_that_is_both_kinds_of_neighbour_counts_as_latent(graph: sp.csr_array) -> None:
    found = space.neighbourhoods(graph)
    places, component = space.latent_space(graph)
    rows, columns = space.latent_pairs(places, component, graph.nnz)
    latent = set(zip(rows.tolist(), columns.tolist(), strict=True))
    pairs = list(zip(found.rows.tolist(), found.columns.tolist(), strict=True))
    assert set(pairs) == latent | set(zip(*graph.nonzero(), strict=True))
    assert len(pairs) == len(set(pairs)) == len(found.relation)
    assert [relation >= 4 for relation in found.relation] == [pair in latent for pair in pairs]
    np.testing.assert_array_equal(found.relation % 4, space.quadrant(places, found.rows, found.columns))


def test_operators_split_the_normalised_adjacency_of_all_neighbours(graph: sp.csr_array) -> None:
    pairs = space.neighbourhoods(graph)
    operators = space.relation_operators(pairs, 30, torch.float64)
    whole = np.eye(30)
    whole[pairs.rows, pairs.columns] = 1.0
    degree = whole.sum(axis=1)
    total = sum(item.matrix.to_dense().numpy() for item in operators)
    np.testing.assert_allclose(total, whole / np.sqrt(np.outer(degree, degree)), atol=1e-12)
    assert len(operators) == space.NUM_RELATIONS
    for item in operators:
        assert torch.equal(item.transpose.to_dense(), item.matrix.to_dense().T)


def test_the_smallest_graph_has_a_line_and_a_ring_is_always_turned_the_same_way() -> None:
    pair, _ = space.latent_space(space.undirected(path(2)))
    assert np.abs(pair).tolist() == [[0.5, 0.0], [0.5, 0.0]]
    ring = space.undirected(from_edges(8, [(i, (i + 1) % 8) for i in range(8)]))
    np.testing.assert_array_equal(space.latent_space(ring)[0], space.latent_space(ring.copy())[0])


def test_a_graph_without_edges_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="Geom-GCN: the graph has no edge between two nodes"):
        space.neighbourhoods(sp.csr_array(np.eye(3)))
