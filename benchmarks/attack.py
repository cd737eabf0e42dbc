"""Damages every kind of file that adagpr writes or reads, runs a command on it, and writes down how that ended.

    python benchmarks/attack.py [--cases 10000] [--seed 0] [--jobs 2] [--kinds parts] [--out results/attack.json]

Healthy files of every kind are made once. Each case copies one, damages one file in it (a bit, a cut, noise, an edited
or missing value, another file in its place), and runs a command that reads it, in a process of its own. A case is

- ``read``: exit code 0, the damage did not matter or was mended,
- ``refused``: exit code 1 or 2 and one sentence,
- bad: a traceback, another exit code, no sentence or several, too much memory, a file half written, or over 30 seconds
  without those in which other processes had the cores.

Bad cases are listed with what repeats them: ``--kinds KIND --only NUMBER`` damages the same file in the same way.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # many cases run beside one another

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import torch
from damage import DAMAGES, SHARES

# What the commands load when they need it is loaded here once: the processes that run them are forked from this one.
import adagpr
import adagpr.estimator
import adagpr.experiments
import adagpr.exporting
import adagpr.insight
import adagpr.reporting
import adagpr.tuning
from adagpr.cli.main import main as run_command
from adagpr.experiments import catalogue
from adagpr.files import write_json
from adagpr.system import describe_machine
from adagpr.training import fit, fit_partition

SECONDS, MEGABYTES = 30.0, 1000.0
TINY = {"num_layers": 2, "hidden_channels": 8, "num_coeffs": 3, "max_epochs": 12, "patience": None, "theta": 0.5,
        "feature_scaling": "standardise"}  # fmt: skip
WORDS = [word for key, value in TINY.items() for word in ("--set", f"{key}={'none' if value is None else value}")]
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Kind:
    """One kind of file: what is made healthy in a folder, which files are damaged, and the commands that read them.

    Both are run in the folder; ``out`` is where commands may write.
    """

    make: Callable[[], None]
    files: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Case:
    """How one case ended."""

    kind: str
    number: int
    damage: str
    command: str
    outcome: str
    seconds: float
    megabytes: float
    message: str


def tables(write: Callable[[pa.Table, Path], object], ending: str) -> None:
    """Two tables of a small graph."""
    chance = np.random.default_rng(0)
    nodes = pa.table(
        {
            "id": [f"n{i}" for i in range(60)],
            "size": chance.normal(size=60),
            "kind": chance.choice(["red", "green", "blue"], 60),
            "about": [" ".join(chance.choice(["graph", "node", "edge", "hop", "layer"], 6)) for _ in range(60)],
            "label": [("a", "b")[i % 2] for i in range(50)] + [None] * 10,
        }
    )
    ends = chance.integers(0, 60, (150, 2))
    edges = pa.table({"source": [f"n{i}" for i in ends[:, 0]], "target": [f"n{i}" for i in ends[:, 1]],
                      "weight": chance.random(150)})  # fmt: skip
    write(nodes, Path(f"nodes.{ending}"))
    write(edges, Path(f"edges.{ending}"))


def gzipped(table: pa.Table, path: Path) -> None:
    """A CSV file, compressed."""
    with gzip.open(path, "wb") as file:
        pacsv.write_csv(table, file)


def npz() -> None:
    """A graph in one file."""
    chance = np.random.default_rng(0)
    np.savez("graph.npz", node_features=chance.normal(size=(60, 5)).astype(np.float32),
             node_labels=np.arange(60) % 3, edges=chance.integers(0, 60, (150, 2)))  # fmt: skip


def run_folder() -> None:
    """A complete run on tables."""
    tables(pacsv.write_csv, "csv")
    graph, splits = adagpr.load("tables", nodes="nodes.csv", edges="edges.csv", label="label")
    fit(graph, splits[0], out="run", **TINY)


def checkpoint() -> None:
    """A run that was stopped in its middle."""
    graph, (split,) = adagpr.load("csbm", num_nodes=100)
    with contextlib.suppress(KeyboardInterrupt):
        fit(graph, split, out="run", on_epoch=interrupt_at(6), checkpoint_seconds=0.0, **TINY)


def partition_checkpoint() -> None:
    """A run on a partition that was stopped in its middle, and a complete one."""
    partition()
    with contextlib.suppress(KeyboardInterrupt):
        fit_partition("parts", out="run", on_epoch=interrupt_at(6), checkpoint_seconds=0.0, **TINY)
    fit_partition("parts", out="whole", **TINY)


def interrupt_at(last: int) -> Any:
    """A callback that ends the training after an epoch."""

    def after(number: int, *_: Any) -> None:
        if number == last:
            raise KeyboardInterrupt

    return after


def study() -> None:
    """A complete study."""
    graph, splits = adagpr.load("csbm")
    fixed = {**TINY, "max_epochs": 4}
    adagpr.tune(graph, splits, out="study", settings=fixed, num_trials=3, num_workers=1)


def partition() -> None:
    """A graph in parts."""
    adagpr.partition("csbm", parts=2, out="parts")


def records() -> None:
    """Records of the reproduction, of short runs: a damaged one may be made again. One is of a part of its runs."""
    adagpr.reproduce(["evolution"], only=["texas"], jobs=1, out="out")
    shutil.rmtree("out/runs")
    Path("out/catalogue/part").mkdir(exist_ok=True)
    shutil.move("out/catalogue/hop0_adagpr_texas-4.json", "out/catalogue/part")


def configuration() -> None:
    """What a person writes: options of a training, and a search space."""
    Path("config.toml").write_text(
        '[data]\nname = "csbm"\n[model]\nname = "adagpr"\nnum_layers = 2\nhidden_channels = 8\n'
        "[training]\nmax_epochs = 4\nlr = 0.01\n"
    )
    source = Path(adagpr.tuning.__file__).parent / "spaces" / "general.toml"
    shutil.copy(source, "space.toml")


TRAIN_TABLES = ("train", "--nodes", "nodes.%s", "--edges", "edges.%s", "--label", "label", *WORDS)
CSV_TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv")


def table_kind(ending: str, write: Callable[[pa.Table, Path], object]) -> Kind:
    """Tables of one format, read by train and by partition."""
    train = tuple(word % ending if "%s" in word else word for word in TRAIN_TABLES)
    return Kind(lambda: tables(write, ending), (f"nodes.{ending}", f"edges.{ending}"),
                ((*train, "--out", "out"),))  # fmt: skip


REPRODUCE = ("reproduce", "evolution", "--only", "texas", "--out", "out", "--jobs", "1")
TUNE = ("tune", "csbm", "--trials", "4", "--jobs", "1", "--out", "study",
        *(word for key, value in {**TINY, "max_epochs": 4}.items() for word in ("--set", f"{key}={'none' if value is None else value}")))  # fmt: skip  # noqa: E501
NAMED = ("--dataset", "nodes.csv", "--dataset", "edges.csv")
READ_RUN = ("config.toml", "record.json", "model.safetensors", "scaling.safetensors", "history.parquet",
            "predictions.parquet", "recipe.json")  # fmt: skip
KINDS = {
    "checkpoints": Kind(checkpoint, ("run/checkpoint/*", "run/config.toml"),
                        (("train", "csbm", "--set", "data.num_nodes=100", *WORDS, "--out", "run"),)),
    "partition runs": Kind(partition_checkpoint, ("run/checkpoint/*", "run/config.toml", "whole/*", "whole/*/*"), (
        ("train", "--partitions", "parts", *WORDS, "--out", "run"),
        ("train", "--partitions", "parts", *WORDS, "--out", "whole"), ("report", "whole", "--out", "out/page.html"))),
    "runs": Kind(run_folder, tuple(f"run/{name}" for name in READ_RUN), (
        ("explain", "run", *NAMED), ("explain", "run", "--node", "n3", *NAMED), ("bounds", "run", *NAMED),
        ("report", "run", "--out", "out/page.html", *NAMED), ("plot", "run", "--out", "out", *NAMED),
        ("export", "run", "--out", "out", *NAMED), ("compare", "run", "run"),
        ("predict", "run", *CSV_TABLES, "-o", "out.parquet"),
        ("train", *CSV_TABLES, "--label", "label", *WORDS, "--out", "run"),
        ("train", "--config", "run/config.toml", *CSV_TABLES, "--label", "label", "--out", "out"),
    )),
    "studies": Kind(study, ("study/study.toml", "study/journal.jsonl", "study/best.toml", "study/study.json"),
                    (TUNE,)),
    "parts": Kind(partition, ("parts/manifest.json", "parts/manifest.toml", "parts/part-00000/*", "parts/part-00001/*"),
                  (("train", "--partitions", "parts", *WORDS, "--out", "out"),
                   ("partition", "csbm", "--parts", "2", "--out", "parts"))),
    "records": Kind(records, ("out/catalogue/*.json", "out/catalogue/part/*.json", "out/evolution-texas.json"), (
        (*REPRODUCE, "--status"), REPRODUCE,
        ("compare", "out/catalogue/table3_adagpr_texas-4.json", "out/catalogue/table3_adagpr_texas-4.json"))),
    "csv": table_kind("csv", pacsv.write_csv),
    "csv.gz": table_kind("csv.gz", gzipped),
    "parquet": table_kind("parquet", pq.write_table),
    "feather": table_kind("feather", lambda table, path: feather.write_feather(table, str(path))),
    "npz": Kind(npz, ("graph.npz",), (("train", "graph.npz", *WORDS, "--out", "out"),)),
    "configurations": Kind(configuration, ("config.toml", "space.toml"), (
        # Without the file's epochs the defaults would train for minutes, as they should.
        ("train", "--config", "config.toml", "--set", "max_epochs=4", "--out", "out"),
        ("tune", "csbm", "--space", "space.toml", "--trials", "1", "--jobs", "1", "--set", "max_epochs=2",
         "--out", "out"))),
}  # fmt: skip


def run_case(kind: str, number: int, seed: int, healthy: Path) -> Case:
    """Damages one file of a copy, runs one command on it in a process of its own, and looks at how that ended."""
    chance = np.random.default_rng([seed, sorted(KINDS).index(kind), number])
    spec = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "case"
        shutil.copytree(healthy / kind, folder, symlinks=True)
        files = sorted({path for pattern in spec.files for path in folder.glob(pattern) if path.is_file()})
        path = files[int(chance.integers(len(files)))]
        how = str(chance.choice(list(DAMAGES), p=SHARES))
        try:
            what = DAMAGES[how](path, chance)
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:  # it has nothing of that kind to damage
            what = f"none ({error})"
        words = spec.commands[int(chance.integers(len(spec.commands)))]
        before = set(folder.rglob("*"))
        outcome, seconds, megabytes, message = observe(words, folder)
        if outcome in ("read", "refused"):
            left = [
                item
                for item in folder.rglob("*")
                if item not in before and ("tmp" in item.name or item.name == ".lock")
            ]
            outputs = [item for item in (folder / "out.parquet", folder / "out" / "page.html") if item.exists()]
            if any("adagpr-tmp" in item.name for item in left) or (outcome == "refused" and outputs):
                outcome = "half written"
        damage = f"{path.relative_to(folder)}: {how}, {what}"
        return Case(kind, number, damage, " ".join(words), outcome, seconds, megabytes, message)


def observe(words: tuple[str, ...], folder: Path) -> tuple[str, float, float, str]:
    """Runs a command in a folder, in a forked process; its outcome, seconds, largest memory and standard error."""
    scratch = folder.parent
    said = scratch / "stderr"
    began = time.monotonic()
    process = multiprocessing.get_context("fork").Process(target=child, args=(words, folder, said))
    process.start()
    process.join(SECONDS)
    while SECONDS is not None and process.is_alive() and time.monotonic() - began - queued(process.pid) < SECONDS:
        process.join(1.0)
    seconds = time.monotonic() - began
    if process.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        return "hang", seconds, 0.0, said.read_text(errors="replace")[-500:]
    text = said.read_text(errors="replace")
    peak = scratch / "peak"
    megabytes, waited = map(float, peak.read_text().split()) if peak.exists() else (0.0, 0.0)
    seconds -= waited
    if "Traceback (most recent call last)" in text:
        return "traceback", seconds, megabytes, text[-3000:]
    if process.exitcode not in (0, 1, 2):
        return f"exit code {process.exitcode}", seconds, megabytes, text[-1000:]
    if megabytes > MEGABYTES:
        return "memory", seconds, megabytes, text[-500:]
    if process.exitcode == 0:
        return "read", seconds, megabytes, text[-300:]
    errors = [line for line in text.splitlines() if line]
    last = [line for line in errors if line.startswith(("Error: ", "Usage: "))]
    if len(last) != 1 or errors[-1] != last[0] or "\x1b" in text or len(last[0]) > 1000:
        return "no sentence", seconds, megabytes, text[-1000:]
    return "refused", seconds, megabytes, text[-300:]


def queued(pid: int | None) -> float:
    """Seconds that a process and those that it started have waited for a core while others had it."""
    delays = [0]
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        delays = [int(Path(f"/proc/{each}/schedstat").read_text().split()[1]) for each in (str(pid), *children)]
    return sum(delays) / 1e9


def child(words: tuple[str, ...], folder: Path, said: Path) -> None:
    """The life of a process that runs one command."""
    os.setpgid(0, 0)
    os.chdir(folder)
    shorten_runs()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(errors, 2)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.argv = ["adagpr", *words]
    code: Any = 1
    try:
        run_command()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        megabytes = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
        (folder.parent / "peak").write_text(f"{megabytes} {queued(os.getpid())}")
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def make(kind: str, folder: Path) -> None:
    """Healthy files of one kind."""
    os.chdir(folder)
    shorten_runs()
    KINDS[kind].make()


def shorten_runs() -> None:
    """Has runs of the paper's rows that are reproduced take two epochs, in this process."""
    for row in ("hop0_adagpr_texas", "table3_adagpr_texas"):
        catalogue()[row].options["max_epochs"] = 2


def make_alone(kind: str, folder: Path) -> None:
    """Healthy files of one kind in a new subfolder, made by a process of its own."""
    (folder / kind).mkdir()
    process = multiprocessing.get_context("fork").Process(target=make, args=(kind, folder / kind))
    process.start()
    process.join()


def make_healthy(kinds: list[str], folder: Path) -> dict[str, float]:
    """Healthy files of each kind; checks that every command reads them, and returns the largest memory of each kind."""
    found = {}
    for kind in kinds:
        make_alone(kind, folder)
        peaks = []
        for command in KINDS[kind].commands:
            with tempfile.TemporaryDirectory() as name:
                copy = Path(name) / "case"
                shutil.copytree(folder / kind, copy)
                outcome, _, megabytes, message = observe(command, copy)
                if outcome != "read":
                    raise SystemExit(
                        f"{kind}: the healthy files are not read by {' '.join(command)}: {outcome}: {message}"
                    )
                peaks.append(megabytes)
        found[kind] = max(peaks)
    return found


def main() -> None:
    """Reads the command line, damages, and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="in all, the same number of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=sorted(KINDS))
    parser.add_argument("--only", type=int, help="the number of one case")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    each = -(-asked.cases // len(asked.kinds))
    numbers = range(each) if asked.only is None else [asked.only]
    began = time.monotonic()
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="attack-healthy-") as name, ProcessPoolExecutor(asked.jobs, fork) as pool:
        healthy = make_healthy(asked.kinds, Path(name))
        todo = [(kind, number, asked.seed, Path(name)) for number in numbers for kind in asked.kinds]
        cases = []
        for case in pool.map(run_case, *zip(*todo, strict=True)):
            cases.append(case)
            if case.outcome not in ("read", "refused") or asked.only is not None:
                print(json.dumps(asdict(case), indent=1, ensure_ascii=True), flush=True)
    counts = {kind: dict(Counter(case.outcome for case in cases if case.kind == kind)) for kind in asked.kinds}
    bad = [asdict(case) for case in cases if case.outcome not in ("read", "refused")]
    record = {
        "seed": asked.seed,
        "num_cases": len(cases),
        "outcomes": counts,
        "damages": dict(Counter(case.damage.split(": ", 1)[1].split(",")[0] for case in cases)),
        "bad": bad,
        "machine": {
            **describe_machine(time.monotonic() - began),
            "healthy_megabytes": healthy,
            "most_megabytes": {
                kind: max(case.megabytes for case in cases if case.kind == kind) for kind in asked.kinds
            },
            "most_seconds": {
                kind: round(max(case.seconds for case in cases if case.kind == kind), 2) for kind in asked.kinds
            },
        },
    }
    print(json.dumps(counts, indent=1))
    if asked.out is not None:
        write_json(asked.out, record)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
