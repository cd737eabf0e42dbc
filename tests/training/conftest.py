from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from adagpr.data import csbm
from adagpr.graph import Graph, Split


@pytest.fixture(scope="session")
def graph() -> Graph:
    return csbm(num_nodes=120, num_classes=3, num_features=10, average_degree=6.0, homophily=0.8, seed=0)


@pytest.fixture(scope="session")
def split() -> Split:
    order = torch.from_numpy(np.random.default_rng(0).permutation(120))
    return Split(order[:30], order[30:60], order[60:], "test/0")


@pytest.fixture
def options() -> dict[str, Any]:
    return {"num_layers": 2, "num_coeffs": 3, "hidden_channels": 8, "max_epochs": 12}


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands forked from the test write a checkpoint after every epoch."""
    monkeypatch.setattr(sys.modules["adagpr.training.many"], "CHECKPOINT_SECONDS", 0.0)
