"""Runs cells of the catalogue, only what is missing, and keeps a small record of each.

A run lives in a folder named by the hash of its resolved configuration, so that equal runs of different rows are one.
The record of a cell is written last: where it stands and was made of the same configurations, nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from adagpr.data import load
from adagpr.experiments.catalogue import Cell, Experiment
from adagpr.files import make_folder, read_json, write_json
from adagpr.training import Run, fit
from adagpr.training.config import config_digest, resolve
from adagpr.training.fitting import OnEpoch

__all__ = ["record_path", "run_cell"]


def record_path(records: Path, row: Experiment, cell: Cell) -> Path:
    """Where the record of a cell is kept."""
    return records / f"{row.name}{'' if cell.layers is None else f'-{cell.layers}'}.json"


def run_cell(
    row: Experiment,
    cell: Cell,
    runs: Path,
    records: Path,
    seeds: Sequence[int] = (0,),
    on_epoch: Callable[[int, int], OnEpoch] | None = None,
) -> dict[str, Any]:
    """Runs one printed number on all its splits and seeds, and returns its record.

    Args:
        row: The row of the catalogue.
        cell: One of its printed numbers.
        runs: Folder of the runs; what is there is used, what is interrupted goes on.
        records: Folder of the records.
        seeds: Seeds, each on every split.
        on_epoch: Given the number of a run and how many there are, returns what `fit` calls after each epoch.
    """
    graph, splits = load(row.data.name, row.data.split)
    model = str(row.model["name"])
    jobs = [(split, {**cell.options, "seed": seed}) for split in splits for seed in seeds]
    hashes = [config_digest(resolve(graph, split, model, options)[1]) for split, options in jobs]
    path = record_path(records, row, cell)
    if path.exists():
        stored: dict[str, Any] = read_json(path)
        if [item["config"] for item in stored["runs"]] == hashes:
            return stored
    finished = []
    for number, ((split, options), name) in enumerate(zip(jobs, hashes, strict=True)):
        report = None if on_epoch is None else on_epoch(number, len(jobs))
        run = fit(graph, split, model, out=runs / name, on_epoch=report, **options)
        finished.append({"config": name, **_row(run)})
    accuracies = [item["test_acc"] for item in finished]
    record = {
        "table": row.table,
        "method": row.method,
        "dataset": row.data.name,
        "split": row.data.split,
        "layers": cell.layers,
        "published": cell.published,
        "test_acc": round(100 * fmean(accuracies), 2),
        "test_acc_std": round(100 * stdev(accuracies), 2) if len(accuracies) > 1 else 0.0,
        "val_acc": round(100 * fmean(item["val_acc"] for item in finished), 2),
        "num_runs": len(finished),
        "model": model,
        "options": cell.options,
        "settings_from": row.settings_from,
        "runs": finished,
    }
    make_folder(records)
    write_json(path, record)
    return record


def _row(run: Run) -> dict[str, Any]:
    result = run.record["result"]
    return {
        "split": run.record["data"]["split"],
        "seed": run.record["config"]["training"]["seed"],
        "test_acc": round(run.test_acc, 4),
        "val_acc": round(run.val_acc, 4),
        "best_epoch": run.best_epoch,
        "num_epochs": result["num_epochs"],
        "seconds": run.record["machine"]["seconds"],
    }
