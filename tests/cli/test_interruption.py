"""A real process is stopped by a real signal, and says what the same command will do."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adagpr.training import State, TrainingRun
from tests.processes import Forked, Gate

# A shell that runs the tests in the background has them and their children ignore interrupts.
WAITING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from pathlib import Path\n"
    "from adagpr.cli.interruption import interruptible; from adagpr.cli.main import app, main\n"
    "@app.command()\n"
    "def wait(folder: Path) -> None:\n"
    "    with interruptible(folder):\n"
    "        print('ready', flush=True)\n"
    "        while True: signal.pause()\n"
    "@app.command()\n"
    "def load() -> None:\n"
    "    print('ready', flush=True)\n"
    "    while True: signal.pause()\n"
    "main()"
)
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]

Ended = tuple[int, str]


def stopped(number: signal.Signals, *words: str) -> Ended:
    """Starts a command that waits, sends it a signal once it is under way, and gives back its exit code and message."""
    command = [sys.executable, "-c", WAITING, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, errors = process.communicate()
    return process.returncode, errors


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_before_anything_is_saved_it_does_not_promise_to_resume(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").touch()
    sentence = "Stopped. Nothing was saved yet; the same command starts again.\n"
    assert stopped(number, "wait", str(tmp_path)) == (code, sentence)


def test_with_a_complete_run_it_says_that_the_others_are_left(tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0" / "record.json").touch()
    sentence = "Stopped. The same command resumes with the runs that are not complete.\n"
    assert stopped(signal.SIGINT, "wait", str(tmp_path)) == (130, sentence)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_where_nothing_is_written_it_only_says_that_it_stopped(number: signal.Signals, code: int) -> None:
    assert stopped(number, "load") == (code, "Stopped.\n")


@pytest.mark.parametrize(
    ("owner", "name", "outlook"),
    [(TrainingRun, "__init__", "Nothing was saved yet"), (State, "tell", "resumes from the last checkpoint")],
)
def test_the_runs_of_others_are_not_taken_for_its_own(
    owner: type, name: str, outlook: str, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "another").mkdir(parents=True)
    (tmp_path / "runs" / "another" / "record.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(owner, name, gate.before_call(1, getattr(owner, name)))
    process = Forked(tmp_path, "train", "csbm")
    gate.await_processes()
    process.kill(signal.SIGINT)
    gate.let_pass()
    assert process.ended() == 130
    assert outlook in process.errors
