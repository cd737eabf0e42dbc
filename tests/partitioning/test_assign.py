"""Which part each node goes to: balance, no empty parts, and fewer edges between parts than at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import scipy.sparse as sp

from adagpr.benchmarking import rmat
from adagpr.data import load
from adagpr.errors import InputError
from adagpr.partitioning.assign import Block, block_size, capacity, edge_cut, greedy, metis

Assign = Callable[[sp.csr_array, int], np.ndarray]


def rows_of(adj: sp.csr_array) -> list[Block]:
    return [(0, adj.indptr, adj.indices)]


def by_greedy(adj: sp.csr_array, num_parts: int) -> np.ndarray:
    return greedy(lambda: rows_of(adj), adj.shape[0], adj.nnz, num_parts)


def clusters(num_clusters: int, size: int) -> sp.csr_array:
    """Cliques whose nodes are shuffled, with one edge from each to the next."""
    num_nodes = num_clusters * size
    dense = np.kron(np.eye(num_clusters), np.ones((size, size)))
    for number in range(num_clusters):
        one, other = number * size, (number * size + size) % num_nodes
        dense[one, other] = dense[other, one] = 1
    order = np.random.default_rng(0).permutation(num_nodes)
    return sp.csr_array(dense[order][:, order])


ways = pytest.mark.parametrize("assign", [metis, by_greedy])


@ways
def test_the_cut_of_a_graph_with_communities_is_well_below_random(assign: Assign) -> None:
    adj = load("digits")[0].adj
    cut = edge_cut(rows_of(adj), assign(adj, 8)) / adj.nnz
    assert cut < 0.25 * (1 - 1 / 8)


@ways
def test_cliques_are_kept_together(assign: Assign) -> None:
    adj = clusters(6, 20)
    assert edge_cut(rows_of(adj), assign(adj, 6)) <= 0.1 * adj.nnz


@ways
@pytest.mark.parametrize("num_parts", [1, 2, 7, 30])
def test_every_node_is_in_a_part_and_no_part_is_empty(assign: Assign, num_parts: int) -> None:
    part = assign(clusters(3, 10), num_parts)
    assert part.shape == (30,)
    assert (np.bincount(part, minlength=num_parts) > 0).all()
    assert part.max() < num_parts


@ways
def test_a_graph_without_edges_is_cut_evenly(assign: Assign) -> None:
    sizes = np.bincount(assign(sp.csr_array((12, 12)), 4), minlength=4)
    assert sizes.min() > 0
    assert sizes.sum() == 12


@ways
def test_a_directed_graph_and_self_loops_are_taken(assign: Assign) -> None:
    path = sp.csr_array(np.eye(40, k=1) + np.eye(40))
    part = assign(path, 4)
    assert edge_cut(rows_of(path), part) <= 20


@ways
def test_the_same_graph_gives_the_same_parts(assign: Assign) -> None:
    adj = clusters(5, 12)
    assert np.array_equal(assign(adj, 5), assign(adj, 5))


@ways
@pytest.mark.parametrize("num_parts", [0, -3])
def test_fewer_than_one_part_is_refused(assign: Assign, num_parts: int) -> None:
    with pytest.raises(InputError, match=f"must be at least 1, got {num_parts}"):
        assign(clusters(2, 3), num_parts)


@ways
def test_more_parts_than_nodes_are_refused(assign: Assign) -> None:
    with pytest.raises(InputError, match="7 parts are more than the graph's 6 nodes"):
        assign(clusters(2, 3), 7)


@pytest.mark.parametrize("num_parts", [3, 8, 50])
def test_no_part_of_greedy_is_above_its_capacity(num_parts: int) -> None:
    adj = load("csbm")[0].adj
    sizes = np.bincount(by_greedy(adj, num_parts), minlength=num_parts)
    assert sizes.max() <= capacity(1000, num_parts)
    assert capacity(1000, num_parts) <= max(1.05 * 1000 / num_parts, -(-1000 // num_parts))


def test_a_star_does_not_overfill_the_part_of_its_hub() -> None:
    adj = sp.lil_array((400, 400))
    adj[0, 1:] = adj[1:, 0] = 1
    sizes = np.bincount(by_greedy(adj.tocsr(), 4), minlength=4)
    assert sizes.max() <= capacity(400, 4)


def test_further_passes_improve_the_cut() -> None:
    adj = load("digits")[0].adj
    first, best = (greedy(lambda: rows_of(adj), adj.shape[0], adj.nnz, 8, num_passes) for num_passes in (1, 8))
    assert edge_cut(rows_of(adj), best) < 0.9 * edge_cut(rows_of(adj), first)


def test_the_rows_may_come_in_blocks_of_any_multiple() -> None:
    adj = load("csbm")[0].adj
    size = 3 * block_size(1000, 4)

    def blocks() -> Iterator[Block]:
        for start in range(0, 1000, size):
            bounds = adj.indptr[start : start + size + 1]
            yield start, bounds - bounds[0], adj.indices[bounds[0] : bounds[-1]]

    assert np.array_equal(greedy(blocks, 1000, adj.nnz, 4), by_greedy(adj, 4))


def test_hubs_are_spread_over_the_parts() -> None:
    adj = rmat(8000, 10).adj
    entries = np.bincount(by_greedy(adj, 32), np.diff(adj.indptr), minlength=32)
    assert entries.max() <= 2.1 * entries.mean()
