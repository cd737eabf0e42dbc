from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from adagpr.data import catalogue, row


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def adagpr(*arguments: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    # pytest-xdist sets COLUMNS; a pipe is wide enough for every table.
    environment = {key: value for key, value in os.environ.items() if key not in ("ADAGPR_DATA", "COLUMNS")}
    environment |= {"XDG_CACHE_HOME": str(home), "no_proxy": "127.0.0.1"} | variables
    command = [sys.executable, "-m", "adagpr", "data", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def content(done: subprocess.CompletedProcess[str]) -> Any:
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture
def texas(benchmark_root: Path, tmp_path: Path) -> Path:
    for file in row("texas").files():
        (tmp_path / "mirror" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(benchmark_root / file, tmp_path / "mirror" / file)
    return tmp_path / "mirror"


def test_ls_shows_every_set_and_whether_its_files_are_here(texas: Path, tmp_path: Path) -> None:
    shown = {
        item["name"]: item["presence"]
        for item in content(adagpr("ls", "--json", home=tmp_path, ADAGPR_DATA=str(texas)))
    }
    assert list(shown) == list(catalogue())
    assert (shown["texas"], shown["cora"], shown["digits"]) == ("present", "missing", "built in")
    table = adagpr("ls", home=tmp_path)
    assert table.returncode == 0
    assert all(name in table.stdout for name in catalogue())
    assert max(len(line) for line in table.stdout.splitlines()) <= 120


def test_ls_and_help_do_not_import_torch() -> None:
    code = "import sys, adagpr.cli.data as d; d.app(['ls'], standalone_mode=False); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_info_tells_counts_source_and_every_oddity(tmp_path: Path) -> None:
    done = adagpr("info", "cornell-corrected", home=tmp_path)
    words = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert all(oddity in words for oddity in row("cornell-corrected").oddities)
    assert "3cc57103d2b71f799bb74f34e200ec0f26363269" in words
    assert f"missing in {tmp_path}/adagpr" in words
    stored = content(adagpr("info", "cornell-corrected", "--json", home=tmp_path))
    assert stored["oddities"] == list(row("cornell-corrected").oddities)
    assert stored["files"] == row("cornell-corrected").files()


def test_an_unknown_set_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    done = adagpr("info", "coar", home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: Unknown data set 'coar'. Did you mean 'cora'? See: adagpr data ls\n"


def test_fetch_fills_a_folder_from_a_mirror_and_then_finds_nothing_missing(texas: Path, tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(texas))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        first = content(adagpr("fetch", "texas", "--from", address, "--json", home=tmp_path))
        again = adagpr("fetch", "texas", "--from", address, home=tmp_path)
        server.shutdown()
        thread.join()
    assert sorted(first["downloaded"]) == sorted(row("texas").files())
    assert again.stdout.replace("\n", "") == f"Nothing was missing in {tmp_path}/adagpr."
    assert adagpr("verify", "texas", home=tmp_path).returncode == 0


def test_fetch_needs_names_or_all(tmp_path: Path) -> None:
    for arguments in (["fetch"], ["fetch", "texas", "--all"]):
        done = adagpr(*arguments, home=tmp_path)
        assert done.returncode == 2
        assert done.stderr == "Error: data fetch: name the data sets to download, or give --all, and not both.\n"


def test_verify_ends_with_1_if_a_file_is_missing_or_altered(texas: Path, tmp_path: Path) -> None:
    edges, nodes = row("texas").graph_files()
    (texas / edges).write_bytes(b"")
    altered = adagpr("verify", "texas", "--data-root", str(texas), home=tmp_path)
    assert altered.returncode == 1
    assert edges in altered.stdout.replace("\n", "")
    (texas / nodes).unlink()
    both = adagpr("verify", "texas", "--json", "--data-root", str(texas), home=tmp_path)
    status = {item["file"]: item["status"] for item in json.loads(both.stdout)}
    assert (both.returncode, status[edges], status[nodes]) == (1, "altered", "missing")


def test_verify_without_names_looks_at_every_file(benchmark_root: Path, tmp_path: Path) -> None:
    found = content(adagpr("verify", "--json", "--data-root", str(benchmark_root.resolve()), home=tmp_path))
    assert {item["status"] for item in found} == {"ok"}
    assert {item["dataset"] for item in found} == {name for name, item in catalogue().items() if item.files()}
