"""Commands in processes of their own, and gates at which they wait: no clock decides how far one is when it ends."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Self

import torch

from adagpr.cli.main import main

# Nothing takes so long, in seconds; a process that waits for ever is then an error of the test.
FOR_EVER = 1800


class Forked:
    """``adagpr WORDS`` in a process that is forked from the test: it starts at once, with what the test has patched.

    What it writes goes to the files ``NAME.out`` and ``NAME.err`` in ``folder``.
    """

    def __init__(
        self,
        folder: Path,
        *words: str,
        name: str = "command",
        cwd: Path = Path(),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        self._cwd = cwd
        self._process = multiprocessing.get_context("fork").Process(target=self._run, args=(words, variables))
        self._process.start()
        self.pid = self._process.pid or 0

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends it a signal."""
        os.kill(self.pid, number)

    def ended(self) -> int:
        """Waits for its end; returns the exit code."""
        self._process.join(FOR_EVER)
        code: int | None = self._process.exitcode
        assert code is not None, "the process has not ended"
        return code

    @property
    def output(self) -> str:
        """What it has written to standard output."""
        return self._out.read_text()

    @property
    def errors(self) -> str:
        """What it has written to standard error."""
        return self._err.read_text()

    def _run(self, words: tuple[str, ...], variables: Mapping[str, str]) -> None:
        # As in a process that a terminal starts, whatever the one that runs the tests ignores.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.chdir(self._cwd)
        os.environ.update(variables)
        torch.set_num_threads(1)
        sys.argv = ["adagpr", *words]
        with self._out.open("w") as out, self._err.open("w") as err, redirect_stdout(out), redirect_stderr(err):
            main()


def run_forked(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs ``adagpr WORDS`` in a folder and a forked process to its end: a new one would import torch anew."""
    with TemporaryDirectory() as said:
        process = Forked(Path(said), *words, cwd=folder)
        return subprocess.CompletedProcess(words, process.ended(), process.output, process.errors)


class Gate:
    """Processes forked from the test wait at it until the test opens it."""

    def __init__(self) -> None:
        self._arrivals, self._arrive = os.pipe()
        self._passes, self._let_pass = os.pipe()

    def wait(self) -> None:
        """In a process: says that it is here, and waits."""
        os.write(self._arrive, b".")
        os.read(self._passes, 1)

    def before_call(self, number: int, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, before whose call of this number in its process that process waits."""
        calls = itertools.count(1)

        def waiting(*args: Any, **options: Any) -> Any:
            if next(calls) == number:
                self.wait()
            return function(*args, **options)

        return waiting

    def await_processes(self, count: int = 1) -> None:
        """In the test: waits until so many processes have come to the gate, which must not end before."""
        for _ in range(count):
            arrived = connection.wait([self._arrivals, *(each.sentinel for each in multiprocessing.active_children())])
            assert self._arrivals in arrived, "a process ended before it came to the gate"
            os.read(self._arrivals, 1)

    def let_pass(self, count: int = 1) -> None:
        """In the test: lets so many processes go on."""
        os.write(self._let_pass, b"." * count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what a failed test has left waiting."""
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        for end in (self._arrivals, self._arrive, self._passes, self._let_pass):
            os.close(end)
