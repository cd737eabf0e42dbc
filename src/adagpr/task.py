"""The task that a model learns: its loss, its scores, and how logits become answers.

Classification is the only task so far. Training, tuning and reports ask it for everything that depends on the kind of
answer, so that another kind is another class here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr.metrics import accuracy, macro_f1, temperature

# How older records name the scores of a split: `<split>_loss`, `<split>_acc` and `<split>_macro_f1`.
_SUFFIXES = {"loss": "loss", "accuracy": "acc", "macro_f1": "macro_f1"}


@dataclass(frozen=True, eq=False)
class Classification:
    """One class per node."""

    class_weights: Tensor | None = None  # how much a node of each class counts in the loss; the same unless given

    # The score by which runs are compared.
    primary = "accuracy"

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Cross entropy of logits, one row per node, with their classes."""
        return F.cross_entropy(logits, y, self.class_weights, reduction=reduction)

    def scores(self, logits: Tensor, y: Tensor) -> dict[str, float]:
        """Every score of a set of nodes by its name; the loss is that without class weights."""
        return {
            "loss": F.cross_entropy(logits, y).item(),
            "accuracy": accuracy(logits, y),
            "macro_f1": macro_f1(logits, y),
        }

    def calibrate(self, logits: Tensor, y: Tensor) -> float:
        """The temperature that makes the probabilities of validation nodes fit best; 1 without such nodes."""
        return temperature(logits.numpy(), y.numpy()) if len(y) else 1.0

    def probabilities(self, logits: Tensor, temperature: float) -> Tensor:
        """Calibrated probability of each class in float64, one row per node."""
        return (logits.double() / temperature).softmax(-1)


def balanced_weights(counts: Tensor) -> Tensor:
    """Weights by which the ``counts`` of training nodes of each class weigh the same; a class without nodes has 0."""
    present = counts > 0
    return torch.where(present, counts.sum() / (counts.clamp(min=1).float() * present.sum()), 0.0)


def flat_scores(result: dict[str, Any]) -> dict[str, float]:
    """The scores of a record's result by names such as ``test_acc``, ``val_loss`` and ``test_macro_f1``."""
    scores = scores_of_result(result).items()
    return {f"{split}_{_SUFFIXES[name]}": value for split, each in scores for name, value in each.items()}


def scores_of_result(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The scores of a record's result by split and name, also of records written before ``scores`` was a key."""
    if "scores" in result:
        scores: dict[str, dict[str, float]] = result["scores"]
        return scores
    found: dict[str, dict[str, float]] = {}
    for split in ("train", "val", "test"):
        for name, suffix in _SUFFIXES.items():
            if f"{split}_{suffix}" in result:
                found.setdefault(split, {})[name] = result[f"{split}_{suffix}"]
    return found
