"""Which rows have a label, which node it belongs to, and which labelled nodes are held out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from adagpr.errors import InputError
from adagpr.seeding import stream

__all__ = ["by_node", "hold_out", "is_known", "seed_of"]


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
