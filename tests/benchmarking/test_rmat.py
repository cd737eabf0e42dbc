from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from adagpr.benchmarking import rmat
from adagpr.data import csbm
from adagpr.errors import InputError
from adagpr.graph import Graph


def degrees(graph: Graph) -> np.ndarray:
    return np.diff(graph.adj.indptr)


@pytest.mark.parametrize(("num_nodes", "average_degree"), [(1000, 10.0), (1024, 4.0), (3000, 7.5), (2, 1.0)])
def test_nodes_and_edges_are_as_asked(num_nodes: int, average_degree: float) -> None:
    graph = rmat(num_nodes, average_degree)
    assert graph.num_nodes == num_nodes
    assert graph.num_edges == 2 * round(num_nodes * average_degree / 2)


def test_edges_go_both_ways_once_and_never_to_their_own_node() -> None:
    graph = rmat(500, 12.0)
    assert graph.is_symmetric
    assert set(graph.adj.data) == {1.0}
    assert graph.adj.diagonal().sum() == 0


def test_degrees_are_more_skewed_than_those_of_a_block_model() -> None:
    skewed, even = degrees(rmat(4000)), degrees(csbm(4000, average_degree=10.0))
    assert skewed.mean() == even.mean() == 10.0
    assert skewed.std() > 3 * even.std()
    assert skewed.max() > 5 * even.max()


def test_hubs_are_anywhere_among_the_nodes() -> None:
    hubs = np.argsort(degrees(rmat(4000)))[-100:]
    assert 1400 < hubs.mean() < 2600


def test_a_seed_gives_one_graph_and_another_seed_another() -> None:
    assert rmat(300, seed=3).fingerprint == rmat(300, seed=3).fingerprint
    assert rmat(300, seed=3).fingerprint != rmat(300, seed=4).fingerprint


def test_features_are_gaussian_and_labels_random() -> None:
    graph = rmat(5000, num_features=7, num_classes=3)
    assert isinstance(graph.x, torch.Tensor)
    assert graph.x.dtype == torch.float32
    assert graph.x.std(dim=0).tolist() == pytest.approx([1.0] * 7, abs=0.05)
    assert graph.y.bincount().tolist() == pytest.approx([5000 / 3] * 3, rel=0.1)


def test_a_graph_without_edges_can_be_asked_for() -> None:
    assert rmat(10, 0.0).num_edges == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_nodes": 1}, "num_nodes must be at least 2"),
        ({"num_nodes": 10, "average_degree": -1.0}, "average_degree must not be negative"),
        ({"num_nodes": 10, "num_classes": 1}, "num_classes must be at least 2"),
        ({"num_nodes": 200, "average_degree": 199.0}, "Ask for a smaller average_degree"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rmat(**arguments)
