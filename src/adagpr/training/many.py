"""Many runs of one model on one graph: other splits, other seeds.

On a small graph an epoch is mostly the overhead of many small operations. There runs train side by side in one process
and share their steps (see `adagpr.nn.BatchedModels`); runs that are kept in folders are also spread over processes.
Each keeps its own parameters, optimiser, stopping rule and checkpoints, and ends with the bits of a run alone.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch

from adagpr.arguments import check
from adagpr.errors import DivergedError, InputError
from adagpr.files import tidied
from adagpr.graph import Graph, Split
from adagpr.nn import BatchedModels, model_class
from adagpr.system import DeferredSignals, num_cores
from adagpr.task import flat_name, flat_scores
from adagpr.training.config import Setup, TrainingConfig, check_split, config_digest, resolve
from adagpr.training.fit import CHECKPOINT_SECONDS, TrainingRun, open_run
from adagpr.training.optimizer import step_together
from adagpr.training.run import Run
from adagpr.training.state import OnEpoch
from adagpr.training.threads import ThreadChoice
from adagpr.training.workers import spread

if TYPE_CHECKING:
    import pandas as pd

# Runs train side by side if their hidden matrices have at most so many elements, and at most so many at once. At 64
# channels Texas has 11,712 elements, Cora 173,312.
_SMALL = 40_000
_MOST = 16

# Called with a run's number and the arguments of `OnEpoch` after each of its epochs, whose answer it returns; and with
# the number and None, or why the run diverged, at its end.
Report = Callable[..., Any]


class Job(NamedTuple):
    """One of many runs."""

    number: int
    split: Split
    seed: int
    folder: Path | None


@dataclass(frozen=True, eq=False)
class Runs(Sequence[Run]):
    """Complete runs of one model on one graph, in the order of splits and then seeds.

    Attributes:
        runs: The runs.
        folder: Where they are kept, if anywhere.
        num_asked: How many were asked for; more than there are while other processes still train theirs.
        baseline_runs: The same runs without the graph, if they were asked for.
    """

    runs: tuple[Run, ...]
    folder: Path | None = None
    num_asked: int = 0
    baseline_runs: tuple[Run, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | Sequence[Run]:
        """The run with this number."""
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def is_complete(self) -> bool:
        """Whether no run is missing."""
        return len(self.runs) + len(self.baseline_runs) == self.num_asked

    def frame(self) -> pd.DataFrame:
        """One row per run as a pandas frame, which must be installed."""
        import pandas as pd

        return pd.DataFrame([{**run.summary(), **flat_scores(run.record["result"])} for run in self.runs])

    def _repr_html_(self) -> str:
        """A table for notebooks, one row per run."""
        summaries = [run.summary() for run in self.runs]
        # A metric may be undefined for some of the runs.
        keys = list(dict.fromkeys(key for each in summaries for key in each))
        head = "".join(f"<th>{key}</th>" for key in keys)
        cells = ([html.escape(each.get(key, "")) for key in keys] for each in summaries)
        rows = (f"<td>{'</td><td>'.join(row)}</td>" for row in cells)
        return f"<table><tr>{head}</tr><tr>{'</tr><tr>'.join(rows)}</tr></table>"


def fit_all(
    graph: Graph,
    splits: Sequence[Split],
    model: str = "adagpr",
    *,
    seeds: Sequence[int] = (0,),
    out: Path | None = None,
    root: Path | None = None,
    without_graph: bool = False,
    on_start: Callable[[Path], None] | None = None,
    on_epoch: Callable[[int], OnEpoch] | None = None,
    on_end: Callable[[int], None] | None = None,
    num_workers: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    **options: Any,
) -> Runs:
    """Fits the model on every split with every seed; complete runs are read instead of repeated.

    On a small graph runs train side by side in one process, and if they are kept in a folder they are spread over
    processes, one per core. Either way each ends with the bits of a run alone.

    Args:
        graph: The graph that all splits share.
        splits: The splits.
        model: Name of the model.
        seeds: The seeds.
        out: Folder of the runs: of a single run itself, else with one folder per split and seed below it.
        root: In place of ``out``: a folder in which that of the runs is named by data, model and a hash of the
            configurations.
        without_graph: Whether to fit every run once more with all layers at hop 0, below ``without-graph``.
        on_start: Called with the folder of the runs, if there is one, before the first is fitted.
        on_epoch: Given the number of a run, from 0, returns what is called after its epochs. Runs without the graph
            count on. Only runs in this process can be stopped by it.
        on_end: Called with the number of a run that is complete or has diverged.
        num_workers: Number of processes, by default one per core; one if a run needs several threads itself.
        rank: This caller's number among several that divide the runs. Each returns its own runs and those that the
            others have completed in ``out`` by then; they do not wait for each other.
        world_size: How many such callers there are.
        options: Passed on to `fit`.

    Raises:
        DivergedError: A run diverged; all others are complete.
    """
    setup = resolve(graph, splits[0], model, {**options, "seed": seeds[0]})
    for split in splits[1:]:
        check_split(graph, split, setup.config)
    seeds = [check("training", TrainingConfig, {"seed": seed}).seed for seed in seeds]
    for what, values in (("split", [split.name for split in splits]), ("seed", seeds)):
        if len(set(values)) < len(values):
            raise InputError(f"Each {what} may be given once, got {', '.join(map(str, values))}.")
    pairs = [(split, seed) for split in splits for seed in seeds]
    if root is not None:
        configs = [setup.plain_for(graph, *pair) for pair in pairs]
        out = root / f"{Path(graph.name).name}-{model}-{config_digest(*configs)}"
    variants = [(setup, out)]
    if without_graph:
        baseline = resolve(graph, splits[0], model, {**hop_0_options(model, options), "seed": seeds[0]})
        variants.append((baseline, None if out is None else out / "without-graph"))
    if out is not None and len(pairs) > 1 and (out / "config.toml").exists():
        raise InputError(f"{out} holds a single run, not one for each seed and split. Choose another folder.")
    if out is not None and on_start is not None:
        on_start(out)
    found: list[tuple[Run, ...]] = []
    for each, parent in variants:
        first = len(found) * len(pairs)
        names = [f"{split.name.replace('/', '-')}-seed-{seed}" for split, seed in pairs] if len(pairs) > 1 else [""]
        folders = [None if parent is None else parent / name for name in names]
        jobs = [Job(first + number, *pair, folders[number]) for number, pair in enumerate(pairs)]
        workers = (num_workers or num_cores()) if out is not None and each.threads().most == 1 else 1
        # Processes that fail leave a folder that one of them has made to the others.
        with nullcontext() if out is None else tidied(out):
            found.append(_fit_jobs(graph, each, jobs, jobs[rank::world_size], workers, on_epoch, on_end))
    return Runs(found[0], out, len(variants) * len(pairs), *found[1:])


def _fit_jobs(
    graph: Graph,
    setup: Setup,
    jobs: Sequence[Job],
    own: Sequence[Job],
    num_workers: int,
    on_epoch: Callable[[int], OnEpoch] | None,
    on_end: Callable[[int], None] | None,
) -> tuple[Run, ...]:
    """Fits this caller's own jobs; returns the runs of all jobs that are complete by then, unless one diverged."""
    found: dict[int, Run | DivergedError] = {}
    callbacks: dict[int, OnEpoch] = {}

    def work(group: Sequence[Job], report: Report) -> None:
        # In another process this is a copy of `found`: of its runs only failures are reported, the rest is read below.
        found.update(fit_group(graph, setup, group, report))

    def receive(number: int, *message: Any) -> Any:
        if len(message) == 1:
            if isinstance(message[0], DivergedError):
                found[number] = message[0]
            return None if on_end is None else on_end(number)
        if on_epoch is None:
            return None
        if number not in callbacks:
            callbacks[number] = on_epoch(number)
        return callbacks[number](*message)

    spread(in_groups(own, group_size(graph, setup), num_workers), work, receive, num_workers)
    for job in jobs:
        if job.number not in found and job.folder is not None and (job.folder / "record.json").exists():
            found |= fit_group(graph, setup, [job])
    failures = [(job, error) for job in jobs if isinstance(error := found.get(job.number), DivergedError)]
    if not failures:
        return tuple(run for job in jobs if isinstance(run := found.get(job.number), Run))
    job, error = failures[0]
    if len(jobs) == 1:
        raise error
    raise DivergedError(
        f"{len(failures)} of {len(jobs)} runs failed, all others are complete. "
        f"Split {job.split.name}, seed {job.seed}: {error}"
    )


def in_groups(jobs: Sequence[Job], most: int, num_workers: int = 1) -> list[Sequence[Job]]:
    """Jobs that train side by side, at most ``most``, such that all processes have equally much to do."""
    size = max(1, min(most, -(-len(jobs) // num_workers)))
    return [jobs[start : start + size] for start in range(0, len(jobs), size)]


def group_size(graph: Graph, setup: Setup) -> int:
    """How many runs train side by side: several if a hidden matrix is small and the model can share its steps."""
    is_small = graph.num_nodes * setup.model.arguments.get("hidden_channels", 1) <= _SMALL
    return _MOST if is_small and setup.config.device == "cpu" and setup.model.capabilities.batched else 1


def fit_group(
    graph: Graph, setup: Setup, jobs: Sequence[Job], report: Report = lambda *message: None
) -> dict[int, Run | DivergedError]:
    """Fits at most `group_size` jobs side by side in this process; by number each job's run, or why there is none.

    ``setup`` is that of one of the jobs, the others differ in split and seed. For ``report`` see `Report`.
    """
    found: dict[int, Run | DivergedError] = {}
    with ExitStack() as stack:
        training: dict[int, TrainingRun] = {}
        for number, split, seed, folder in jobs:
            opened = stack.enter_context(open_run(graph, split, setup.variant(graph, split, seed), folder))
            if isinstance(opened, Run):
                found[number] = opened
                report(number, None)
            else:
                training[number] = opened
        saved, threads = time.perf_counter(), setup.threads(len(jobs))
        while training:
            with DeferredSignals() as deferred:
                for number in [number for number, run in training.items() if run.state.is_over]:
                    run = training.pop(number)
                    found[number] = run.state.failure or run.finish()
                    report(number, run.state.failure)
                for run in training.values() if deferred.has_arrived else ():
                    run.save()
            if len(training) == 1:
                ((number, run),) = training.items()
                with suppress(DivergedError):
                    run.train(partial(report, number), CHECKPOINT_SECONDS)
            elif training:
                saved = _train_until_one_is_over(training, threads, report, saved)
    return found


def _train_until_one_is_over(
    training: dict[int, TrainingRun], threads: ThreadChoice, report: Report, saved: float
) -> float:
    """Trains in shared steps until one run is over; returns when checkpoints were last written."""
    runs = list(training.values())
    last = time.perf_counter()
    with DeferredSignals() as deferred:
        models = BatchedModels([run.state.model for run in runs], runs[0].data.structure)
        x = runs[0].data.x
        for run in runs:
            run.num_batched = max(run.num_batched, len(runs))
        while not any(run.state.is_over for run in runs):
            with threads.epoch():
                for run in runs:
                    run.state.optimizer.zero_grad()
                logits = models(x, training=True, nodes=[run.data.train for run in runs])
                losses = [run.data.loss(own) for own, run in zip(logits, runs, strict=True)]
                torch.stack(losses).sum().backward()
                step_together([run.state.optimizer for run in runs])
                with torch.inference_mode():
                    logits = models(x, training=False)
                for run, loss, own, coeffs in zip(runs, losses, logits, models.coefficients(), strict=True):
                    with suppress(DivergedError):
                        run.state.add_epoch(loss, run.data.measured(own), coeffs)
            now = time.perf_counter()
            for run in runs:
                run.state.seconds += (now - last) / len(runs)
            last = now
            if now - saved >= CHECKPOINT_SECONDS or deferred.has_arrived:
                for run in runs:
                    run.save()
                saved = time.perf_counter()
                deferred.deliver()
            for number, run in training.items():
                if run.state.failure is None:
                    run.state.tell(partial(report, number))
        if deferred.has_arrived:
            for run in runs:
                run.save()
    return saved


def hop_0_options(model: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of the same model with every layer at hop 0: a network that does not see the graph."""
    changed = dict(model_class(model).hop_0)
    if not changed:
        raise InputError(f"The model '{model}' has no coefficients that could be set to hop 0.")
    decay = options.get("weight_decay")
    if isinstance(decay, dict):
        changed["weight_decay"] = {name: value for name, value in decay.items() if name != "coeffs"}
    return {**options, **changed}


def summarise(runs: Sequence[Run]) -> dict[str, float | int]:
    """Mean and standard deviation of the runs' metric and of accuracy on test and validation nodes.

    There is none of a score that is undefined for one of the runs: it would be of other splits than it says.
    """
    summary: dict[str, float | int] = {"num_runs": len(runs)}
    scores = [flat_scores(run.record["result"]) for run in runs]
    metrics = dict.fromkeys([*(run.metric for run in runs), "accuracy"])
    for name in [flat_name(split, metric) for metric in metrics for split in ("test", "val")]:
        values = [each[name] for each in scores if name in each]
        if values and len(values) == len(runs):
            summary[name] = fmean(values)
            summary[f"{name}_std"] = stdev(values) if len(values) > 1 else 0.0
    return summary
