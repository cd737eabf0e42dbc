"""Losses and accuracies that are counted part by part and added up over processes."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr.graph import SPLIT_NAMES
from adagpr.metrics import class_counts, macro_f1_of_counts
from adagpr.partitioning import Group, positions

__all__ = ["ScoreSum"]


class ScoreSum:
    """What is counted of train, val and test nodes: their losses, and of each class what `class_counts` counts."""

    def __init__(self, num_classes: int) -> None:
        self._losses = np.zeros(len(SPLIT_NAMES))
        self._counts = np.zeros((len(SPLIT_NAMES), 3, num_classes))

    def add(self, logits: Tensor, y: Tensor, role: np.ndarray) -> None:
        """Counts some nodes.

        Args:
            logits: One row a node.
            y: Their classes.
            role: What each is for; see `adagpr.partitioning.parts`.
        """
        for number, part in enumerate(SPLIT_NAMES):
            index = positions(role, part)
            self._losses[number] += F.cross_entropy(logits[index].double(), y[index], reduction="sum").item()
            self._counts[number] += class_counts(logits[index], y[index])

    def scores(self, group: Group) -> dict[str, float]:
        """Mean loss, accuracy and macro F1 of train, val and test nodes of all processes."""
        every = torch.from_numpy(np.concatenate([self._losses, self._counts.reshape(-1)]))
        losses, flat = np.split(group.sum_(every).numpy(), [len(SPLIT_NAMES)])
        scores = {}
        for part, loss, counts in zip(SPLIT_NAMES, losses, flat.reshape(self._counts.shape), strict=True):
            num_nodes = counts[2].sum()
            scores[f"{part}_loss"] = float(loss / num_nodes)
            scores[f"{part}_acc"] = float(counts[0].sum() / num_nodes)
            scores[f"{part}_macro_f1"] = macro_f1_of_counts(counts)
        return scores
