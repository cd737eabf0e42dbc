"""Runs the cases of the benchmark and keeps a record of each.

An epoch is one training step and one evaluation with its losses and accuracies. ``ours`` goes through the steps of
`adagpr.training.loop` with the threads that `adagpr.fit` chooses. The rivals take the same steps with torch's Adam as
it comes, on one thread or on all that the case allows, whichever a trial finds faster. All start from equal parameters,
and the largest difference of their logits from ours is recorded beside the times.
"""

from __future__ import annotations

import json
import math
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr.bench.cases import OURS, SETTINGS, Case, build_model, cases, load_graph
from adagpr.bench.measure import peak_memory, ratios, shortest, side_by_side, spread
from adagpr.bench.rivals import rival_class
from adagpr.errors import AdaGPRError, InputError
from adagpr.experiments import experiment
from adagpr.files import make_folder, read_json, write_json
from adagpr.graph import Graph, Split
from adagpr.metrics import accuracy
from adagpr.nn import AdaGPR
from adagpr.ops import features, operator
from adagpr.training import Epoch, TrainingConfig
from adagpr.training.loop import Inputs, State, evaluate, train_step
from adagpr.training.machine import describe_machine, keep_freed_memory

__all__ = ["inputs_of", "run_case", "run_set", "time_to_accuracy"]

# A way whose epoch is shorter runs as many as fill so many seconds when it is its turn.
_TURN = 0.25


@dataclass(frozen=True)
class _Way:
    """One way of computing the network, ready to train."""

    step: Callable[[], Tensor]
    logits: Callable[[], Tensor]
    split: Split
    y: Tensor

    def epoch(self) -> Epoch:
        """One training step and one evaluation."""
        loss, logits = self.step(), self.logits()
        train, val, y = self.split.train, self.split.val, self.y
        return Epoch(
            train_loss=loss.item(),
            train_acc=accuracy(logits[train], y[train]),
            val_loss=F.cross_entropy(logits[val], y[val]).item(),
            val_acc=accuracy(logits[val], y[val]),
            penalty=0.0,
        )

    def worker(self, num_threads: int) -> Callable[[], None]:
        """An epoch on so many threads."""

        def work() -> None:
            torch.set_num_threads(num_threads)
            self.epoch()

        return work


def run_case(case: Case) -> dict[str, Any]:
    """Measures all ways of one case and returns the record.

    The record has the keys ``format``, ``case``, ``data`` (sizes), ``ways`` and ``machine``. A way whose library is
    missing has a ``status`` that says so, and nothing else. The others have, where timed, ``num_threads``, ``trials``
    (seconds by threads), ``largest_difference``, ``seconds`` of an epoch and ``ratio`` to ours, both with quartiles;
    where weighed, ``memory_mb`` of a training step or, if that failed, ``memory_failed``.
    """
    started = time.perf_counter()
    keep_freed_memory()
    graph, split = load_graph(case)
    data = {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "num_features": graph.num_features}
    ways = {way: {"status": _status(way)} for way in case.ways}
    measured = [way for way, entry in ways.items() if entry["status"] == "measured"]
    if case.is_timed:
        num_threads = torch.get_num_threads()
        try:
            # torch and torch_geometric warn that sparse tensors are in beta, and not checked.
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                times = _timed(case, measured, graph, split)
        finally:
            torch.set_num_threads(num_threads)
        ways |= {way: {**ways[way], **entry} for way, entry in times.items()}
    del graph, split
    if case.is_weighed:
        ways |= {way: {**ways[way], **_weighed(case, way)} for way in measured}
    machine = {**describe_machine(time.perf_counter() - started), "processor": _processor()}
    return {"format": 1, "case": case.plain(), "data": data, "ways": ways, "machine": machine}


def run_set(
    name: str, out: Path, on_case: Callable[[Case, dict[str, Any]], None] | None = None
) -> list[dict[str, Any]]:
    """Runs the cases of a set whose records are not under ``out`` yet, and returns all records.

    Args:
        name: Name of the set; see `adagpr.bench.SETS`.
        out: Folder of the records, one file a case.
        on_case: Called with each case and its record as soon as it is there.
    """
    make_folder(out)
    records: list[dict[str, Any]] = []
    for case in cases(name):
        path = out / f"{case.name}.json"
        record = read_json(path) if path.exists() else None
        if record is None or record["case"] != case.plain():
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
        training: Record of that row, as `adagpr.experiments.run_cell` keeps it.
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


def memory_step(case_json: str, way: str) -> Callable[[], None]:
    """For `peak_memory`: prepares one way of a case and returns its training step."""
    torch.set_num_threads(1)
    case = Case.from_plain(json.loads(case_json))
    graph, split = load_graph(case)
    ready = _way(way, *build_model(case, graph, split), graph, split)

    def step() -> None:
        ready.step()

    return step


def _timed(case: Case, names: list[str], graph: Graph, split: Split) -> dict[str, dict[str, Any]]:
    torch.manual_seed(0)
    model, config = build_model(case, graph, split)
    ready = {name: _way(name, model, config, graph, split) for name in names}
    logits = ready[OURS].logits()
    found: dict[str, dict[str, Any]] = {}
    for name, way in ready.items():
        difference = float((way.logits() - logits).abs().max())
        counts = {min(config.num_threads or 1, case.threads)} if name == OURS else {1, case.threads}
        trials = {str(count): round(shortest(way.worker(count)), 6) for count in sorted(counts)}
        best = min(trials, key=lambda count: trials[count])
        found[name] = {"num_threads": int(best), "trials": trials, "largest_difference": difference}
    workers = {name: way.worker(found[name]["num_threads"]) for name, way in ready.items()}
    # Each way may take an equal share of the budget; what is slower runs in fewer rounds, but three times at least.
    most, share = max(1, (case.rounds - 1) // 2), case.budget / len(ready)
    turn = {name: max(_TURN, min(entry["trials"].values())) for name, entry in found.items()}
    every = {name: math.ceil(case.rounds * seconds / share) for name, seconds in turn.items()}
    every = {name: min(most, max(1, value)) for name, value in every.items()}
    # Epochs follow one another in a training, so that a turn is several of them; the trials have warmed all ways up.
    turns = {name: math.ceil(_TURN / min(entry["trials"].values())) for name, entry in found.items()}
    times = side_by_side(workers, case.rounds, warmup=0, every=every, repeat=turns, budget=case.budget)
    for name, seconds in times.items():
        found[name]["seconds"] = spread(seconds).plain()
    for name, ratio in ratios(times, of=OURS).items():
        found[name]["ratio"] = ratio.plain()
    return found


def _weighed(case: Case, way: str) -> dict[str, Any]:
    try:
        memory = peak_memory(f"{__name__}:{memory_step.__name__}", json.dumps(case.plain()), way)
    except AdaGPRError as error:
        return {"memory_failed": str(error)}
    return {"memory_mb": {key: round(value, 1) for key, value in asdict(memory).items()}}


def _way(name: str, model: AdaGPR, config: TrainingConfig, graph: Graph, split: Split) -> _Way:
    if name == OURS:
        return _ours(model, config, graph, split)
    rival = rival_class(name).from_model(model)
    x = graph.x if isinstance(graph.x, Tensor) else torch.from_numpy(graph.x.toarray())
    structure, y = rival.prepare(graph), graph.y
    optimizer = torch.optim.Adam(rival.parameters(), SETTINGS["lr"], weight_decay=SETTINGS["weight_decay"])

    def step() -> Tensor:
        rival.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(rival(x, structure)[split.train], y[split.train])
        loss.backward()
        optimizer.step()
        return loss.detach()

    def logits() -> Tensor:
        rival.eval()
        with torch.inference_mode():
            result: Tensor = rival(x, structure)
            return result

    return _Way(step, logits, split, y)


def _ours(model: AdaGPR, config: TrainingConfig, graph: Graph, split: Split) -> _Way:
    inputs, state = inputs_of(model, config, graph, split), State(model, config)
    return _Way(lambda: train_step(state, inputs), lambda: evaluate(model, inputs), split, graph.y)


def inputs_of(model: AdaGPR, config: TrainingConfig, graph: Graph, split: Split) -> Inputs:
    """What `adagpr.fit` makes of the graph."""
    structure = model.prepare(graph, operator(graph, config.direction, config.self_loops))
    return Inputs(features(graph.x), structure, graph.y, split)


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
