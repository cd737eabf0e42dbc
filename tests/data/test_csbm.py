from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from adagpr.data import csbm, load
from adagpr.errors import InputError
from adagpr.graph import Graph


def homophily(graph: Graph) -> float:
    links, y = graph.adj.tocoo(), graph.y.numpy()
    return float((y[links.row] == y[links.col]).mean())


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("asked", "num_classes"), [(0.0, 3), (0.1, 2), (0.5, 5), (0.8, 2), (1.0, 4)])
def test_degree_is_as_asked_and_homophily_near_it(asked: float, num_classes: int, directed: bool) -> None:
    graph = csbm(4000, num_classes, average_degree=12, homophily=asked, directed=directed)
    assert graph.num_edges == 4000 * 12
    assert homophily(graph) == pytest.approx(asked, abs=0.02)
    assert graph.is_symmetric is not directed


@pytest.mark.parametrize("directed", [False, True])
def test_there_are_no_self_loops_and_no_repeated_edges(directed: bool) -> None:
    graph = csbm(60, average_degree=20, directed=directed)
    assert graph.adj.diagonal().sum() == 0
    assert set(graph.adj.data) == {1.0}


def test_a_full_graph_can_be_asked_for() -> None:
    graph = csbm(10, 2, average_degree=4, homophily=1.0)
    assert graph.num_edges == 2 * 5 * 4
    assert homophily(graph) == 1.0


def test_every_pair_is_equally_likely() -> None:
    total = sum(csbm(6, 2, average_degree=2, homophily=0.5, seed=seed).adj.toarray() for seed in range(1500))
    assert isinstance(total, np.ndarray)
    degrees = total.sum(axis=1) / 1500
    assert degrees == pytest.approx(np.full(6, 2.0), abs=0.1)


def test_a_seed_gives_one_graph_and_another_seed_another() -> None:
    assert csbm(300, seed=3).fingerprint == csbm(300, seed=3).fingerprint
    assert csbm(300, seed=3).fingerprint != csbm(300, seed=4).fingerprint


def test_class_means_are_orthogonal_and_as_long_as_the_signal() -> None:
    graph = csbm(60_000, 3, num_features=5, average_degree=0, feature_signal=2.0)
    assert isinstance(graph.x, torch.Tensor)
    means = torch.stack([graph.x[graph.y == label].double().mean(dim=0) for label in range(3)])
    assert means @ means.T == pytest.approx(4.0 * np.eye(3), abs=0.1)
    assert graph.x[graph.y == 0].std(dim=0) == pytest.approx(np.ones(5), abs=0.03)


def test_classes_are_of_equal_size_up_to_one_node() -> None:
    assert sorted(csbm(100, 3).y.bincount().tolist()) == [33, 33, 34]


def test_more_classes_than_features_are_possible() -> None:
    assert csbm(100, 8, num_features=3).num_features == 3


def test_a_large_graph_takes_memory_linear_in_its_edges() -> None:
    graph = csbm(100_000, average_degree=10)
    assert graph.num_edges == 1_000_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, r"csbm: num_classes must be at least 2, got 1\."),
        ({"num_nodes": 3}, r"csbm: num_nodes must be at least 2 per class, that is 4, got 3\."),
        ({"num_nodes": 10.5}, r"csbm: num_nodes must be a whole number, got 10\.5\."),
        ({"num_features": 0}, r"csbm: num_features must be at least 1, got 0\."),
        ({"average_degree": -1}, r"csbm: average_degree must not be negative, got -1\."),
        (
            {"average_degree": 700},
            r"csbm: average_degree asks for \d+ edges within classes, but only 249500",
        ),
        ({"homophily": 1.5}, r"csbm: homophily must be in \[0, 1\], got 1\.5\."),
        ({"homophily": float("nan")}, r"csbm: homophily must be a finite number, got nan\."),
        ({"feature_signal": -0.1}, r"csbm: feature_signal must not be negative, got -0\.1\."),
        ({"seed": -1}, r"csbm: seed must not be negative, got -1\."),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        csbm(**arguments)


def test_load_passes_options_on_and_refuses_unknown_ones() -> None:
    graph, (split,) = load("csbm", seed=2, num_nodes=50, homophily=0.3, average_degree=4)
    assert graph.fingerprint == csbm(50, homophily=0.3, average_degree=4, seed=2).fingerprint
    assert split.name == "random/2"
    with pytest.raises(InputError, match=r"Unknown option of csbm 'homophyly'\. Did you mean 'homophily'\?"):
        load("csbm", homophyly=0.3)
    with pytest.raises(InputError, match="num_nodes: only csbm and tables take options, not 'digits'"):
        load("digits", num_nodes=5)
