"""The embedded default: scikit-learn's 1,797 handwritten digits as a nearest-neighbour graph, with few labels.

Each image is joined to its ten nearest images in pixel space, and the edges are made to go both ways. Pixels are whole
numbers from 0 to 16, so distances are compared exactly and ties go to the smaller position: the graph is the same on
every machine.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from adagpr.graph import Graph, edges_to_csr

NUM_NEIGHBOURS = 10


def digits() -> Graph:
    """The graph of the digits: 64 dense features in [0, 1], ten classes.

    Example:
        >>> digits().num_nodes
        1797
    """
    bunch = load_digits()
    pixels = np.asarray(bunch.data, dtype=np.float64)
    targets = nearest_neighbours(pixels, NUM_NEIGHBOURS).ravel()
    sources = np.repeat(np.arange(len(pixels)), NUM_NEIGHBOURS)
    adj = edges_to_csr(np.concatenate([sources, targets]), np.concatenate([targets, sources]), len(pixels))
    y = torch.from_numpy(np.asarray(bunch.target, dtype=np.int64))
    names = tuple(str(label) for label in range(10))
    return Graph(torch.from_numpy((pixels / 16).astype(np.float32)), adj, y, names, name="digits")


def nearest_neighbours(points: np.ndarray, num_neighbours: int) -> np.ndarray:
    """Positions of each point's nearest other points; ``points`` hold small whole numbers, and ties go by position.

    Takes memory in the square of the number of points.
    """
    norms = (points**2).sum(axis=1)
    distances = norms[:, None] + norms[None, :] - 2 * points @ points.T
    np.fill_diagonal(distances, np.inf)
    # Distance and position in one number that float64 holds exactly, so that no two of a row are equal.
    keys = distances * len(points) + np.arange(len(points))
    return np.sort(np.argpartition(keys, num_neighbours - 1, axis=1)[:, :num_neighbours], axis=1)
