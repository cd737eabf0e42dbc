"""A real process is stopped by a real signal, and says what the same command will do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import adagpr
from adagpr.cli.interruption import terminable
from adagpr.system import DeferredSignals
from adagpr.training import State, TrainingRun
from adagpr.training.workers import spread
from tests.processes import Forked, Gate, run_forked

# A shell that runs the tests in the background has them and their children ignore interrupts, nohup SIGHUP.
WAITING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
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
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
NOTHING = "Stopped. Nothing was saved yet; the same command starts again.\n"
TRAIN = ("train", "csbm", "--set", "data.num_nodes=120", "--set", "max_epochs=9", "--set", "hidden_channels=8")
SEEDS = ("--seed", "0", "--seed", "1", "--seed", "2")
REPRODUCE = ("reproduce", "--only", "table3_gcn_texas", "--jobs", "2", "--out", "out")
TRAININGS = {
    "reproduce": (REPRODUCE, 2, "epoch 1 in 2 runs"),
    "one run": ((*TRAIN, "--out", "out"), 1, "epoch 1"),
    "side by side": ((*TRAIN, *SEEDS, "--jobs", "1", "--out", "out"), 1, "epoch 1 in 3 runs"),
    "two processes": ((*TRAIN, *SEEDS[:4], "--jobs", "2", "--out", "out"), 2, "epoch 1 in 2 runs"),
    "parts": (("train", "--partitions", "parts", "--set", "max_epochs=9", "--out", "out"), 1, "epoch 1"),
}

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
    [(TrainingRun, "__init__", "Nothing was saved yet"), (State, "tell", "resumes from epoch 2")],
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


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """A folder with a graph in parts."""
    adagpr.partition("csbm", parts=2, out=tmp_path / "parts")
    return tmp_path


@pytest.mark.usefixtures("benchmark_root")
@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("name", TRAININGS)
def test_the_first_epoch_is_saved_before_a_signal_ends_the_command(
    name: str, number: signal.Signals, code: int, gate: Gate, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, num_processes, epochs = TRAININGS[name]
    for owner, function in ((State, "add_epoch"), (DeferredSignals, "_receive")):
        monkeypatch.setattr(owner, function, gate.before_call(1, getattr(owner, function)))
    process = Forked(parts, *words, cwd=parts)
    gate.await_processes(num_processes)
    process.kill(number)
    # Whoever trains has got the signal while its first epoch is under way.
    gate.await_processes(num_processes)
    gate.let_pass(2 * num_processes)
    assert (process.ended(), process.errors) == (code, f"Stopped. The same command resumes from {epochs}.\n")


def test_a_second_signal_ends_a_training_at_once(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = TRAININGS["one run"][0]
    with monkeypatch.context() as patch:
        patch.setattr(State, "add_epoch", gate.before_call(1, State.add_epoch))
        process = Forked(tmp_path, *words, cwd=tmp_path)
    gate.await_processes()
    process.kill(signal.SIGINT)
    process.kill(signal.SIGTERM)
    # Nobody lets it pass the gate.
    assert process.ended() in (130, 143)
    assert process.errors == NOTHING
    assert not (tmp_path / "out").exists()


def test_a_second_signal_ends_all_processes_at_once(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = TRAININGS["two processes"][0]
    with monkeypatch.context() as patch:
        for owner, function in ((State, "add_epoch"), (DeferredSignals, "_receive")):
            patch.setattr(owner, function, gate.before_call(1, getattr(owner, function)))
        process = Forked(tmp_path, *words, cwd=tmp_path)
    gate.await_processes(2)
    process.kill(signal.SIGINT)
    gate.await_processes(2)
    process.kill(signal.SIGTERM)
    assert (process.ended(), process.errors) == (143, NOTHING)
    assert run_forked(tmp_path, *words).returncode == 0


# What Python calls right after a fork cannot be unregistered; it raises the signals in this list.
ARMED: list[signal.Signals] = []
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(ARMED.pop()) if ARMED else None)


@pytest.mark.parametrize("number", [number for number, _ in SIGNALS])
def test_a_signal_that_comes_while_a_process_is_forked_is_not_lost(number: signal.Signals) -> None:
    def work(item: int, report: Callable[..., None]) -> None:
        report(item)

    # Whoever started the tests may ignore some of them, as nohup does.
    before = signal.signal(number, signal.default_int_handler)
    ARMED.append(number)
    try:
        with terminable(), pytest.raises(KeyboardInterrupt):
            spread([0, 1, 2], work, lambda item: None, 2)
    finally:
        signal.signal(number, before)
        ARMED.clear()


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
