r"""R-MAT graphs (Chakrabarti, Zhan and Faloutsos, 2004): few nodes with very many neighbours, as in the web.

An edge is drawn by halving the adjacency matrix again and again: at every level it falls into the upper left quarter
with probability 0.57, upper right or lower left with 0.19 each, and lower right with 0.05, the values of the Graph 500
benchmark. The nodes are shuffled at the end, so that neighbours are not close in memory by construction. About half of
the nodes of a large graph have no neighbour at all; that, too, is as in Graph 500.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
import torch

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.seeding import stream

PROBABILITIES = (0.57, 0.19, 0.19, 0.05)

_BLOCK = 1 << 22


def rmat(
    num_nodes: int, average_degree: float = 10.0, seed: int = 0, num_features: int = 64, num_classes: int = 8
) -> Graph:
    """Draws an undirected R-MAT graph without self loops or repeated edges; every edge is stored both ways.

    Time is linear in the edges times the logarithm of the nodes: a million nodes and ten million stored edges take
    some seconds. Features are Gaussian and labels random: the graph is there to be timed, not to be learned.

    Example:
        >>> graph = rmat(1000, average_degree=6)
        >>> graph.num_nodes, graph.num_edges
        (1000, 6000)
    """
    rules: tuple[tuple[bool, str, float], ...] = (
        (2 <= num_nodes < 2**31, "num_nodes must be at least 2 and below 2^31", num_nodes),
        (0 <= average_degree < math.inf, "average_degree must not be negative", average_degree),
        (seed >= 0, "seed must not be negative", seed),
        (num_features >= 1, "num_features must be at least 1", num_features),
        (num_classes >= 2, "num_classes must be at least 2", num_classes),
    )
    for holds, rule, got in rules:
        if not holds:
            raise InputError(f"rmat: {rule}, got {got}.")
    keys = _edges(num_nodes, round(num_nodes * average_degree / 2), stream(seed, "rmat edges"))
    place = stream(seed, "rmat nodes").permutation(num_nodes).astype(np.int32)
    one, other = place[keys // num_nodes], place[keys % num_nodes]
    sources, targets = np.concatenate([one, other]), np.concatenate([other, one])
    ones = np.ones(len(sources), dtype=np.float32)
    adj = sp.csr_array((ones, (sources, targets)), shape=(num_nodes, num_nodes))
    x = stream(seed, "rmat features").standard_normal((num_nodes, num_features), dtype=np.float32)
    y = stream(seed, "rmat classes").integers(num_classes, size=num_nodes)
    names = tuple(str(label) for label in range(num_classes))
    return Graph(torch.from_numpy(x), adj, torch.from_numpy(y), names, name="rmat")


def _edges(num_nodes: int, wanted: int, generator: np.random.Generator) -> np.ndarray:
    """Distinct edges as ``smaller * num_nodes + larger``, sorted."""
    keys = np.empty(0, dtype=np.int64)
    num_passes = 50 + 4 * (wanted // _BLOCK)
    for _ in range(num_passes):
        missing = wanted - len(keys)
        if missing == 0:
            return keys
        # Some draws are self loops, repeated or beyond the last node; a third more saves a pass.
        count = min(_BLOCK, missing + missing // 3 + 16)
        fresh = np.setdiff1d(_draw(num_nodes, count, generator), keys, assume_unique=True)
        # They come sorted: cutting the surplus off the end would favour low nodes.
        kept = fresh if len(fresh) <= missing else generator.choice(fresh, missing, replace=False)
        keys = np.sort(np.concatenate([keys, kept]))
    raise InputError(
        f"rmat: average_degree asks for {wanted} edges, but after {num_passes} passes only {len(keys)} different ones "
        "were found. Ask for a smaller average_degree or more nodes."
    )


def _draw(num_nodes: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Draws ``count`` edges and returns the distinct valid ones, sorted."""
    sources, targets = np.zeros((2, count), dtype=np.int64)
    descend(sources, targets, math.ceil(math.log2(num_nodes)), generator)
    valid = (sources != targets) & (np.maximum(sources, targets) < num_nodes)
    sources, targets = sources[valid], targets[valid]
    return np.unique(np.minimum(sources, targets) * num_nodes + np.maximum(sources, targets))


def descend(sources: np.ndarray, targets: np.ndarray, num_levels: int, generator: np.random.Generator) -> None:
    """Takes edges so many levels down from the cell that each is in: places are doubled, and one bit is drawn."""
    top_left, top_right, bottom_left, _ = PROBABILITIES
    for _ in range(num_levels):
        chance = generator.random(len(sources), dtype=np.float32)
        is_bottom = chance >= top_left + top_right
        # What is left of the chance within its half decides on the column.
        is_right = np.where(is_bottom, chance >= top_left + top_right + bottom_left, chance >= top_left)
        sources += sources + is_bottom
        targets += targets + is_right
