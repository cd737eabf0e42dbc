"""What the tests of tuning share: a small task, a quick study, and a PostgreSQL server of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import adagpr
from adagpr.graph import Graph, Split
from adagpr.tuning import Space, read_space, tune
from tests.tuning.postgres import LossyWay, Server, address

QUICK = {"max_epochs": 16, "hidden_channels": 8, "num_layers": 2, "num_coeffs": 3, "theta": 0.5, "patience": None}


@pytest.fixture(scope="session")
def small() -> tuple[Graph, list[Split]]:
    """A graph of 60 nodes and its split."""
    return adagpr.load("csbm", num_nodes=60)


@pytest.fixture(scope="session")
def quick_space() -> Space:
    """Learning rate, weight decay, dropout and alpha over a few epochs."""
    return read_space("general").for_model("adagpr").with_settings(QUICK)


@pytest.fixture(scope="session")
def quick_tune(small: tuple[Graph, list[Split]], quick_space: Space) -> Callable[..., dict[str, Any]]:
    """Tunes the small graph, by default with 6 trials by one worker."""

    def call(out: Path, **changes: Any) -> dict[str, Any]:
        arguments = {"space": quick_space, "num_trials": 6, "num_workers": 1, **changes}
        return tune(*small, out=out, **arguments).record

    return call


@pytest.fixture(scope="session")
def finished_study(quick_tune: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a complete study, to look at."""
    folder = tmp_path_factory.mktemp("finished")
    quick_tune(folder)
    return folder


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A private server."""
    running = Server()
    yield running
    running.remove()


@pytest.fixture(scope="session")
def postgres(postgres_server: Server) -> str:
    """The address of the private server."""
    return address(postgres_server.folder)


@pytest.fixture
def server(postgres: str, postgres_server: Server) -> Iterator[Server]:
    """The private server, to be killed; afterwards it is there again."""
    yield postgres_server
    if not postgres_server.is_running:
        postgres_server.start()


@pytest.fixture
def lossy_way(server: Server) -> Iterator[LossyWay]:
    """A way to the private server on which answers get lost."""
    way = LossyWay(server)
    yield way
    way.close()
