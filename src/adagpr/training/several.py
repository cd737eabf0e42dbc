"""The same model on several splits or seeds, and what comes out on average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from adagpr.errors import InputError
from adagpr.graph import Graph, Split
from adagpr.nn import build, model_options
from adagpr.system import num_cores
from adagpr.training.config import resolve
from adagpr.training.fitting import CHECKPOINT_SECONDS, OnEpoch, Session, fit, session
from adagpr.training.loop import train
from adagpr.training.run import Run
from adagpr.training.together import train_together
from adagpr.training.workers import spread

__all__ = ["Job", "fit_all", "fit_group", "group_size", "in_groups", "run_folders", "summarise", "without_graph"]


def run_folders(out: Path | None, splits: Sequence[Split], seeds: Sequence[int]) -> list[Path | None]:
    """The folder of each run: ``out`` itself for a single run, else one below it for each split and seed."""
    for what, values in (("split", [split.name for split in splits]), ("seed", list(seeds))):
        if len(set(values)) < len(values):
            raise InputError(f"Each {what} may be given once, got {', '.join(str(value) for value in values)}.")
    if out is None or len(splits) * len(seeds) == 1:
        return [out] * (len(splits) * len(seeds))
    return [out / f"{split.name.replace('/', '-')}-seed-{seed}" for split in splits for seed in seeds]


# Hidden matrices of at most so many elements train together, at most so many at once. At 64 channels Texas has 11,712
# elements, Cora 173,312.
_SMALL = 40_000
_MOST = 16


@dataclass(frozen=True)
class Job:
    """One of several runs: its number, split, seed and folder."""

    number: int
    split: Split
    seed: int
    folder: Path | None


def fit_all(
    graph: Graph,
    splits: Sequence[Split],
    model: str = "adagpr",
    *,
    seeds: Sequence[int] = (0,),
    out: Path | None = None,
    on_epoch: Callable[[int], OnEpoch] | None = None,
    on_end: Callable[[int], None] | None = None,
    num_workers: int | None = None,
    share: tuple[int, int] = (0, 1),
    **options: Any,
) -> list[Run]:
    """Fits the model on every split with every seed; complete runs are read instead of repeated.

    On a small graph runs train together in one process, and where they are kept in a folder they are spread over
    processes, one for each core. Either way each ends with the numbers of a run alone.

    Args:
        graph: The graph that all splits share.
        splits: The splits.
        model: Name of the model.
        seeds: The seeds.
        out: Folder that holds the runs; see `run_folders`.
        on_epoch: Given the number of a run, from 0, returns what is called after its epochs.
        on_end: Called with the number of a run that is complete.
        num_workers: Number of processes, by default one for each core; one where a run needs several threads itself.
        share: This caller's number among several that share the runs, and how many they are. Each fits every so many
            and returns those and what the others have complete in ``out`` by then; they do not wait for each other.
        options: Passed on to `fit`.
    """
    pairs = [(split, seed) for split in splits for seed in seeds]
    folders = run_folders(out, splits, seeds)
    jobs = [Job(number, *pair, folders[number]) for number, pair in enumerate(pairs)]
    configs = [resolve(graph, job.split, model, {**options, "seed": job.seed})[0] for job in jobs]
    own = jobs[share[0] :: share[1]]
    reports: dict[int, OnEpoch] = {}

    def receive(message: tuple[Any, ...]) -> None:
        number, *rest = message
        if rest and on_epoch is not None:
            if number not in reports:
                reports[number] = on_epoch(number)
            reports[number](*rest)
        elif not rest and on_end is not None:
            on_end(number)

    workers = (num_workers or num_cores()) if out is not None and configs[0].num_threads == 1 else 1
    groups = in_groups(own, group_size(graph, model, options), workers)
    if out is None:
        return [run for group in groups for run in fit_group(graph, model, group, options, receive)]

    def work(group: Sequence[Job], report: Callable[[Any], None]) -> None:
        fit_group(graph, model, group, options, report)

    spread(groups, work, receive, workers)
    complete = [job for job in jobs if job in own or (job.folder and (job.folder / "record.json").exists())]
    return [fit(graph, job.split, model, seed=job.seed, out=job.folder, **options) for job in complete]


def in_groups(jobs: Sequence[Job], most: int, num_workers: int = 1) -> list[Sequence[Job]]:
    """Jobs that train together, at most so many, and such that all processes have as much to do."""
    size = max(1, min(most, -(-len(jobs) // num_workers)))
    return [jobs[start : start + size] for start in range(0, len(jobs), size)]


def fit_group(
    graph: Graph, model: str, jobs: Sequence[Job], options: dict[str, Any], report: Callable[[Any], None]
) -> list[Run]:
    """Fits jobs of one model on one graph side by side in this process.

    Args:
        graph: The graph that all share.
        model: Name of the model.
        jobs: At most `group_size` of them.
        options: Passed on to `fit`.
        report: Called with a job's number and its measurements after each epoch, and with the number alone at its end.
    """
    runs: dict[int, Run] = {}
    with ExitStack() as stack:
        sessions: dict[int, Session] = {}
        for job in jobs:
            opened = stack.enter_context(session(graph, job.split, model, job.folder, {**options, "seed": job.seed}))
            if isinstance(opened, Run):
                runs[job.number] = opened
                report((job.number,))
            else:
                sessions[job.number] = opened
        _fit_sessions(sessions, runs, report)
    return [runs[job.number] for job in jobs]


def _fit_sessions(sessions: dict[int, Session], runs: dict[int, Run], report: Callable[[Any], None]) -> None:
    numbers = list(sessions)

    def end(position: int) -> None:
        runs[numbers[position]] = sessions[numbers[position]].finish()
        report((numbers[position],))

    def after_epoch(number: int) -> OnEpoch:
        return lambda *measured: report((number, *measured))

    reports = [after_epoch(number) for number in numbers]
    if len(numbers) > 1:
        train_together(list(sessions.values()), reports, end, CHECKPOINT_SECONDS)
        return
    for opened in sessions.values():
        train(opened.state, opened.inputs, opened.config, reports[0], opened.save, CHECKPOINT_SECONDS)
        end(0)


def group_size(graph: Graph, model: str, options: dict[str, Any]) -> int:
    """How many runs train together: several where a hidden matrix is small and the model can share its steps."""
    arguments = {**model_options(model), **{key: options[key] for key in model_options(model) if key in options}}
    built = build(model, {"in_channels": graph.num_features, "out_channels": graph.num_classes, **arguments})
    small = graph.num_nodes * arguments.get("hidden_channels", 1) <= _SMALL
    return _MOST if small and options.get("device", "cpu") == "cpu" and built.capabilities.batched else 1


def without_graph(model: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of the same model with every layer at hop 0: a residual network that does not see the graph."""
    if "projection" not in model_options(model):
        raise InputError(f"The model '{model}' has no coefficients that could be set to hop 0.")
    decay = options.get("weight_decay")
    changed = {"projection": "fixed", "fixed_coeffs": [1.0], "num_coeffs": 1}
    if isinstance(decay, dict):
        changed["weight_decay"] = {name: value for name, value in decay.items() if name != "coeffs"}
    return {**options, **changed}


def summarise(runs: Sequence[Run]) -> dict[str, float | int]:
    """Mean and standard deviation of test and validation accuracy over runs."""
    summary: dict[str, float | int] = {"num_runs": len(runs)}
    for part in ("test_acc", "val_acc"):
        values = [getattr(run, part) for run in runs]
        summary[part] = fmean(values)
        summary[f"{part}_std"] = stdev(values) if len(values) > 1 else 0.0
    return summary
