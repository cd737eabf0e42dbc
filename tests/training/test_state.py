from __future__ import annotations

import math

import pytest

from adagpr.training import Epoch, Stopping, TrainingConfig


def run(config: TrainingConfig, rows: list[tuple[float, float, float]]) -> tuple[int, int]:
    """Best epoch and number of epochs for rows of validation loss, accuracy and penalty."""
    stopping = Stopping()
    for number, (loss, acc, penalty) in enumerate(rows, 1):
        stopping.update(number, Epoch(1.0, 1.0, loss, acc, penalty, val_metric=1 - acc), config)
        if stopping.is_over(config):
            return stopping.best_epoch, number
    return stopping.best_epoch, len(rows)


FALLING_THEN_FLAT = [(1.0, 0.5, 0.0), (0.9, 0.5, 0.0), (0.9, 0.5, 0.0), (0.95, 0.5, 0.0), (0.9, 0.5, 0.0)]


def test_patience_counts_epochs_without_a_better_loss() -> None:
    assert run(TrainingConfig(patience=3, progress="monitor"), FALLING_THEN_FLAT) == (2, 5)
    assert run(TrainingConfig(patience=2, progress="monitor"), FALLING_THEN_FLAT) == (2, 4)


def test_a_better_accuracy_keeps_training_alive_only_where_it_counts_as_progress() -> None:
    rows = [(1.0, 0.5, 0.0), (1.1, 0.5, 0.0), (1.2, 0.6, 0.0), (1.3, 0.6, 0.0), (0.8, 0.6, 0.0)]
    assert run(TrainingConfig(patience=2, progress="monitor"), rows) == (1, 3)
    assert run(TrainingConfig(patience=2, progress="validation"), rows) == (5, 5)


@pytest.mark.parametrize(
    ("monitor", "best"), [("val_loss", 1), ("val_acc", 2), ("val_objective", 3), ("val_metric", 1)]
)
def test_the_monitor_chooses_the_best_epoch(monitor: str, best: int) -> None:
    rows = [(1.0, 0.5, 9.0), (1.5, 0.9, 9.0), (1.2, 0.6, 0.0)]
    config = TrainingConfig.model_validate({"monitor": monitor})
    assert run(config, rows)[0] == best


def test_without_patience_training_goes_to_the_end() -> None:
    assert run(TrainingConfig(patience=None), [(1.0, 0.5, 0.0)] * 1000) == (1, 1000)


def test_the_rule_continues_from_its_saved_state() -> None:
    config = TrainingConfig(patience=3, progress="validation")
    whole, first = Stopping(), Stopping()
    for number in range(1, 6):
        epoch = Epoch(1.0, 1.0, math.sin(number), 0.5, 0.0)
        whole.update(number, epoch, config)
        first = Stopping(**first.__dict__)
        first.update(number, epoch, config)
    assert first == whole
