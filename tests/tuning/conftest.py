"""What the tests of tuning share: a small task, a quick study, and a PostgreSQL server of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import adagpr
from adagpr.graph import Graph, Split
from adagpr.tuning import Space, Standing, read_space, tune
from adagpr.tuning.crew import OnChange

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
    """Tunes the small graph, by default with 6 trials by one worker; a study that does not end is an error."""

    def call(out: Path, on_change: OnChange | None = None, **changes: Any) -> dict[str, Any]:
        deadline = time.monotonic() + 120

        def watch(standing: Standing) -> None:
            assert time.monotonic() < deadline, standing
            if on_change is not None:
                on_change(standing)

        arguments = {"space": quick_space, "num_trials": 6, "num_workers": 1, **changes}
        return tune(*small, out=out, on_change=watch, **arguments)

    return call


@pytest.fixture(scope="session")
def finished_study(quick_tune: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a complete study, to look at."""
    folder = tmp_path_factory.mktemp("finished")
    quick_tune(folder)
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a private server, which listens on a socket in its own folder."""
    found = shutil.which("postgres")
    programs = Path(found).resolve().parent if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    # The server refuses to run as root.
    user = {"user": "postgres"} if os.geteuid() == 0 else {}
    if user:
        shutil.chown(folder, "postgres")
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **user}
    create: list[str | Path] = [
        programs / "initdb",
        "-D",
        folder / "data",
        "-U",
        "postgres",
        "-A",
        "trust",
        "--no-sync",
    ]
    subprocess.run(create, check=True, **quiet)
    server = subprocess.Popen(
        [programs / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses=", "-F"], **quiet
    )
    try:
        ready: list[str | Path] = [programs / "pg_isready", "-h", folder, "-q"]
        for _ in range(100):
            if subprocess.run(ready, check=False).returncode == 0:
                break
            time.sleep(0.1)
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        server.send_signal(signal.SIGQUIT)  # at once: nothing in it is worth keeping
        server.wait()
        shutil.rmtree(folder)
