"""Balanced class weights, and the mean of the classes' F1."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from adagpr import fit
from adagpr.data.splits import random_split
from adagpr.graph import Graph, from_scipy
from adagpr.task import class_counts, macro_f1
from adagpr.training import config_digest, resolve, training_data


@pytest.fixture(scope="module")
def rare() -> Graph:
    """A graph with one class in twelve, hard to tell by its features."""
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 1 / 12).astype(int)
    adj = rng.random((600, 600)) < np.where(y[:, None] == y[None, :], 0.006, 0.003)
    return from_scipy(np.triu(adj, 1) + np.triu(adj, 1).T, rng.normal(size=(600, 6)) + 0.8 * y[:, None], y)


def test_every_class_weighs_the_same_in_the_training_loss(rare: Graph) -> None:
    split = random_split(rare.y)
    config = resolve(rare, split, "mlp", {"class_weights": "balanced"}).config
    inputs = training_data(rare, split, config, fit(rare, split, "mlp", max_epochs=1).model)
    logits = torch.randn(rare.num_nodes, 2, generator=torch.Generator().manual_seed(0))
    each = -logits.log_softmax(-1)[split.train, rare.y[split.train]]
    means = [each[rare.y[split.train] == label].mean() for label in (0, 1)]
    assert inputs.loss(logits[split.train]).item() == pytest.approx(float(torch.stack(means).mean()), rel=1e-5)


def test_balance_finds_more_of_the_rare_class(rare: Graph) -> None:
    split = random_split(rare.y)
    runs = [fit(rare, split, "mlp", max_epochs=150, class_weights=kind) for kind in ("equal", "balanced")]
    found = [sum(item == "1" for item in run.predictions["prediction"].to_pylist()) for run in runs]
    assert found[1] > 2 * found[0]


def test_equal_weights_are_the_run_without_the_key(rare: Graph) -> None:
    plain = resolve(rare, random_split(rare.y), "mlp", {}).plain
    old = {**plain, "training": {key: value for key, value in plain["training"].items() if key != "class_weights"}}
    other = resolve(rare, random_split(rare.y), "mlp", {"class_weights": "balanced"}).plain
    assert config_digest(plain) == config_digest(old) != config_digest(other)


def test_macro_f1_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        y = rng.integers(0, 4, 30)
        logits = rng.normal(size=(30, 6))
        expected = f1_score(y, logits.argmax(1), average="macro", labels=np.unique(y), zero_division=0)
        counts = class_counts(torch.from_numpy(logits), torch.from_numpy(y))
        assert macro_f1(counts) == pytest.approx(expected)
