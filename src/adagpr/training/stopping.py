"""When to stop, and which epoch was best. Validation decides; test nodes are never asked."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from adagpr.training.config import TrainingConfig

__all__ = ["Epoch", "Stopping"]


@dataclass(frozen=True)
class Epoch:
    """What is measured after one training step.

    Attributes:
        train_loss: Loss of the step itself, dropout on.
        train_acc: Accuracy on the training nodes, dropout off.
        val_loss: Loss on the validation nodes, dropout off, without penalties.
        val_acc: Accuracy on the validation nodes.
        penalty: What the penalties add to a loss; 0 with Adam's decay.
    """

    train_loss: float
    train_acc: float
    val_loss: float
    val_acc: float
    penalty: float

    @property
    def val_objective(self) -> float:
        """Validation loss with the penalties."""
        return self.val_loss + self.penalty


@dataclass
class Stopping:
    """Keeps the best epoch and counts the epochs without progress.

    Attributes:
        best_epoch: The epoch whose parameters count, from 1; 0 before the first.
        waited: Epochs since the last progress.
        lowest: Lowest value seen of everything that may count as progress; accuracies are held negative.
    """

    best_epoch: int = 0
    waited: int = 0
    lowest: dict[str, float] = field(default_factory=dict)

    def update(self, number: int, epoch: Epoch, config: TrainingConfig) -> bool:
        """Takes in one epoch and tells whether it is the best so far."""
        measured = {"val_loss": epoch.val_loss, "val_objective": epoch.val_objective, "val_acc": -epoch.val_acc}
        watched = {config.monitor, "val_loss", "val_acc"} if config.progress == "validation" else {config.monitor}
        better = {name for name in watched if measured[name] < self.lowest.get(name, math.inf)}
        self.lowest |= {name: measured[name] for name in better}
        if config.monitor in better:
            self.best_epoch = number
        self.waited = 0 if better else self.waited + 1
        return config.monitor in better

    def is_over(self, config: TrainingConfig) -> bool:
        """Whether patience has run out."""
        return config.patience is not None and self.waited >= config.patience

    def state(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return asdict(self)
