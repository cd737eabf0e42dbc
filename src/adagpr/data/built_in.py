r"""Graphs that need no file: the contextual stochastic block model, and scikit-learn's handwritten digits.

In the block model classes are of equal size, up to one node. An edge joins two nodes of one class with probability
``homophily`` and two nodes of different classes otherwise, all such pairs being alike. A node of class :math:`c` has
the features

.. math:: x_i = s\, u_c + \varepsilon_i, \qquad \varepsilon_i \sim N(0, I),

with :math:`s` the ``feature_signal`` and :math:`u_c` unit vectors, orthogonal as long as there are no more classes than
features.

Of the 1,797 digits each is joined to its ten nearest images in pixel space, and the edges are made to go both ways.
Pixels are whole numbers from 0 to 16, so distances are compared exactly and ties go to the smaller position: the graph
is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch

from adagpr.errors import InputError
from adagpr.graph import Graph, edges_to_csr
from adagpr.seeding import stream

NUM_NEIGHBOURS = 10


def csbm(
    num_nodes: int = 1000,
    num_classes: int = 2,
    num_features: int = 16,
    average_degree: float = 10.0,
    homophily: float = 0.8,
    feature_signal: float = 1.0,
    directed: bool = False,
    seed: int = 0,
) -> Graph:
    """Draws a graph from the contextual stochastic block model, without self loops or repeated edges.

    Time and memory are linear in nodes times features plus edges (times the logarithm of the edges, for sorting).

    Args:
        num_nodes: Number of nodes, at least 2 per class.
        num_classes: Number of classes, at least 2.
        num_features: Number of feature columns.
        average_degree: Mean number of neighbours; of outgoing edges if ``directed``.
        homophily: Expected share of edges within a class: 1 / ``num_classes`` says nothing about classes, less is
            heterophily.
        feature_signal: Distance of a class mean from zero in standard deviations of the noise. The default leaves
            features useful but not sufficient.
        directed: Whether edges are directed.
        seed: Chooses the graph; not negative.

    Raises:
        InputError: An argument is out of range, or there are fewer pairs of nodes than edges asked for.

    Example:
        >>> graph = csbm(num_nodes=200, average_degree=4)
        >>> graph.num_nodes, graph.num_edges
        (200, 800)
    """
    _check(
        {"num_nodes": num_nodes, "num_classes": num_classes, "num_features": num_features, "seed": seed},
        {"average_degree": average_degree, "homophily": homophily, "feature_signal": feature_signal},
    )
    y = stream(seed, "csbm classes").permutation(np.arange(num_nodes) % num_classes)
    x = _features(y, num_classes, num_features, feature_signal, stream(seed, "csbm features"))
    keys = _edges(y, average_degree, homophily, directed, stream(seed, "csbm edges"))
    sources, targets = keys // num_nodes, keys % num_nodes
    if not directed:
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
    adj = sp.csr_array((np.ones(len(sources)), (sources, targets)), shape=(num_nodes, num_nodes))
    names = tuple(str(label) for label in range(num_classes))
    return Graph(torch.from_numpy(x), adj, torch.from_numpy(y), names, name="csbm")


def _check(whole: dict[str, int], real: dict[str, float]) -> None:
    """Raises an `InputError` for the first argument out of range."""
    for name, value in whole.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise InputError(f"csbm: {name} must be a whole number, got {value!r}.")
    for name, number in real.items():
        if isinstance(number, bool) or not isinstance(number, (int, float, np.number)) or not math.isfinite(number):
            raise InputError(f"csbm: {name} must be a finite number, got {number!r}.")
    num_nodes, num_classes, num_features, seed = whole.values()
    average_degree, homophily, feature_signal = real.values()
    rules: tuple[tuple[bool, str, float], ...] = (
        (num_classes >= 2, "num_classes must be at least 2", num_classes),
        (num_nodes >= 2 * num_classes, f"num_nodes must be at least 2 per class, that is {2 * num_classes}", num_nodes),
        (num_features >= 1, "num_features must be at least 1", num_features),
        (average_degree >= 0, "average_degree must not be negative", average_degree),
        (0 <= homophily <= 1, "homophily must be in [0, 1]", homophily),
        (feature_signal >= 0, "feature_signal must not be negative", feature_signal),
        (seed >= 0, "seed must not be negative", seed),
    )
    for holds, rule, got in rules:
        if not holds:
            raise InputError(f"csbm: {rule}, got {got}.")


def _features(
    y: np.ndarray, num_classes: int, num_features: int, feature_signal: float, generator: np.random.Generator
) -> np.ndarray:
    """Gaussian features around the class means."""
    means = generator.standard_normal((num_features, num_classes))
    if num_classes <= num_features:
        means = np.linalg.qr(means)[0]
    means = (feature_signal * means / np.linalg.norm(means, axis=0)).T.astype(np.float32)
    x = generator.standard_normal((len(y), num_features), dtype=np.float32)
    x += means[y]
    return x


def _edges(
    y: np.ndarray, average_degree: float, homophily: float, directed: bool, generator: np.random.Generator
) -> np.ndarray:
    """Distinct edges as ``source * num_nodes + target``; of an undirected one the smaller end is the source."""
    num_nodes = len(y)
    by_class = np.argsort(y, kind="stable")
    sizes = np.bincount(y)
    starts = np.cumsum(sizes) - sizes
    wanted = round(num_nodes * average_degree / (1 if directed else 2))
    num_within = int(generator.binomial(wanted, homophily))
    same = int((sizes * (sizes - 1)).sum()) // (1 if directed else 2)
    other = num_nodes * (num_nodes - 1) // (1 if directed else 2) - same

    def draw(count: int, is_within: bool) -> np.ndarray:
        sources = generator.integers(num_nodes, size=count)
        start, size = starts[y[sources]], sizes[y[sources]]
        if is_within:
            positions = start + generator.integers(size)
        else:
            positions = generator.integers(num_nodes - size)
            positions += np.where(positions >= start, size, 0)
        targets = by_class[positions]
        sources, targets = sources[sources != targets], targets[sources != targets]
        if not directed:
            sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
        return np.asarray(sources * num_nodes + targets)

    within = _collect(partial(draw, is_within=True), num_within, same, "within", generator)
    between = _collect(partial(draw, is_within=False), wanted - num_within, other, "between", generator)
    return np.concatenate([within, between])


def _collect(
    draw: Callable[[int], np.ndarray], wanted: int, capacity: int, where: str, generator: np.random.Generator
) -> np.ndarray:
    """Draws until there are ``wanted`` distinct keys of the ``capacity`` that exist."""
    if wanted > capacity:
        raise InputError(
            f"csbm: average_degree asks for {wanted} edges {where} classes, but only {capacity} such pairs of nodes "
            "exist. Ask for a smaller average_degree or more nodes."
        )
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < wanted:
        missing = wanted - len(keys)
        # Sorted, each once; several times faster than ``numpy.unique`` on millions of keys.
        fresh = np.sort(draw(math.ceil(missing / (1 - len(keys) / capacity))))
        fresh = fresh[np.flatnonzero(np.diff(fresh, prepend=-1))]
        if len(keys):
            fresh = fresh[keys[np.searchsorted(keys, fresh).clip(max=len(keys) - 1)] != fresh]
        # Keys come sorted: cutting the surplus off the end would favour low nodes.
        kept = fresh if len(fresh) <= missing else generator.choice(fresh, missing, replace=False)
        keys = np.sort(np.concatenate([keys, kept]))
    return keys


def digits() -> Graph:
    """The graph of the digits: 64 dense features in [0, 1], ten classes."""
    from sklearn.datasets import load_digits

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
