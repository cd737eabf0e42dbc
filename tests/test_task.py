from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adagpr.data import load
from adagpr.errors import InputError
from adagpr.experiments import experiment
from adagpr.graph import Graph, Split
from adagpr.task import accuracy, calibration, temperature
from adagpr.training import Run, fit


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def random_logits(num_nodes: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are three times as large as the labels warrant."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(num_nodes, 4))
    y = np.array([rng.choice(4, p=row) for row in softmax(logits)])
    return 3 * logits, y


def objective(log_t: float, logits: np.ndarray, y: np.ndarray) -> float:
    right = softmax(logits / np.exp(log_t))[np.arange(len(y)), y]
    return float(-np.log(right).sum() + log_t**2 / 2)


def slope(log_t: float, logits: np.ndarray, y: np.ndarray, step: float = 1e-4) -> float:
    return (objective(log_t + step, logits, y) - objective(log_t - step, logits, y)) / (2 * step)


def test_accuracy_is_the_share_of_right_rows() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [5.0, 4.0], [1.0, 3.0]])
    assert accuracy(logits, torch.tensor([0, 1, 1, 1])) == 0.75


@pytest.mark.parametrize("seed", range(3))
def test_the_temperature_is_the_lowest_point_of_its_formula(seed: int) -> None:
    logits, y = random_logits(seed=seed)
    found = temperature(logits, y)
    grid = np.linspace(np.log(0.05), np.log(20), 2001)
    best = min(grid, key=lambda log_t: objective(log_t, logits, y))
    assert np.log(found) == pytest.approx(best, abs=grid[1] - grid[0])
    assert slope(np.log(found), logits, y) == pytest.approx(0, abs=1e-3)


def test_logits_three_times_too_large_are_divided_by_about_three() -> None:
    assert temperature(*random_logits(num_nodes=5000)) == pytest.approx(3, rel=0.1)


def test_the_order_of_the_classes_stays() -> None:
    logits, y = random_logits()
    calibrated = softmax(logits / temperature(logits, y))
    assert np.array_equal(np.argsort(calibrated, axis=1), np.argsort(logits, axis=1))


def test_a_few_nodes_that_are_all_right_make_no_certainty() -> None:
    logits, y = np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([0, 1])
    found = temperature(logits, y)
    assert slope(np.log(found), logits, y) == pytest.approx(0, abs=1e-3)
    assert 0.7 < found < 1
    assert temperature(np.repeat(logits, 1000, axis=0), np.repeat(y, 1000)) < 0.3


def test_logits_that_say_nothing_keep_the_temperature_at_one() -> None:
    assert temperature(np.zeros((5, 3)), np.zeros(5, dtype=int)) == pytest.approx(1, abs=1e-4)


def test_large_logits_stay_finite() -> None:
    assert 0.05 <= temperature([[1e30, 0.0], [0.0, 1e30]], [0, 1]) <= 20


def calibration_error(shares: np.ndarray, y: np.ndarray, num_bins: int) -> float:
    """The textbook's double loop, bins open on the left."""
    total = 0.0
    for number in range(num_bins):
        inside = [i for i, row in enumerate(shares) if number / num_bins < max(row) <= (number + 1) / num_bins]
        if inside:
            confidence = np.mean([max(shares[i]) for i in inside])
            total += len(inside) * abs(confidence - np.mean([np.argmax(shares[i]) == y[i] for i in inside]))
    return total / len(y)


@pytest.mark.parametrize("num_bins", [1, 7, 15])
def test_the_calibration_error_is_that_of_the_textbook(num_bins: int) -> None:
    logits, y = random_logits()
    shares = softmax(logits)
    found = calibration(shares, y, num_bins)
    assert found.error == pytest.approx(calibration_error(shares, y, num_bins), abs=1e-12)
    assert sum(found.counts) == len(y)
    assert len(found.counts) == len(found.confidence) == len(found.accuracy) == num_bins


def test_a_bin_holds_its_upper_end_and_an_empty_one_is_zero() -> None:
    found = calibration([[0.5, 0.5], [1.0, 0.0]], [0, 0], num_bins=2)
    assert (found.counts, found.confidence, found.accuracy) == ((1, 1), (0.5, 1.0), (1.0, 1.0))
    assert calibration([[1.0, 0.0]], [0], num_bins=3).counts == (0, 0, 1)
    assert calibration([[1.0, 0.0]], [0], num_bins=3).confidence == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("measure", [temperature, calibration])
@pytest.mark.parametrize(
    ("rows", "y"), [(np.zeros((0, 2)), np.zeros(0, dtype=int)), (np.zeros((3, 2)), [0, 1]), (np.zeros(3), [0, 1, 1])]
)
def test_no_nodes_and_shapes_that_do_not_fit_are_refused(measure: Any, rows: np.ndarray, y: Any) -> None:
    with pytest.raises(InputError, match=f"{measure.__name__}: .* do not fit"):
        measure(rows, y)


def shares_of(run: Run, graph: Graph, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of the test nodes as they are kept, and as they were before the temperature."""
    kept = np.stack([run.predictions[f"p_{name}"].to_numpy() for name in graph.class_names], axis=1)
    kept = kept[split.test.numpy()].astype(np.float64)
    return kept, softmax(run.temperature * np.log(np.maximum(kept, 1e-300)))


def test_the_temperature_at_least_halves_the_calibration_error_on_cora(benchmark_root: Path) -> None:
    # The paper's settings, whose strong decay makes a network far less sure than it could be.
    graph, (split,) = load("cora", "public", data_root=benchmark_root)
    two_layers = experiment("table2_adagpr_cora").cells()[0].options
    run = fit(graph, split, **{**two_layers, "max_epochs": 200})
    kept, before = shares_of(run, graph, split)
    y = graph.y[split.test].numpy()
    assert calibration(kept, y).error < calibration(before, y).error / 2
    assert (kept.argmax(1) == y).mean() == (before.argmax(1) == y).mean() == run.test_acc
