"""A real process is stopped by a real signal, and says what the same command will do."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# A shell that runs the tests in the background has them and their children ignore interrupts.
WAITING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "import time; from pathlib import Path\n"
    "from adagpr.cli.interruption import interruptible; from adagpr.cli.main import app, main\n"
    "@app.command()\n"
    "def wait(folder: Path) -> None:\n"
    "    with interruptible(folder):\n"
    "        print('ready', flush=True)\n"
    "        time.sleep(600)\n"
    "@app.command()\n"
    "def load() -> None:\n"
    "    print('ready', flush=True)\n"
    "    time.sleep(600)\n"
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


def test_the_runs_of_others_are_not_taken_for_its_own(tmp_path: Path) -> None:
    (tmp_path / "runs" / "another").mkdir(parents=True)
    (tmp_path / "runs" / "another" / "record.json").touch()
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script += "from adagpr.cli.main import main; main()"
    command = [sys.executable, "-c", script, "train", "csbm", "--set", "max_epochs=1000000", "--set", "patience=none"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(tmp_path.glob("runs/csbm-*/config.toml")):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    has_checkpoint = bool(list(tmp_path.glob("runs/csbm-*/checkpoint/state.safetensors")))
    assert process.returncode == 130
    assert ("resumes from the last checkpoint" in errors) == has_checkpoint
    assert ("Nothing was saved yet" in errors) == (not has_checkpoint)
