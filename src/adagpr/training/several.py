"""The same model on several splits or seeds, and what comes out on average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from adagpr.errors import InputError
from adagpr.graph import Graph, Split
from adagpr.nn import model_options
from adagpr.training.config import resolve
from adagpr.training.fitting import OnEpoch, fit
from adagpr.training.run import Run

__all__ = ["fit_all", "run_folders", "summarise", "without_graph"]


def run_folders(out: Path | None, splits: Sequence[Split], seeds: Sequence[int]) -> list[Path | None]:
    """The folder of each run: ``out`` itself for a single run, else one below it for each split and seed."""
    for what, values in (("split", [split.name for split in splits]), ("seed", list(seeds))):
        if len(set(values)) < len(values):
            raise InputError(f"Each {what} may be given once, got {', '.join(str(value) for value in values)}.")
    if out is None or len(splits) * len(seeds) == 1:
        return [out] * (len(splits) * len(seeds))
    return [out / f"{split.name.replace('/', '-')}-seed-{seed}" for split in splits for seed in seeds]


def fit_all(
    graph: Graph,
    splits: Sequence[Split],
    model: str = "adagpr",
    *,
    seeds: Sequence[int] = (0,),
    out: Path | None = None,
    on_epoch: Callable[[int], OnEpoch] | None = None,
    **options: Any,
) -> list[Run]:
    """Fits the model on every split with every seed, one after another; complete runs are read instead of repeated.

    Args:
        graph: The graph that all splits share.
        splits: The splits.
        model: Name of the model.
        seeds: The seeds.
        out: Folder that holds the runs; see `run_folders`.
        on_epoch: Given the number of a run, from 0, returns what `fit` calls after each epoch.
        options: Passed on to `fit`.
    """
    folders = run_folders(out, splits, seeds)
    for split in splits:
        for seed in seeds:
            resolve(graph, split, model, {**options, "seed": seed})
    runs: list[Run] = []
    for split in splits:
        for seed in seeds:
            number = len(runs)
            report = None if on_epoch is None else on_epoch(number)
            runs.append(fit(graph, split, model, seed=seed, out=folders[number], on_epoch=report, **options))
    return runs


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
