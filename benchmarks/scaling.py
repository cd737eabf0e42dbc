"""What a training costs, predicted and measured, and what it would cost on a graph a hundred times as large.

python benchmarks/scaling.py              # measures what is missing in results/scaling.json, writes docs/scaling.md
python benchmarks/scaling.py --again      # measures all anew
python benchmarks/scaling.py --table      # prints the page

Epochs of R-MAT graphs are timed on one thread, each size in a process of its own; Cora is trained by two ranks. The
words of the page are in ``benchmarks/scaling.md``, the counts in `benchmarks/cost.py`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from math import floor, log10
from pathlib import Path
from statistics import fmean, median
from typing import Any

import cost
import numpy as np
import pyarrow.parquet as pq
from cost import Shape, Speeds
from jinja2 import Environment, StrictUndefined
from scipy.optimize import nnls
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from adagpr.benchmarking import DENSE_KERNELS, SPARSE_KERNELS, rmat
from adagpr.data import load, random_split
from adagpr.files import read_json, write_json, write_text
from adagpr.graph import Graph
from adagpr.nn import build
from adagpr.ops import buffer_pool, watch_kernels
from adagpr.partitioning import partition_graph
from adagpr.partitioning.assign import IMBALANCE
from adagpr.partitioning.cut import metis_memory
from adagpr.partitioning.process_group import PATIENCE
from adagpr.system import describe_machine, forget_peak_memory, peak_memory_mb
from adagpr.training import (
    CHECKPOINT_SECONDS,
    State,
    TrainingConfig,
    TrainingData,
    TrainingRun,
    open_run,
    resolve,
    threads,
    training_data,
)

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "results" / "scaling.json", ROOT / "docs" / "scaling.md"
NODES = (10_000, 100_000, 1_000_000)
# All hops of a softmax are kept.
NETWORK: dict[str, Any] = {"num_layers": 4, "hidden_channels": 64, "num_coeffs": 4, "projection": "softmax"}
NUM_PRODUCTS = NETWORK["num_layers"] * (NETWORK["num_coeffs"] - 1)
SIZES = {"channels": NETWORK["hidden_channels"], "num_layers": NETWORK["num_layers"], "num_products": NUM_PRODUCTS}
LEAST_ROUNDS, MOST_ROUNDS, SECONDS = 3, 15, 30.0
RANKS, EPOCHS = 2, 2
PARTS, CORA = 8, {"num_layers": 8, "hidden_channels": 64, "max_epochs": 200}
SEEDS, FIRST_EPOCHS = range(3), 20
KINDS = ("sparse", "dense", "other")
# Without gradients a linear map arrives whole.
PRODUCTS = ("mm", "addmm", "addmm_", "linear")
CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")

# ogbn-papers100M (Hu et al., 2020), each of its 1,615,685,872 edges stored both ways.
EDGES = 1_615_685_872
PAPERS = Shape(num_nodes=111_059_956, num_entries=2 * EDGES, num_features=128, num_classes=172, **SIZES)
# Of the plan: memory that a training may take, cores and disk of a machine, epochs, shares of entries that are cut.
USABLE, CORES, DISK, PLANNED = 0.8, 32, 2e9, 100
CUTS, CUT = (0.05, 0.1, 0.2, 0.5), 0.2
PARTS_OF_BATCH = 20


# What is measured.


class Clock(TorchDispatchMode):
    """Seconds that matrix products take, sparse and dense, of torch's and by kernels, where they stand in an epoch."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds = {"sparse": 0.0, "dense": 0.0}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ not in PRODUCTS:
            return func(*args, **(kwargs or {}))
        kind = "sparse" if any(isinstance(item, Tensor) and item.is_sparse_csr for item in args) else "dense"
        return self._timed(kind, lambda: func(*args, **(kwargs or {})))

    def kernel(self, name: str, arguments: dict[str, Any], run: Callable[[], None]) -> None:
        """Told of every kernel; see `adagpr.ops.watch_kernels`."""
        kind = "sparse" if name in SPARSE_KERNELS else "dense" if name in DENSE_KERNELS else None
        if kind is None:
            run()
        else:
            self._timed(kind, run)

    def _timed(self, kind: str, run: Callable[[], Any]) -> Any:
        began = time.thread_time()
        result = run()
        self.seconds[kind] += time.thread_time() - began
        return result


def measured(num_nodes: int) -> dict[str, Any]:
    """Seconds of an epoch by kind of operation, and memory, on one thread of this process."""
    # A tiny graph shows what the clock takes, and has libraries load what they load at the first epoch.
    tiny = timed(rmat(100))
    graph = rmat(num_nodes)
    gc.collect()
    before = resident_mb()
    found = timed(graph)
    found["other"] -= sum(tiny[kind] for kind in KINDS) - tiny["epoch"]
    scale = found["epoch"] / sum(found[kind] for kind in KINDS)
    reads = np.bincount(graph.adj.indices, minlength=num_nodes) + 1
    cache = own_cache()
    return {
        "num_nodes": num_nodes,
        "num_entries": graph.num_edges,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "missing": cost.missing_share(reads, cache // (4 * NETWORK["hidden_channels"])),
        "cache": cache,
        "seconds": {"epoch": found["epoch"], **{kind: scale * found[kind] for kind in KINDS}},
        "process_mb": peak_memory_mb() - before,
    }


def timed(graph: Graph) -> dict[str, float]:
    """Seconds of an epoch, and of the kinds of operations in an epoch under the clock, which takes some time itself."""
    options = {**NETWORK, "num_threads": 1, "recompute": False, "patience": None}
    rounds: list[dict[str, float]] = []
    split = random_split(graph.y)
    with open_run(graph, split, resolve(graph, split, "adagpr", options), None) as opened:
        if not isinstance(opened, TrainingRun):
            raise TypeError("A training without a folder cannot be complete.")
        train_epoch(opened.state, opened.data)
        began = time.monotonic()
        while len(rounds) < LEAST_ROUNDS or (time.monotonic() - began < SECONDS and len(rounds) < MOST_ROUNDS):
            whole = train_epoch(opened.state, opened.data)
            with Clock() as clock, watch_kernels(clock.kernel):
                clocked = train_epoch(opened.state, opened.data)
            other = clocked - sum(clock.seconds.values())
            rounds.append({"epoch": whole, **clock.seconds, "other": other})
    return {key: median(item[key] for item in rounds) for key in rounds[0]}


def train_epoch(state: State, inputs: TrainingData) -> float:
    """Trains for one epoch; returns the time of this thread, which stands still while others have its core."""
    began = time.thread_time()
    loss = inputs.step(state)
    state.add_epoch(loss, inputs.measure(state.model), state.model.coefficients())
    return time.thread_time() - began


def weighed(num_nodes: int) -> dict[str, float]:
    """MB that are in use at the peak of an epoch, where this process gives back what it frees; see `in_own_process`."""
    for count in (100, num_nodes):
        graph = rmat(count)
        config = TrainingConfig(num_threads=1, recompute=False)
        sizes = {"in_channels": graph.num_features, "out_channels": graph.num_classes}
        model = build("adagpr", {**NETWORK, **sizes})
        gc.collect()
        before = resident_mb()
        forget_peak_memory()
        with buffer_pool(), threads(1):
            inputs = training_data(graph, random_split(graph.y), config, model)
            train_epoch(State(model, config), inputs)
    return {"memory_mb": peak_memory_mb() - before}


def resident_mb() -> float:
    """Memory of this process now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def own_cache() -> int:
    """Bytes of the second cache of a core, which no other core shares; 512 kB where the system does not say."""
    return int(CACHE.read_text().strip().removesuffix("K")) * 1024 if CACHE.exists() else 512 * 1024


def in_own_process(what: str, num_nodes: int) -> dict[str, Any]:
    """What `measured` or `weighed` finds in a fresh process."""
    # The C library's cache of freed blocks has to be off for memory that is resident to be in use.
    environment = {**os.environ, **({"MALLOC_MMAP_THRESHOLD_": "65536"} if what == "weighed" else {})}
    command = [sys.executable, __file__, "--measure", what, str(num_nodes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def train(parts: Path, out: Path, options: Mapping[str, Any], *words: str) -> dict[str, Any]:
    """Trains on a partition with two ranks; returns the record."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(found.getsockname()[1])}
    settings = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "adagpr", "train", "--partitions", str(parts), "--out", str(out), "--json"]
    ranks = []
    for rank in range(RANKS):
        own = {**address, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
        environment = {**os.environ, **own, "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen([*command, *settings, *words], env=environment, stdout=subprocess.DEVNULL))
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise SystemExit("A training by two ranks failed.")
    record: dict[str, Any] = read_json(out / "record.json")
    return record


def measure_border(folder: Path) -> dict[str, Any]:
    """Bytes that two ranks send on the smallest graph, counted by them and by the cost model."""
    graph = rmat(min(NODES))
    parts = partition_graph(graph, random_split(graph.y), RANKS, folder / "parts")
    record = train(folder / "parts", folder / "run", {**NETWORK, "max_epochs": EPOCHS})
    # Three products a hop in each epoch, and one more for the logits of the run's end.
    num_products = NUM_PRODUCTS * (3 * EPOCHS + 1)
    return {
        "ranks": RANKS,
        "epochs": EPOCHS,
        "num_nodes": graph.num_nodes,
        "num_entries": graph.num_edges,
        "cut": parts.manifest.edge_cut / graph.num_edges,
        "rows": cost.border_rows(parts, RANKS),
        "counted": cost.border_bytes(parts, RANKS, NETWORK["hidden_channels"], num_products),
        "sent": record["machine"]["bytes_sent"],
    }


def measure_precision(folder: Path) -> dict[str, Any]:
    """Cora with rows that travel in either precision: accuracies, losses of the first epochs, and bytes."""
    graph, (split,) = load("cora", split="public")
    partition_graph(graph, split, PARTS, folder / "parts")
    found: dict[str, list[dict[str, Any]]] = {"float32": [], "bfloat16": []}
    for border, runs in found.items():
        for seed in SEEDS:
            out = folder / f"{border}-{seed}"
            record = train(folder / "parts", out, CORA, "--border", border, "--seed", str(seed))
            history = pq.read_table(out / "history.parquet")
            result = {
                "test_acc": record["result"]["scores"]["test"]["accuracy"],
                "bytes_sent": record["machine"]["bytes_sent"],
            }
            runs.append({"seed": seed, **result, "val_loss": history["val_loss"].to_pylist()[:FIRST_EPOCHS]})
    return {"options": CORA, "parts": PARTS, "ranks": RANKS, "runs": found}


def run(record_path: Path, nodes: Sequence[int], again: bool) -> None:
    """Measures what is not recorded yet, and records each thing as soon as it is known."""
    record: dict[str, Any] = {} if again or not record_path.exists() else read_json(record_path)
    began = time.perf_counter()

    def keep(key: str, value: Any) -> None:
        record[key] = value
        record["machine"] = {**describe_machine(time.perf_counter() - began), "processor": processor()}
        write_json(record_path, record)

    for count in nodes:
        if str(count) not in record.get("sizes", {}):
            print(f"{count:,} nodes", flush=True)
            found = in_own_process("measured", count) | in_own_process("weighed", count)
            keep("sizes", {**record.get("sizes", {}), str(count): found})
    others: dict[str, Callable[[Path], Any]] = {"border": measure_border, "precision": measure_precision}
    for key, measure in others.items():
        if key not in record:
            print(key, flush=True)
            with tempfile.TemporaryDirectory() as name:
                keep(key, measure(Path(name)))


def processor() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


# What the cost model makes of it.


def units() -> dict[str, dict[str, int]]:
    """What one more of each thing adds to the operations and bytes of a node that has one channel and nothing else."""
    one = Shape(1, 0, 0, 0, channels=1, num_layers=0, num_products=0)
    more = {
        "node": replace(one, num_nodes=2),
        "entry": replace(one, num_entries=1),
        "layer": replace(one, num_layers=1),
        "hop": replace(one, num_products=1),
        "feature": replace(one, num_features=1),
        "class": replace(one, num_classes=1),
        "channel": replace(one, channels=2),
        "recompute": replace(one, recompute=True),
        "bfloat16": replace(one, kept_size=2),
    }
    alone = counts(one)
    return {name: {key: value - alone[key] for key, value in counts(shape).items()} for name, shape in more.items()}


def counts(shape: Shape) -> dict[str, int]:
    """Operations and bytes of a training, those of the parameters apart."""
    used = sum(value for key, value in cost.memory(shape).items() if key != "parameters")
    disk = cost.disk_space(shape, 0)
    rows, matrices = disk["normalised rows"], disk["matrices"] // shape.matrix
    found = {"bytes": used, "reading": cost.reading_memory(shape), "rows": rows, "matrices": matrices}
    return {**asdict(cost.operations(shape)), **found}


def fitted(sizes: Sequence[Mapping[str, Any]]) -> Speeds:
    """The speeds that leave the smallest squares of relative errors, kind by kind; none is negative."""
    work = [cost.operations(shape_of(size)) for size in sizes]
    seconds = {kind: [size["seconds"][kind] for size in sizes] for kind in KINDS}
    shares = [size["missing"] for size in sizes]
    sparse = [[item.sparse * (1 - share), item.sparse * share] for item, share in zip(work, shares, strict=True)]
    cached, missed = relative_fit(sparse, seconds["sparse"])
    (dense,) = relative_fit([[item.dense] for item in work], seconds["dense"])
    (element,) = relative_fit([[item.elements] for item in work], seconds["other"])
    return Speeds(cached, missed, dense, element)


def predicted(size: Mapping[str, Any], speeds: Speeds) -> dict[str, float]:
    """Seconds of an epoch by kind, and memory."""
    shape = shape_of(size)
    work = cost.operations(shape)
    kinds = {"sparse": replace(work, dense=0, elements=0), "dense": replace(work, sparse=0, elements=0)}
    kinds |= {"other": replace(work, sparse=0, dense=0), "epoch": work}
    found = {kind: cost.seconds(item, speeds, size["missing"]) for kind, item in kinds.items()}
    # Features and labels are there before a training begins.
    counted = sum(value for key, value in cost.memory(shape).items() if key != "features")
    return {**found, "memory_mb": counted / 2**20}


def relative_fit(counts: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Seconds of each kind of operation, none negative, by least squares of relative errors."""
    values = np.array(counts) / np.array(seconds)[:, None]
    scale = values.max(axis=0)
    found, _ = nnls(values / scale, np.ones(len(values)))
    result: list[float] = (found / scale).tolist()
    return result


def shape_of(size: Mapping[str, Any]) -> Shape:
    """The shape of a training that was measured."""
    graph = {key: size[key] for key in ("num_nodes", "num_entries", "num_features", "num_classes")}
    return Shape(**graph, **SIZES)


def compared(record: Mapping[str, Any]) -> dict[str, Any]:
    """All sizes with what was measured and predicted, by speeds fitted on all but the largest."""
    sizes = sorted(record["sizes"].values(), key=lambda size: int(size["num_nodes"]))
    speeds, rows = fitted(sizes[:-1]), []
    for size in sizes:
        found, guess = {**size["seconds"], "memory_mb": size["memory_mb"]}, predicted(size, speeds)
        rows.append({**size, "found": found, "guess": guess, "ratio": {key: guess[key] / found[key] for key in guess}})
    return {"sizes": rows, "speeds": speeds, "final": fitted(sizes)}


def precision(record: Mapping[str, Any]) -> dict[str, Any]:
    """Both precisions side by side."""
    found = record["precision"]
    pairs = list(zip(found["runs"]["float32"], found["runs"]["bfloat16"], strict=True))
    losses = [run["val_loss"] for run in found["runs"]["float32"]]
    means = {
        border: {key: fmean(run[key] for run in runs) for key in ("test_acc", "bytes_sent")}
        for border, runs in found["runs"].items()
    }
    largest = max(distance(one["val_loss"], other["val_loss"]) for one, other in pairs)
    between = min(distance(one, other) for one, other in combinations(losses, 2))
    return {**found, **means, "pairs": pairs, "largest": largest, "between": between, "epochs": len(losses[0])}


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference of two histories."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


# The plan.


def num_machines(shape: Shape, gigabytes: float, cut: float) -> int:
    """Machines that hold a training; the largest share is taken to be as uneven as a partition may be."""
    room = USABLE * gigabytes * 1e9
    return next(size for size in range(2, 10_000) if share_bytes(shape, size, cut) <= room)


def share_bytes(shape: Shape, size: int, cut: float) -> float:
    """Bytes at the peak of the largest of so many shares, that of reading it included."""
    rows = cost.expected_border_rows(shape, size, cut)
    used = sum(cost.shared_memory(shape, size, rows).values())
    return (1 + IMBALANCE) * max(used, cost.reading_memory(shape.share(size)))


def plan(speeds: Speeds) -> dict[str, Any]:
    """ogbn-papers100M, exactly on several machines and in batches on one."""
    variants = {
        "as it is": PAPERS,
        "`recompute=true`": replace(PAPERS, recompute=True),
        "`activations=bfloat16`": replace(PAPERS, kept_size=2),
        "both": replace(PAPERS, recompute=True, kept_size=2),
    }
    size = num_machines(PAPERS, 64, CUT)
    return {
        "shape": PAPERS,
        "edges": EDGES,
        "work": cost.operations(PAPERS),
        "size": size,
        "memory": total(PAPERS, size),
        "variants": {name: variant(shape, speeds) for name, shape in variants.items()},
        "network": [network(gigabytes, cut, speeds) for gigabytes in (64, 256) for cut in CUTS],
        "batches": batches(speeds),
        "metis_gb": metis_memory(PAPERS.num_entries, 0) / 1e9,
        "gradient_mb": cost.gradient_bytes(PAPERS, size) / size / 1e6,
        "usable": USABLE,
        "cores": CORES,
        "disk": DISK,
        "epochs": PLANNED,
        "cut": CUT,
        "uneven": IMBALANCE,
    }


def variant(shape: Shape, speeds: Speeds) -> dict[str, float]:
    """Memory, machines and core hours of one way to keep what the backward pass needs."""
    size = num_machines(shape, 64, CUT)
    hours = PLANNED * cost.seconds(cost.operations(shape), speeds) / 3600
    return {
        "gigabytes": sum(total(shape, size).values()),
        "small": size,
        "large": num_machines(shape, 256, CUT),
        "core_hours": hours,
    }


def total(shape: Shape, size: int) -> dict[str, float]:
    """GB of all machines together, by what they are for."""
    rows = cost.expected_border_rows(shape, size, CUT)
    return {key: size * value / 1e9 for key, value in cost.shared_memory(shape, size, rows).items()}


def network(gigabytes: int, cut: float, speeds: Speeds) -> dict[str, Any]:
    """Machines of one kind, what they send for the products of an epoch, and the hours of all epochs."""
    size = num_machines(PAPERS, gigabytes, cut)
    rows = cost.expected_border_rows(PAPERS, size, cut)
    sent = rows * PAPERS.channels * 4 * 3 * PAPERS.num_products
    hours = {rate: PLANNED * sent / size / (rate * 1e9 / 8) / 3600 for rate in (10, 100)}
    compute = PLANNED * cost.seconds(cost.operations(PAPERS), speeds) / 3600 / CORES / size
    found = {"gigabytes": gigabytes, "cut": cut, "size": size, "rows": rows, "sent": sent}
    return {**found, "hours": hours, "compute": compute}


def batches(speeds: Speeds, gigabytes: float = 64) -> dict[str, Any]:
    """One machine with batches of parts: how many, disk, and hours."""

    def used(count: int) -> float:
        return (1 + IMBALANCE) * sum(cost.batch_memory(PAPERS, count).values())

    count = next(count for count in range(1, 10_000) if used(count) <= USABLE * gigabytes * 1e9)
    halo = cost.expected_border_rows(PAPERS, count * PARTS_OF_BATCH, CUT)
    traffic = cost.disk_traffic(PAPERS, halo)
    core_seconds = cost.seconds(cost.operations(PAPERS), speeds)
    return {
        "count": count,
        "parts": count * PARTS_OF_BATCH,
        "per_batch": PARTS_OF_BATCH,
        "gigabytes": used(count) / 1e9,
        "space": {key: value / 1e9 for key, value in cost.disk_space(PAPERS, halo).items()},
        "traffic": traffic,
        "hours": {"compute": PLANNED * core_seconds / CORES / 3600, "disk": PLANNED * traffic / DISK / 3600},
    }


# The page.


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.{max(0, 2 - floor(log10(abs(rounded)))) if rounded else 0}f}"


def page(record: Mapping[str, Any]) -> str:
    """The page from the record and its words."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)  # noqa: S701 - Markdown
    environment.filters |= {"number": number, "whole": lambda value: f"{round(value):,}"}
    environment.filters["percent"] = lambda value: f"{100 * value:.3g} %"
    words = (Path(__file__).parent / "scaling.md").read_text(encoding="utf-8")
    found, border = compared(record), record["border"]
    graph = Shape(border["num_nodes"], border["num_entries"], 0, 0)
    named = {"border": border, "precision": precision(record), "machine": record["machine"]}
    named |= {"patience": PATIENCE.total_seconds() / 60, "checkpoint": CHECKPOINT_SECONDS}
    named |= {"units": units(), "matrices": counts(graph)["matrices"], "options": NETWORK}
    expected = cost.expected_border_rows(graph, border["ranks"], border["cut"])
    text: str = environment.from_string(words).render(
        **named, **found, plan=plan(found["final"]), expected_rows=expected
    )
    return text.rstrip("\n") + "\n"


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="measure what is recorded, too")
    parser.add_argument("--table", action="store_true", help="print the page instead of measuring")
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES, help="sizes of the graphs")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "NODES"), help="measured or weighed, in this process")
    given = parser.parse_args()
    if given.measure is not None:
        what, count = given.measure
        print(json.dumps({"measured": measured, "weighed": weighed}[what](int(count))))
    elif given.table:
        sys.stdout.write(page(read_json(given.record)))
    else:
        run(given.record, given.nodes, given.again)
        write_text(given.page, page(read_json(given.record)))


if __name__ == "__main__":
    main()
