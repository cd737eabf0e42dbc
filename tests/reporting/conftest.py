"""Runs that the tests of pages share, trained once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import adagpr
from adagpr.data.splits import random_split
from adagpr.graph import Graph, Split, from_scipy
from adagpr.training import fit_all

HOSTILE = '<script>alert("class")</script>'


@pytest.fixture(scope="session")
def hostile() -> tuple[Graph, Split]:
    """A graph with a class and a node whose names are code."""
    rng = np.random.default_rng(0)
    adj = sp.random_array((60, 60), density=0.1, rng=rng, format="csr")
    ids = [*(f"node {number}" for number in range(59)), "<img src=x onerror=alert(1)>"]
    graph = from_scipy(
        sp.csr_array(adj.maximum(adj.T)),
        rng.normal(size=(60, 8)),
        np.arange(60) % 3,
        class_names=("plain", HOSTILE, "a, \"quoted\" & 'odd' name"),
        node_ids=ids,
        name="<b>bold</b>",
    )
    return graph, random_split(graph.y, 0)


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory, hostile: tuple[Graph, Split]) -> Path:
    """A run on that graph."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    adagpr.fit(*hostile, num_layers=3, num_coeffs=3, hidden_channels=8, max_epochs=12, out=folder)
    return folder


@pytest.fixture(scope="session")
def signed_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Graph, Split]:
    """A run with signed hops on a directed graph, its graph and its split."""
    rng = np.random.default_rng(0)
    graph = from_scipy(
        sp.random_array((60, 60), density=0.1, rng=rng, format="csr"), rng.normal(size=(60, 8)), np.arange(60) % 3
    )
    split, folder = random_split(graph.y, 0), tmp_path_factory.mktemp("signed") / "run"
    options: dict[str, Any] = {"num_layers": 2, "hidden_channels": 8, "norm": "batch", "max_epochs": 12, "lr": 0.05}
    adagpr.fit(graph, split, "adagpr-signed", out=folder, **options)
    return folder, graph, split


@pytest.fixture(scope="session")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Three splits each of AdaGPR and of a network without a graph."""
    folder = tmp_path_factory.mktemp("two")
    graph, _ = adagpr.load("csbm", num_nodes=120)
    splits = [adagpr.load("csbm", f"random/{number}", num_nodes=120)[1][0] for number in range(3)]
    for name in ("adagpr", "mlp"):
        fit_all(graph, splits, name, out=folder / name, max_epochs=15, num_workers=1)
    return folder / "adagpr", folder / "mlp"
