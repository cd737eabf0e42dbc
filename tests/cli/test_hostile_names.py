"""Names that try to reach the terminal, and errors as one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from adagpr.cli.console import facts, show, table
from adagpr.errors import escaped, reason_of
from tests.cli.conftest import Ended

HOSTILE = "a\x1b[31m\r\x07\u202e\n\x00[red]b\x9b"
SHOWN = r"a\x1b[31m\r\x07\u202e\n\x00[red]b\x9b"


def test_control_characters_are_written_out_and_letters_stay() -> None:
    assert escaped(HOSTILE) == SHOWN
    assert escaped("é 北\xa0\udcff") == "é 北\xa0\\udcff"


def test_a_reason_is_one_short_line() -> None:
    assert reason_of(ValueError("Couldn't\n  read:\x1b it.\n")) == r"Couldn't read:\x1b it"
    assert len(reason_of(ValueError("x" * 1000))) == 204
    assert reason_of(ValueError()) == "ValueError"


def test_texts_tables_and_headings_show_names_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    show(HOSTILE, table([HOSTILE, "n"], [[HOSTILE, "1"]], title=HOSTILE, caption=HOSTILE), facts([("name", HOSTILE)]))
    printed = capsys.readouterr().out
    assert printed.count(SHOWN) == 6
    assert printed.replace("\n", "").isprintable()


@pytest.mark.parametrize("words", [("explain", HOSTILE), ("train", HOSTILE), ("tune", "--nope" + HOSTILE), (HOSTILE,)])
def test_an_error_is_one_line_of_text(ended: Callable[..., Ended], tmp_path: Path, words: tuple[str, ...]) -> None:
    words = tuple(word.replace("\x00", "") for word in words)
    code, _, line = ended(tmp_path, *words)
    assert code == 2
    assert r"a\x1b[31m" in line
    assert line.startswith("Error: ")
    assert line.removesuffix("\n").isprintable()


@pytest.mark.parametrize("words", [("explain", "nowhere"), ("train", "coar"), ("models", "--nope"), ("predict",)])
def test_errors_are_json_where_results_are(ended: Callable[..., Ended], tmp_path: Path, words: tuple[str, ...]) -> None:
    code, out, line = ended(tmp_path, *words, "--json")
    assert (code, out) == (2, "")
    found = json.loads(line)
    assert found.pop("exit_code") == 2
    assert list(found) == ["error"]


def test_a_full_standard_output_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "adagpr", "models", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, json.loads(done.stderr)) == (1, {"error": "No space left on device.", "exit_code": 1})


def test_what_a_library_says_about_a_file_is_one_line(ended: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "nodes.parquet").write_bytes(b"PAR1" + bytes(40) + b"PAR1")
    code, _, line = ended(tmp_path, "train", "--nodes", "nodes.parquet", "--edges", "nodes.parquet", "--label", "y")
    assert code == 2
    assert line.count("\n") == 1
    assert "\\n" not in line


@pytest.mark.parametrize("name", ["pipe", "folder", "n" * 300, "n/" * 3000])
@pytest.mark.parametrize("command", ["nodes", "npz", "config", "run", "out", "report"])
def test_what_is_no_file_is_one_sentence_and_left_as_it_is(
    ended: Callable[..., Ended], tmp_path: Path, name: str, command: str
) -> None:
    ending = {"nodes": ".csv", "npz": ".npz", "config": ".toml", "report": ".html", "out": ".parquet"}.get(command, "")
    name += ending
    if name.startswith("pipe"):
        os.mkfifo(tmp_path / name)
    elif name.startswith("folder"):
        (tmp_path / name).mkdir()
    before = sorted(tmp_path.iterdir())
    words = {
        "nodes": ("train", "--nodes", name, "--edges", name, "--label", "y"),
        "npz": ("train", name),
        "config": ("train", "--config", name),
        "run": ("explain", name),
        "out": ("predict", "none", "--nodes", name, "--edges", name, "--out", name),
        "report": ("report", name, "-o", name),
    }[command]
    code, out, line = ended(tmp_path, *words)
    assert (code, out) == (2, "")
    assert line.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
