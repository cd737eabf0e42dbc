"""Kills every command that writes at random moments, repeats it, and compares all files with an undisturbed result.

    python benchmarks/kills.py [--kills 100] [--seed 0] [--commands train predict] [--out results/kills.json]

A command runs in a forked process that has everything imported, and in a process group of its own, which gets SIGKILL
at a moment drawn from the time that an undisturbed run takes. Trainings write a checkpoint after every epoch. Then the
same command is repeated in the same folder. The result is equal if it ends well and leaves the same files with the
same bytes, but for what records say about the machine. A command that was over before its moment came does not count.
Ranks under torchrun are killed by ``kills_of_ranks.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from adagpr.cli.main import main as run_command
from adagpr.experiments import runner
from adagpr.files import read_json, write_json
from adagpr.system import describe_machine, without_machine
from adagpr.training import fit_partition, many, resolve
from adagpr.tuning import search

# What the commands load when they need it is loaded here once: the processes that run them are forked from this one.
for room in ("experiments", "exporting", "insight", "reporting", "tuning"):
    importlib.import_module(f"adagpr.{room}")
importlib.import_module("optuna.importance")
importlib.import_module("sklearn.ensemble")

TINY = {"data.num_nodes": 200, "num_layers": 2, "hidden_channels": 8, "max_epochs": 12, "patience": "none"}
WORDS = tuple(word for key, value in TINY.items() for word in ("--set", f"{key}={value}"))
ON_TABLES = WORDS[2:]
TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv")


def nothing() -> None:
    """For a command that reads no files."""


def tables() -> None:
    """Two tables of a small graph."""
    chance = np.random.default_rng(0)
    kinds = chance.choice(["red", "green", "blue"], 300)
    nodes = {"id": np.arange(300), "size": chance.normal(size=300), "kind": kinds, "label": np.arange(300) % 3}
    ends = chance.integers(0, 300, (900, 2))
    pacsv.write_csv(pa.table(nodes), "nodes.csv")
    pacsv.write_csv(pa.table({"source": ends[:, 0], "target": ends[:, 1]}), "edges.csv")


def run_on_tables() -> None:
    """A complete run on two tables."""
    tables()
    run("train", *TABLES, "--label", "label", *ON_TABLES, "--out", "run")


def parts() -> None:
    """A graph in parts."""
    run("partition", "csbm", "--parts", "3", "--out", "parts")


@dataclass(frozen=True)
class Case:
    """A command that writes to ``out``, and what makes in a folder the files that it reads.

    Attributes:
        may_differ: Files in ``out`` that tell of attempts, and are not compared.
        survives: Whether it ends well by itself when a process that it started is killed, as in every second kill.
    """

    make: Callable[[], None]
    words: tuple[str, ...]
    may_differ: tuple[str, ...] = ()
    survives: bool = False


CASES = {
    "train": Case(nothing, ("train", "csbm", *WORDS, "--out", "out")),
    "train side by side": Case(
        nothing, ("train", "csbm", *WORDS, "--seed", "0", "--seed", "1", "--seed", "2", "--jobs", "1", "--out", "out")
    ),
    "train in two processes": Case(
        nothing, ("train", "csbm", *WORDS, "--seed", "0", "--seed", "1", "--seed", "2", "--jobs", "2", "--out", "out")
    ),
    "train on parts": Case(parts, ("train", "--partitions", "parts", *ON_TABLES, "--out", "out")),
    "train on batches of parts": Case(
        parts, ("train", "--partitions", "parts", "--batch-parts", "1", *ON_TABLES, "--out", "out")
    ),
    **{
        f"tune with {jobs}": Case(
            nothing,
            ("tune", "csbm", *WORDS, "--trials", "10", "--jobs", jobs[0], "--out", "out"),
            may_differ=("journal.jsonl", "index.html"),
            survives=True,
        )
        for jobs in ("1 job", "2 jobs")
    },
    "predict": Case(run_on_tables, ("predict", "run", *TABLES, "--out", "out/new.parquet")),
    "partition": Case(nothing, ("partition", "csbm", "--parts", "8", "--out", "out")),
    "partition out of core": Case(
        tables, ("partition", *TABLES, "--label", "label", "--parts", "8", "--method", "greedy", "--out", "out")
    ),
    "reproduce": Case(nothing, ("reproduce", "table3", "--only", "table3_gcn_cornell", "--jobs", "2", "--out", "out")),
    "export": Case(run_on_tables, ("export", "run", "--out", "out/model.safetensors")),
    "export to ONNX": Case(run_on_tables, ("export", "run", "--format", "onnx", "--out", "out/model.onnx")),
    "report": Case(run_on_tables, ("report", "run", "--out", "out/page.html")),
    "plot": Case(run_on_tables, ("plot", "run", "--only", "training", "--only", "coefficients", "--out", "out")),
}


def run(*words: str) -> None:
    """Runs a command in this process; whatever but success ends the process."""
    sys.argv = ["adagpr", *words]
    try:
        run_command()
    except SystemExit as end:
        if end.code:
            raise


def child(action: Callable[[], None], folder: Path) -> None:
    """The life of a process that does something in a folder."""
    os.setpgid(0, 0)
    os.chdir(folder)
    errors = os.open(folder.parent / "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(errors, 2)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    # A checkpoint after every epoch.
    for module in (many, search):
        vars(module)["CHECKPOINT_SECONDS"] = 0.0
    fit_partition.__kwdefaults__ = {**(fit_partition.__kwdefaults__ or {}), "checkpoint_seconds": 0.0}
    # Few epochs of what the paper trains for hundreds.
    vars(runner)["resolve"] = lambda *given: resolve(given[0], given[1], given[2], {**given[3], "max_epochs": 8})
    action()


def do(action: Callable[[], None], folder: Path, seconds: float | None = None, part: bool = False) -> int | None:
    """Does something in a forked process, which is killed after so many seconds; its exit code, -9 if it was killed.

    If only a ``part`` is to be killed, it is one of the processes that it started.
    """
    process = multiprocessing.get_context("fork").Process(target=child, args=(action, folder))
    process.start()
    process.join(seconds)
    if process.is_alive() and part:
        started = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in started[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        process.join()
        return -signal.SIGKILL if started and process.exitcode == 0 else process.exitcode
    if process.is_alive() and process.pid is not None:
        # Too early for its group, it is still alone.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return process.exitcode


def contents(folder: Path) -> dict[str, Any]:
    """All files of a folder by their paths, as they are compared."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        content: Any = None if path.is_dir() else path.read_bytes()
        if path.suffix == ".json":
            content = without_machine(json.loads(content))
        if path.suffix == ".html":
            content = re.sub(rb'\\"machine\\": {[^}]*}|[\d,.]+ s on ', b"", content)
        found[str(path.relative_to(folder))] = content
    return found


def differences(folder: Path, whole: dict[str, Any], may_differ: tuple[str, ...]) -> list[str]:
    """The files that differ from those of the undisturbed result."""
    found = contents(folder)
    names = sorted({*found, *whole} - {*may_differ})
    return [name for name in names if name not in found or found[name] != whole.get(name, b"")]


def kill_and_repeat(case: Case, num_kills: int, seed: int) -> dict[str, Any]:
    """Kills a command so many times, each time in a new folder; what became of it."""
    chance, began = np.random.default_rng(seed), time.monotonic()
    unequal: list[dict[str, Any]] = []

    def command() -> None:
        run(*case.words)

    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        made, place = Path(name) / "made", Path(name) / "place"
        made.mkdir()
        ended = do(case.make, made)
        took = 0.0
        wholes = []
        for _ in range(2):
            shutil.copytree(made, place)
            before = time.monotonic()
            ended = ended or do(command, place)
            took = time.monotonic() - before
            wholes.append(contents(place / "out"))
            different = differences(place / "out", wholes[0], case.may_differ)
            if ended or different:
                raise SystemExit(
                    f"Undisturbed, it failed or differed: {different} {(Path(name) / 'stderr').read_text()}"
                )
            shutil.rmtree(place)
        num_done = num_early = 0
        while num_done < num_kills:
            moment = float(chance.uniform(0, took))
            shutil.copytree(made, place)
            part = case.survives and bool(chance.integers(2))
            was_killed = do(command, place, moment, part) == -signal.SIGKILL
            num_done, num_early = num_done + was_killed, num_early + (not was_killed)
            code = do(command, place)
            different = differences(place / "out", wholes[0], case.may_differ)
            if code != 0 or different:
                found = {"seconds_before_the_kill": round(moment, 3), "exit_code": code, "different": different}
                unequal.append({**found, "message": (Path(name) / "stderr").read_text()[-500:]})
                print(unequal[-1], flush=True)
            shutil.rmtree(place)
    return {
        "command": re.sub(" +", " ", " ".join(("adagpr", *case.words))),
        "seed": seed,
        "kills": num_done,
        "equal": num_done - len(unequal),
        "unequal": unequal,
        "machine": {**describe_machine(time.monotonic() - began), "undisturbed": round(took, 2), "too_late": num_early},
    }


def main() -> None:
    """Reads the command line, kills, and writes the record; entries of other commands stay in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="+", choices=sorted(CASES), default=list(CASES), metavar="COMMAND")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    is_bad = False
    for name in asked.commands:
        found = kill_and_repeat(CASES[name], asked.kills, asked.seed)
        print(f"{name}: {found['equal']} of {found['kills']} equal, {found['machine']['seconds']:.0f} s", flush=True)
        is_bad |= bool(found["unequal"])
        if asked.out is not None:
            write_json(asked.out, {**(read_json(asked.out) if asked.out.exists() else {}), name: found})
    sys.exit(is_bad)


if __name__ == "__main__":
    main()
