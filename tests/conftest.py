"""What the tests share: small graphs, and the benchmark files where they are at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, settings

from adagpr.graph import Graph, from_scipy
from tests.processes import Gate

REQUIRE_ALL = os.environ.get("ADAGPR_REQUIRE_ALL") == "1"
MIRROR = os.environ.get("ADAGPR_DATA", "")

# Fixtures that need more than Python: whether it is here, and what to say where it is not.
NEEDS = {
    "benchmark_root": (bool(MIRROR), "the benchmark files (set ADAGPR_DATA)"),
    "postgres": (
        find_spec("psycopg") is not None and bool(which("postgres") or [*Path("/usr/lib/postgresql").glob("*/bin")]),
        "a PostgreSQL server (Debian's postgresql) and psycopg",
    ),
    "chromium": (
        find_spec("playwright") is not None and which("chromium") is not None,
        "a browser (Debian's chromium) and playwright",
    ),
    "namespaces": (
        sys.platform == "linux" and os.geteuid() == 0 and which("ip") is not None,
        "network namespaces (Debian's iproute2, and root on Linux)",
    ),
    "tiny_disk": (sys.platform == "linux" and os.geteuid() == 0, "mounting a small disk (needs root on Linux)"),
}

torch.set_num_threads(1)
# Whether an example is found or tried quickly says nothing about the code.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what needs something that is not here; with ADAGPR_REQUIRE_ALL=1 that is an error."""
    for fixture, (is_here, what) in NEEDS.items():
        needing = [item for item in items if fixture in getattr(item, "fixturenames", ())]
        if is_here or not needing:
            continue
        if REQUIRE_ALL:
            raise pytest.UsageError(f"ADAGPR_REQUIRE_ALL=1, but this is missing: {what}.")
        items[:] = [item for item in items if item not in needing]
        config.hook.pytest_deselected(items=needing)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says in one line what was left out."""
    missing = [what for is_here, what in NEEDS.values() if not is_here]
    if missing:
        terminalreporter.write_line(f"Left out: tests that need {' and '.join(missing)}.")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps the tests, and what they share, out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Where processes wait for the test."""
    with Gate() as gate:
        yield gate


@pytest.fixture(scope="session")
def benchmark_root() -> Path:
    """The folder of the benchmark files."""
    return Path(MIRROR)


@pytest.fixture
def make_graph() -> Callable[..., Graph]:
    """Builds a small random graph: directed, weighted, with dense or sparse features."""

    def build(num_nodes: int = 30, seed: int = 0, directed: bool = True, sparse: bool = False) -> Graph:
        rng = np.random.default_rng(seed)
        adj = sp.random_array((num_nodes, num_nodes), density=0.15, rng=rng, format="csr")
        if not directed:
            adj = sp.csr_array(adj.maximum(adj.T))
        x = rng.normal(size=(num_nodes, 12))
        if sparse:
            x = x * (rng.random(x.shape) < 0.2)
        return from_scipy(adj, x, np.arange(num_nodes) % 3)

    return build


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A mounted disk of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
