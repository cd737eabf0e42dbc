from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from tests.cli.command import adagpr


def test_version_is_the_installed_one() -> None:
    assert adagpr("--version") == f"adagpr {version('adagpr')}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="torch has other threads there")
@pytest.mark.parametrize(
    ("given", "looks"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "0")],
)
def test_threads_that_wait_leave_their_core_unless_the_user_says_how(given: dict[str, str], looks: str) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    command = [sys.executable, "-m", "adagpr", "models"]
    # OpenMP then says what it was told.
    settings = {**kept, "OMP_DISPLAY_ENV": "VERBOSE", **given}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    assert f"GOMP_SPINCOUNT = '{looks}'" in done.stderr
