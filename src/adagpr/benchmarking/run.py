"""Runs the cases of the benchmark and keeps a record of each.

An epoch is one training step and one evaluation with its losses and accuracies. ``ours`` goes through the steps of
`adagpr.training.fit` with the threads that `adagpr.fit` chooses. The rivals take the same steps with torch's Adam as
it comes, on one thread or on all that the case allows, whichever a trial finds faster. All start from equal parameters,
and the largest difference of their logits from ours is recorded beside the times.
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from adagpr.benchmarking.cases import OURS, Case, build_model, cases, load_graph
from adagpr.benchmarking.measure import peak_memory, ratios, side_by_side, spread
from adagpr.benchmarking.rivals import rival_class
from adagpr.benchmarking.ways import WayProcess, memory_step, way_process
from adagpr.errors import AdaGPRError, InputError
from adagpr.experiments import experiment
from adagpr.files import make_folder, read_json, write_json
from adagpr.system import describe_machine

__all__ = ["run_case", "run_set", "time_to_accuracy"]

# A way whose epoch is shorter runs as many as fill so many seconds when it is its turn.
_TURN = 0.25


def run_case(case: Case) -> dict[str, Any]:
    """Measures all ways of one case and returns the record.

    The record has the keys ``format``, ``case``, ``data`` (sizes), ``ways`` and ``machine``. A way whose library is
    missing has a ``status`` that says so, and nothing else. The others have, where timed, ``num_threads``, ``trials``
    (seconds by threads), ``largest_difference``, ``seconds`` of an epoch and ``ratio`` to ours, both with quartiles;
    where weighed, ``memory_mb`` of a training step or, if that failed, ``memory_failed``.
    """
    started = time.perf_counter()
    graph, split = load_graph(case)
    _, config = build_model(case, graph, split)
    data = {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "num_features": graph.num_features}
    del graph, split
    ways = {way: {"status": _status(way)} for way in case.ways}
    measured = [way for way, entry in ways.items() if entry["status"] == "measured"]
    if case.is_timed:
        times = _timed(case, measured, config.num_threads or 1)
        ways |= {way: {**ways[way], **entry} for way, entry in times.items()}
    if case.measures_memory:
        ways |= {way: {**ways[way], **_weighed(case, way)} for way in measured}
    machine = {**describe_machine(time.perf_counter() - started), "processor": _processor()}
    return {"format": 1, "case": case.plain(), "data": data, "ways": ways, "machine": machine}


def run_set(
    name: str, out: Path, on_case: Callable[[Case, dict[str, Any]], None] | None = None
) -> list[dict[str, Any]]:
    """Runs the cases of a set whose records are not under ``out`` yet, and returns all records.

    Args:
        name: Name of the set; see `adagpr.benchmarking.SETS`.
        out: Folder of the records, one file a case.
        on_case: Called with each case and its record as soon as it is there.
    """
    make_folder(out)
    records: list[dict[str, Any]] = []
    for case in cases(name):
        path = out / f"{case.name}.json"
        record = read_json(path) if path.exists() else None
        if record is None or Case.from_plain(record["case"]) != case:
            record = run_case(case)
            write_json(path, record)
        records.append(record)
        if on_case is not None:
            on_case(case, record)
    return records


def time_to_accuracy(
    dataset: str, ways: Sequence[str], target: float, *, training: Mapping[str, Any], timing: Mapping[str, Any]
) -> dict[str, Any]:
    """Seconds of training until the epoch that the stopping rule chose, for each way.

    Defined as the best epoch of a recorded run, chosen on the validation nodes, times the seconds per epoch of each
    way. All ways compute the same network, so they are given equal epochs; no test node chooses anything. Computed for
    the paper's own settings only: AdaGPR of 8 layers on Cora, the row ``table2_adagpr_cora`` of the catalogue.

    Args:
        dataset: ``cora``.
        ways: Which ways of ``timing``.
        target: The accuracy that the paper prints, in percent; stands beside the one reached.
        training: Record of that row, as `adagpr.experiments.run_cells` keeps it.
        timing: Record of the headline case of 8 layers, from `run_case`.
    """
    cell = next(cell for cell in experiment("table2_adagpr_cora").cells() if cell.layers == 8)
    sizes = ("num_layers", "hidden_channels", "num_coeffs")
    if training["dataset"] != dataset or training["options"] != cell.options:
        raise InputError("time_to_accuracy: training must be the record of table2_adagpr_cora with 8 layers.")
    if timing["case"]["graph"] != dataset or any(timing["case"][key] != cell.options[key] for key in sizes):
        raise InputError(f"time_to_accuracy: timing must be that of the same network on {dataset}.")
    run = training["runs"][0]
    epochs = run["best_epoch"]
    return {
        "dataset": dataset,
        "target": target,
        "test_acc": round(100 * run["test_acc"], 2),
        "best_epoch": epochs,
        "seconds": {way: round(epochs * timing["ways"][way]["seconds"]["median"], 3) for way in ways},
    }


def _timed(case: Case, names: list[str], threads_of_ours: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        ways = {name: stack.enter_context(way_process(case, name, folder)) for name in names}
        for name, way in ways.items():
            counts = {min(threads_of_ours, case.threads)} if name == OURS else {1, case.threads}
            trials = {count: _trial(way, count) for count in sorted(counts)}
            best = min(trials, key=lambda count: trials[count])
            difference = float(np.abs(way.logits - ways[OURS].logits).max())
            rounded = {str(count): round(seconds, 6) for count, seconds in trials.items()}
            found[name] = {"num_threads": best, "trials": rounded, "largest_difference": difference}
        times = _in_turn(case, ways, found)
    for name, seconds in times.items():
        found[name]["seconds"] = spread(seconds).plain()
    for name, ratio in ratios(times, of=OURS).items():
        found[name]["ratio"] = ratio.plain()
    return found


def _in_turn(case: Case, ways: Mapping[str, WayProcess], found: Mapping[str, Any]) -> dict[str, list[float]]:
    """Seconds of an epoch of each way, round by round."""
    quickest = {name: min(found[name]["trials"].values()) for name in ways}
    # Epochs follow one another in a training, so that a turn is several of them; the trials have warmed all ways up.
    counts = {name: math.ceil(_TURN / seconds) for name, seconds in quickest.items()}
    # Each way may take an equal share of the budget; what is slower runs in fewer rounds, but three times at least.
    most, share = max(1, (case.rounds - 1) // 2), case.budget / len(ways)
    every = {name: math.ceil(case.rounds * counts[name] * quickest[name] / share) for name in ways}
    every = {name: min(most, max(1, value)) for name, value in every.items()}
    # Without ours a round has nothing to compare with.
    every[OURS] = 1

    def worker(name: str) -> Callable[[], float]:
        return lambda: ways[name].epochs(counts[name], found[name]["num_threads"])

    times = side_by_side({name: worker(name) for name in ways}, case.rounds, every, case.budget)
    return {name: [value / counts[name] for value in seconds] for name, seconds in times.items()}


def _trial(way: WayProcess, num_threads: int) -> float:
    """A quick look: the shortest of up to three epochs within a second, after one to warm up."""
    way.epochs(1, num_threads)
    found: list[float] = []
    while len(found) < 3 and sum(found) < 1:
        found.append(way.epochs(1, num_threads))
    return min(found)


def _weighed(case: Case, way: str) -> dict[str, Any]:
    try:
        memory = peak_memory(f"{memory_step.__module__}:{memory_step.__name__}", json.dumps(case.plain()), way)
    except AdaGPRError as error:
        return {"memory_failed": str(error)}
    return {"memory_mb": {key: round(value, 1) for key, value in asdict(memory).items()}}


def _status(way: str) -> str:
    try:
        if way != OURS:
            rival_class(way)
    except ImportError as error:
        return f"not available: {error}"
    return "measured"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
