"""Runs the cases of the benchmark and keeps a record of each.

An epoch is one training step and one evaluation with its losses and accuracies. ``ours`` takes the steps of
`adagpr.fit` with the threads that it chooses. The baselines take the same steps with torch's Adam as it comes, on one
thread or on all that the case allows, whichever a trial finds faster. All start from equal parameters, and the largest
difference of their logits from ours is recorded beside the times. ``adagpr-signed`` is another network beside them.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from adagpr.benchmarking.baselines import baseline_class
from adagpr.benchmarking.cases import OURS, SIGNED, Case, build_model, cases, load_graph
from adagpr.benchmarking.implementations import ImplementationProcess, implementation_process, step_memory
from adagpr.benchmarking.measure import ratios, side_by_side, spread
from adagpr.benchmarking.profile import Profile, profile_epoch
from adagpr.errors import AdaGPRError, reason_of
from adagpr.files import make_folder, read_json, write_json
from adagpr.ops import buffer_pool, compute_threads
from adagpr.system import describe_machine, keep_freed_memory
from adagpr.training import State, training_data

Record = dict[str, Any]

# An implementation whose epoch is shorter runs as many as fill so many seconds when it is its turn.
_TURN = 0.25


@dataclass(frozen=True)
class Benchmark:
    """What `bench` found."""

    records: tuple[Record, ...] = ()  # one per case, where implementations were compared; see `run_case`
    profiles: Mapping[str, Profile] = field(default_factory=dict)  # by case, where an epoch was profiled

    def to_plain(self) -> Any:
        """The records, or the profiles by case, ready for JSON."""
        return list(self.records) or {name: profile.to_plain() for name, profile in self.profiles.items()}

    def markdown(self) -> str:
        """One row per case and implementation: threads, time of an epoch, its ratio to ours, and memory."""
        lines = [
            "| case | way | threads | ms per epoch | times ours | step MB | process MB |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for record in self.records:
            for way, entry in record["ways"].items():
                seconds, memory = entry.get("seconds"), entry.get("memory_mb", {})
                time = _spread({key: 1000 * value for key, value in seconds.items()}) if seconds else ""
                if entry["status"] != "measured":
                    time = entry["status"]
                cells = [record["case"]["name"], way, str(entry.get("num_threads", "")), time]
                cells += [_spread(entry["ratio"]) if "ratio" in entry else ""]
                cells += [f"{memory[key]:.0f}" if key in memory else "" for key in ("step", "total")]
                lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def bench(
    name: str = "headline",
    out: Path | str = "bench",
    *,
    profile: bool = False,
    on_case: Callable[[Case, Record | Profile], None] | None = None,
) -> Benchmark:
    """Times AdaGPR side by side with other implementations of it, or shows where an epoch spends its time.

    Args:
        name: Name of the set of cases; see `adagpr.benchmarking.SETS`.
        out: Folder of the records, one file per case. A case with a record is not measured again; a profile is always
            made anew, with a flame graph for https://www.speedscope.app beside it.
        profile: Take one epoch of each case apart instead of comparing.
        on_case: Called with each case and its record or profile as soon as it is there.
    """
    chosen, folder = cases(name), Path(out)
    make_folder(folder)
    records: list[Record] = []
    profiles: dict[str, Profile] = {}
    for case in chosen:
        if profile:
            profiles[case.name] = _profile(case, folder)
        else:
            records.append(_recorded(case, folder / f"{case.name}.json"))
        if on_case is not None:
            on_case(case, profiles[case.name] if profile else records[-1])
    return Benchmark(tuple(records), profiles)


def _recorded(case: Case, path: Path) -> Record:
    record: Record | None = read_json(path) if path.exists() else None
    if record is None or Case.from_plain(record["case"]) != case:
        record = run_case(case)
        write_json(path, record)
    return record


def _profile(case: Case, folder: Path) -> Profile:
    keep_freed_memory()
    graph, split = load_graph(case)
    setup = build_model(case, graph, split)
    model, config = setup.model, setup.config
    with buffer_pool(), compute_threads(min(setup.threads().most, case.threads)):
        found = profile_epoch(State(model, config), training_data(graph, split, config, model))
    write_json(folder / f"profile-{case.name}.json", found.to_plain())
    write_json(flame_graph_path(case, folder), found.flame_graph(case.name))
    return found


def flame_graph_path(case: Case, folder: Path) -> Path:
    """The file of the flame graph of a case's profile."""
    return folder / f"profile-{case.name}.speedscope.json"


def run_case(case: Case) -> Record:
    """Measures all implementations of one case and returns the record.

    The record has the keys ``format``, ``case``, ``data`` (sizes), ``ways`` and ``machine``. In ``ways``, an
    implementation whose library is missing has only a ``status`` that says so. The others have, if timed,
    ``num_threads``, ``trials`` (seconds by threads), ``largest_difference``, ``seconds`` of an epoch and ``ratio`` to
    ours, both with quartiles; if memory is measured, ``memory_mb`` of a training step or, if that failed,
    ``memory_failed``.
    """
    started = time.perf_counter()
    graph, split = load_graph(case)
    data = {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "num_features": graph.num_features}
    del graph, split
    ways = {way: {"status": _status(way)} for way in case.ways}
    measured = [way for way, entry in ways.items() if entry["status"] == "measured"]
    if case.is_timed:
        times = _timed(case, measured)
        ways |= {way: {**ways[way], **entry} for way, entry in times.items()}
    if case.measures_memory:
        ways |= {way: {**ways[way], **_memory(case, way)} for way in measured}
    machine = {**describe_machine(time.perf_counter() - started), "processor": _processor()}
    return {"format": 1, "case": case.plain(), "data": data, "ways": ways, "machine": machine}


def _timed(case: Case, names: list[str]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        ways = {name: stack.enter_context(implementation_process(case, name, folder)) for name in names}
        for name, way in ways.items():
            trials = {count: _trial(way, count) for count in sorted({1, case.threads})}
            best = min(trials, key=lambda count: trials[count])
            rounded = {str(count): round(seconds, 6) for count, seconds in trials.items()}
            found[name] = {"num_threads": best, "trials": rounded}
            if name != SIGNED:
                found[name]["largest_difference"] = float(np.abs(way.logits - ways[OURS].logits).max())
        times = _in_turn(case, ways, found)
    for name, seconds in times.items():
        found[name]["seconds"] = spread(seconds).plain()
    for name, ratio in ratios(times, of=OURS).items():
        found[name]["ratio"] = ratio.plain()
    return found


def _in_turn(case: Case, ways: Mapping[str, ImplementationProcess], found: Mapping[str, Any]) -> dict[str, list[float]]:
    """Seconds of an epoch of each implementation, round by round."""
    quickest = {name: min(found[name]["trials"].values()) for name in ways}
    # Epochs follow one another in a training, so that a turn is several of them; the trials have warmed all up.
    counts = {name: math.ceil(_TURN / seconds) for name, seconds in quickest.items()}
    # Each may take an equal share of the budget; what is slower runs in fewer rounds, but three times at least.
    most, share = max(1, (case.rounds - 1) // 2), case.budget / len(ways)
    every = {name: math.ceil(case.rounds * counts[name] * quickest[name] / share) for name in ways}
    every = {name: min(most, max(1, value)) for name, value in every.items()}
    # Without ours a round has nothing to compare with.
    every[OURS] = 1
    work = {name: partial(way.epochs, counts[name], found[name]["num_threads"]) for name, way in ways.items()}
    times = side_by_side(work, case.rounds, every, case.budget)
    return {name: [value / counts[name] for value in seconds] for name, seconds in times.items()}


def _trial(way: ImplementationProcess, num_threads: int) -> float:
    """A quick look: the shortest of up to three epochs within a second, after one to warm up."""
    way.epochs(1, num_threads)
    found: list[float] = []
    while len(found) < 3 and sum(found) < 1:
        found.append(way.epochs(1, num_threads))
    return min(found)


def _memory(case: Case, way: str) -> Record:
    try:
        return {"memory_mb": step_memory(case, way)}
    except AdaGPRError as error:
        return {"memory_failed": str(error)}


def _status(way: str) -> str:
    try:
        if way not in (OURS, SIGNED):
            baseline_class(way)
    except ImportError as error:
        return f"not available: {reason_of(error)}"
    return "measured"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _spread(values: Mapping[str, float]) -> str:
    return f"{_number(values['median'])} ({_number(values['lower'])} to {_number(values['upper'])})"


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"
