"""Rows as scikit-learn hands them over: their features, sparse or dense, the edges between them, and their labels."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array, check_random_state
from torch import Tensor

from adagpr.errors import InputError
from adagpr.seeding import stream

FLOATS = [np.float64, np.float32]

Rows: TypeAlias = Tensor | sp.csr_array


def read_adjacency(given: Any, num_nodes: int) -> sp.csr_array:
    """The edges between ``num_nodes`` rows as a matrix without repeated or zero entries."""
    adj = sp.csr_array(check_array(given, accept_sparse="csr", dtype=FLOATS, input_name="adjacency"))
    if adj.shape != (num_nodes, num_nodes):
        raise InputError(
            f"AdaGPRClassifier: adjacency must be {num_nodes} x {num_nodes} for as many nodes, got "
            f"{adj.shape[0]} x {adj.shape[1]}. To cross-validate, give the whole graph to the constructor."
        )
    adj = adj.copy()
    adj.sum_duplicates()
    adj.eliminate_zeros()
    return adj


def nearest(x: Rows, count: int, others: Rows | None = None) -> sp.csr_array:
    """A matrix with a 1 at the ``count`` rows of ``x`` that are nearest to each row of ``others``, or of ``x`` itself.

    There are fewer where ``x`` has fewer; a row is not its own neighbour.
    """
    num_nodes = x.shape[0]
    search = NearestNeighbors(n_neighbors=min(count, num_nodes - (others is None))).fit(points(x))
    targets = search.kneighbors(None if others is None else points(others), return_distance=False)
    starts = np.arange(0, targets.size + 1, targets.shape[1])
    return sp.csr_array((np.ones(targets.size), targets.ravel(), starts), shape=(len(targets), num_nodes))


def attached(adj: sp.csr_array, reads: sp.csr_array) -> sp.csr_array:
    """``adj`` with further nodes, which read its nodes and which none of its nodes read."""
    num_new, num_nodes = reads.shape
    nobody = sp.csr_array((num_nodes + num_new, num_new))
    return sp.csr_array(sp.hstack([sp.vstack([adj, reads]), nobody], format="csr"))


def like(model: Rows, x: Rows) -> Rows:
    """Features in the form of others: sparse or dense."""
    if isinstance(model, sp.csr_array):
        return x if isinstance(x, sp.csr_array) else sp.csr_array(x.numpy())
    return torch.from_numpy(x.toarray()) if isinstance(x, sp.csr_array) else x


def stack(x: Rows, below: Rows) -> Rows:
    """Features with others below them."""
    return sp.csr_array(sp.vstack([x, below])) if isinstance(x, sp.csr_array) else torch.cat([x, below])


def points(x: Rows) -> Any:
    """Features as scikit-learn takes them."""
    return x if isinstance(x, sp.csr_array) else x.numpy()


def keys(x: Rows) -> list[bytes]:
    """A key for each row, made of its values; the same for sparse and dense features."""
    rows = sp.csr_array(points(x))
    rows.sort_indices()
    cuts = rows.indptr
    columns = rows.indices.astype(np.int64)
    return [columns[start:end].tobytes() + rows.data[start:end].tobytes() for start, end in pairwise(cuts)]


def is_known(labels: np.ndarray, unlabelled: Any) -> np.ndarray:
    """Which rows have a label: all, unless a value marks those without."""
    if unlabelled is None:
        return np.ones(len(labels), dtype=bool)
    return np.array([bool(item != unlabelled) for item in labels.tolist()], dtype=bool)


def seed_of(random_state: Any) -> int:
    """The seed that scikit-learn's ``random_state`` means."""
    if not isinstance(random_state, (int, np.integer)):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if random_state < 0:
        raise InputError(f"AdaGPRClassifier: random_state must be 0 or more, got {random_state}.")
    return int(random_state)


def by_node(nodes: np.ndarray, codes: np.ndarray, num_nodes: int) -> np.ndarray:
    """The label of each node from those of the rows, -1 where there is none."""
    result = np.full(num_nodes, -1, dtype=np.int64)
    result[nodes] = codes
    wrong = nodes[result[nodes] != codes]
    if len(wrong):
        raise InputError(f"AdaGPRClassifier: node {wrong[0]} is there twice, with different labels.")
    return result


def hold_out(codes: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The labelled nodes that train, and those that choose the epoch."""
    generator = stream(seed, "estimator validation")
    held = np.zeros(len(codes), dtype=bool)
    for code in range(codes.max() + 1):
        members = generator.permutation(np.flatnonzero(codes == code))
        count = len(members)
        size = 0 if count < 3 else min(max(1, math.floor(fraction * count + 0.5)), count - 1)
        held[members[:size]] = True
    return np.flatnonzero((codes >= 0) & ~held), np.flatnonzero(held)
