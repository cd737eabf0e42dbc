"""What somebody else's run, configuration or partition may open: nothing that the user did not name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import adagpr
from adagpr.errors import InputError
from tests.cli.conftest import Ended


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    rows = "\n".join(f"n{i},{i % 7},{'ab'[i % 2]}" for i in range(24))
    (folder / "nodes.csv").write_text(f"id,size,y\n{rows}\n")
    (folder / "edges.csv").write_text("s,t\n" + "".join(f"n{i},n{(i + 2) % 24}\n" for i in range(24)))
    graph, splits = adagpr.load("tables", nodes=folder / "nodes.csv", edges=folder / "edges.csv", label="y")
    adagpr.fit(graph, splits[0], out=folder / "run", num_layers=2, hidden_channels=4, max_epochs=2)
    return folder


@pytest.fixture
def foreign(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run as somebody gets it who never saw its tables; the table of nodes would be waited for without end."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(trained / "run", tmp_path / "run")
    os.mkfifo(tmp_path / "secret.csv")
    for name in ("record.json", "config.toml"):
        path = tmp_path / "run" / name
        path.write_text(path.read_text().replace(str(trained / "nodes.csv"), str(tmp_path / "secret.csv")))
    return tmp_path


@pytest.mark.parametrize("command", ["explain", "bounds"])
def test_a_table_that_only_the_run_names_is_not_opened(
    ended: Callable[..., Ended], foreign: Path, command: str
) -> None:
    code, _, line = ended(foreign, command, "run")
    assert code == 2
    assert "secret.csv, which is not opened unless you name it: --dataset" in line


def test_pages_and_exports_leave_out_what_needs_such_a_table(ended: Callable[..., Ended], foreign: Path) -> None:
    assert ended(foreign, "report", "run", "-o", "page.html")[0] == 0
    assert "secret.csv, which is not opened" in (foreign / "page.html").read_text()
    code, out, _ = ended(foreign, "export", "run", "-o", "model.safetensors", "--json")
    assert code == 0
    assert "secret.csv, which is not opened" in json.loads(out)["remarks"][-1]


def test_tables_that_the_user_names_are_opened(ended: Callable[..., Ended], foreign: Path, trained: Path) -> None:
    named = ["--dataset", str(trained / "nodes.csv"), "--dataset", str(trained / "edges.csv")]
    for command in ("explain", "bounds"):
        assert ended(foreign, command, "run", *named)[0] == 0
    # From now on they are the user's.
    assert ended(trained, "explain", "run")[0] == 0


def test_a_configuration_opens_only_what_is_beside_it(ended: Callable[..., Ended], foreign: Path) -> None:
    code, _, line = ended(foreign, "train", "--config", "run/config.toml", "--out", "new")
    assert code == 2
    assert "secret.csv, which is not opened unless you name it: --nodes" in line
    assert not (foreign / "new").exists()


def test_a_part_does_not_lead_out_of_its_partition(tmp_path: Path) -> None:
    parts = adagpr.partition("csbm", parts=2, out=tmp_path / "parts")
    outside = tmp_path / "nodes.arrow"
    (parts[0].folder / "nodes.arrow").rename(outside)
    (parts[0].folder / "nodes.arrow").symlink_to(outside)
    with pytest.raises(InputError, match=r"nodes.arrow leads out of the folder"):
        parts[0].check()
