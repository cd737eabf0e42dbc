from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from adagpr.data import load
from adagpr.data.built_in import nearest_neighbours


def test_each_image_is_joined_to_its_ten_nearest() -> None:
    points = np.asarray(load_digits().data)
    node = 17
    distances = ((points - points[node]) ** 2).sum(axis=1)
    order = [int(other) for other in np.argsort(distances, kind="stable") if other != node][:10]
    assert sorted(order) == nearest_neighbours(points, 10)[node].tolist()
    graph, _ = load("digits")
    assert all(graph.adj[node, other] == 1 and graph.adj[other, node] == 1 for other in order)


def test_ties_go_to_the_smaller_position() -> None:
    points = np.array([[0.0], [1.0], [1.0], [1.0]])
    assert nearest_neighbours(points, 2).tolist() == [[1, 2], [2, 3], [1, 3], [1, 2]]


def test_features_are_pixels_between_zero_and_one() -> None:
    graph, _ = load("digits")
    assert isinstance(graph.x, torch.Tensor)
    assert (float(graph.x.min()), float(graph.x.max())) == (0.0, 1.0)
    assert graph.class_names == tuple("0123456789")


def test_the_split_has_five_labels_a_class_and_is_always_the_same() -> None:
    graph, (split,) = load("digits")
    _, (again,) = load("digits", "labelled-5", seed=9)
    assert graph.y[split.train].bincount().tolist() == [5] * 10
    assert (len(split.val), len(split.test)) == (500, 1247)
    assert torch.equal(split.train, again.train)
    assert torch.equal(split.val, again.val)
