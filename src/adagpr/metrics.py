"""How good predictions are."""

from __future__ import annotations

from torch import Tensor

__all__ = ["accuracy"]


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Share of rows whose largest logit is at the right class."""
    return int((logits.argmax(-1) == y).sum()) / len(y)
