"""Runs tasks of the catalogue, only what is missing, in processes, and keeps a small record of each.

A run lives in a folder named by the hash of its resolved configuration, so that equal runs of different rows are one,
and two commands in the same folder share them: a run that another process holds is left to it and read afterwards. All
runs compute with one thread, so that their bits do not depend on how many processes there are. The record of a task is
written when its last run ends; until then the runs that it has stand in a file of their own, which can be taken to
another machine as a record can. Where either stands, the runs in it are not repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from adagpr.data import load
from adagpr.errors import AdaGPRError, BusyError, InputError
from adagpr.experiments.plan import Task
from adagpr.files import make_folder, read_json, write_json
from adagpr.graph import Graph, Split
from adagpr.training import Run, load_run
from adagpr.training.config import config_digest, describe_data, resolve
from adagpr.training.several import Job, fit_group, group_size, in_groups
from adagpr.training.workers import spread

__all__ = ["STATES", "Folders", "Progress", "read_record", "run_tasks", "state_of"]

# Seconds until a run that another process held is looked at again.
_WAIT = 2.0

STATES = ("done", "part", "missing", "failed")

# Called with a task, how many of its runs are there, and how many it has.
Progress = Callable[[Task, int, int], None]


@dataclass(frozen=True)
class Folders:
    """Where runs and records are kept.

    Attributes:
        runs: One folder a run, with its model and history.
        records: One file a task, small enough to be committed; below it ``part/`` has what there is of a task that is
            not complete, and ``failed/`` says why a task has none.
    """

    runs: Path
    records: Path

    def record(self, task: Task) -> Path:
        """The file of a task's record."""
        return self.records / f"{task.name}.json"

    def part(self, task: Task) -> Path:
        """The file of what there is of a task that is not complete."""
        return self.records / "part" / f"{task.name}.json"

    def failure(self, task: Task) -> Path:
        """The file that says why a task failed."""
        return self.records / "failed" / f"{task.name}.json"


def read_record(folders: Folders, task: Task) -> dict[str, Any] | None:
    """The record of a task, where there is one that was made with the same settings."""
    return _read(folders.record(task), task)


def _read(path: Path, task: Task) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = read_json(path)
    except InputError:
        # Another command may clear a part away at any time.
        if path.exists():
            raise
        return None
    return record if record["options"] == task.cell.options else None


def state_of(folders: Folders, task: Task) -> str:
    """Where a task stands, one of `STATES`; ``"part"`` where some of the runs asked for are recorded."""
    record = read_record(folders, task)
    if record is not None and set(task.seeds) <= {run["seed"] for run in record["runs"]}:
        return "done"
    if folders.failure(task).exists():
        return "failed"
    return "missing" if record is None and _read(folders.part(task), task) is None else "part"


def run_tasks(
    tasks: Sequence[Task],
    folders: Folders,
    num_workers: int = 1,
    on_progress: Progress | None = None,
    data_root: Path | None = None,
) -> list[dict[str, Any]]:
    """Runs what is missing of the tasks and returns their records; one that failed has none.

    Args:
        tasks: What to run, in this order.
        folders: Where runs and records are kept; what is there is used, what is interrupted goes on.
        num_workers: Number of processes.
        on_progress: Called when a task is looked at and whenever a run of it ends.
        data_root: Folder of the data files; see `adagpr.load`.
    """
    make_folder(folders.records)
    boards = [_Board(task, folders, on_progress, data_root) for task in tasks]
    waiting = [(number, group) for number, board in enumerate(boards) for group in board.groups()]
    while waiting:
        busy: list[tuple[int, Sequence[Job]]] = []

        def work(item: tuple[int, Sequence[Job]], report: Callable[[Any], None]) -> None:
            number, group = item
            for name, *content in boards[number].fit(group):
                report((number, name, *content))

        def receive(message: tuple[Any, ...]) -> None:
            number, name, *content = message
            if name == "busy":
                busy.append((number, content))  # noqa: B023 - used within this round only
            else:
                boards[number].add(name, *content)

        spread(waiting, work, receive, num_workers)
        waiting = busy
        if busy:
            time.sleep(_WAIT)
    return [record for board in boards if (record := board.finish()) is not None]


class _Board:
    """A task in progress: which of its runs there are, and which are still to do."""

    def __init__(self, task: Task, folders: Folders, on_progress: Progress | None, data_root: Path | None) -> None:
        self.task, self._folders, self._on_progress = task, folders, on_progress
        graph, splits = _load(task.row.data.name, task.row.data.split, data_root)
        self._graph = graph
        self.model = str(task.row.model["name"])
        self.options = {**task.cell.options, "num_threads": 1}
        stored = read_record(folders, task) or {"runs": []}
        # Seeds that are recorded already stay in the record, also where fewer are asked for now.
        seeds = sorted({*task.seeds, *(run["seed"] for run in stored["runs"])})
        self._names = _names(graph, splits, self.model, self.options, seeds)
        pairs = [(split, seed) for split in splits for seed in seeds]
        self._jobs = [
            Job(number, *pair, folders.runs / name)
            for number, (pair, name) in enumerate(zip(pairs, self._names, strict=True))
        ]
        self.rows: dict[int, dict[str, Any]] = {}
        self._take_in(stored["runs"])
        self._take_in_part()
        self.failures: list[str] = []
        self._tell()

    def _take_in(self, runs: Sequence[dict[str, Any]]) -> None:
        """Enters runs that are recorded already."""
        known = {run["config"]: run for run in runs if self._is_enough(run)}
        for number, name in enumerate(self._names):
            if number not in self.rows and name in known:
                self.rows[number] = known[name]

    def _take_in_part(self) -> None:
        """Enters what there is of a task that is not complete, another command's runs too."""
        part = _read(self._folders.part(self.task), self.task)
        if part is not None:
            self._take_in(part["runs"])

    def _is_enough(self, row: Mapping[str, Any]) -> bool:
        return "coefficients" in row or not self._prints_coefficients

    @property
    def _prints_coefficients(self) -> bool:
        return str(self.task.cell.layers) in self.task.row.coefficients

    def groups(self) -> list[Sequence[Job]]:
        """What is to do, by what trains together."""
        missing = [job for job in self._jobs if job.number not in self.rows]
        return in_groups(missing, group_size(self._graph, self.model, self.options))

    def fit(self, group: Sequence[Job]) -> list[tuple[Any, ...]]:
        """Fits runs in this process; what became of each, as `add` takes it, or ``("busy", job)``."""
        # A complete run is taken as it is, also one that was computed with more threads.
        complete = [job for job in group if (self._folder(job) / "record.json").exists()]
        found = [("done", job.number, self._row(job, load_run(self._folder(job)))) for job in complete]
        return [*found, *self._trained([job for job in group if job not in complete])]

    def _trained(self, group: Sequence[Job]) -> list[tuple[Any, ...]]:
        if not group:
            return []
        try:
            runs = fit_group(self._graph, self.model, group, self.options, lambda message: None)
        except BusyError:
            if len(group) == 1:
                return [("busy", group[0])]
            return [outcome for job in group for outcome in self.fit([job])]
        except AdaGPRError as error:
            return [("failed", str(error))]
        return [("done", job.number, self._row(job, run)) for job, run in zip(group, runs, strict=True)]

    def _folder(self, job: Job) -> Path:
        return self._folders.runs / self._names[job.number]

    def _row(self, job: Job, run: Run) -> dict[str, Any]:
        row = {
            "config": self._names[job.number],
            "split": run.record["data"]["split"],
            "seed": job.seed,
            "test_acc": round(run.test_acc, 4),
            "val_acc": round(run.val_acc, 4),
            "best_epoch": run.best_epoch,
            "num_epochs": run.record["result"]["num_epochs"],
            "machine": {"seconds": run.record["machine"]["seconds"]},
        }
        if self._prints_coefficients:
            row["coefficients"] = [[round(value, 4) for value in layer] for layer in run.record["coefficients"]]
        return row

    def add(self, outcome: str, *content: Any) -> None:
        """Enters what became of runs; with the last one the record is written."""
        if outcome == "failed":
            self.failures += content
        else:
            number, row = content
            self.rows[number] = row
            self._tell()
        if len(self.rows) == len(self._jobs):
            self.finish()
        elif self.rows:
            make_folder(self._folders.part(self.task).parent)
            self._take_in_part()
            write_json(self._folders.part(self.task), self._content())

    def finish(self) -> dict[str, Any] | None:
        """Writes and returns the record, or says why there is none."""
        failure = self._folders.failure(self.task)
        if len(self.rows) < len(self._jobs):
            make_folder(failure.parent)
            write_json(failure, {"task": self.task.name, "failed": self.failures})
            return None
        record = self._content()
        path = self._folders.record(self.task)
        if not path.exists() or read_json(path) != record:
            write_json(path, record)
        failure.unlink(missing_ok=True)
        self._folders.part(self.task).unlink(missing_ok=True)
        return record

    def _content(self) -> dict[str, Any]:
        """The record of the runs that there are."""
        return _record(self.task, [self.rows[job.number] for job in self._jobs if job.number in self.rows])

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.task, len(self.rows), len(self._jobs))


@cache
def _load(name: str, split: str, data_root: Path | None) -> tuple[Graph, list[Split]]:
    return load(name, split, data_root=data_root)


def _names(
    graph: Graph, splits: Sequence[Split], model: str, options: dict[str, Any], seeds: Sequence[int]
) -> list[str]:
    """The hash of each run's configuration, split by split, within it seed by seed."""
    _, plain = resolve(graph, splits[0], model, options)
    return [
        config_digest({**plain, "data": describe_data(graph, split), "training": {**plain["training"], "seed": seed}})
        for split in splits
        for seed in seeds
    ]


def _record(task: Task, runs: list[dict[str, Any]]) -> dict[str, Any]:
    row, cell = task.row, task.cell
    accuracies = [run["test_acc"] for run in runs]
    return {
        "table": row.table,
        "method": row.method,
        "dataset": row.data.name,
        "split": row.data.split,
        "layers": cell.layers,
        "published": cell.published,
        "test_acc": round(100 * fmean(accuracies), 2),
        "test_acc_std": round(100 * stdev(accuracies), 2) if len(accuracies) > 1 else 0.0,
        "val_acc": round(100 * fmean(run["val_acc"] for run in runs), 2),
        "num_runs": len(runs),
        "model": str(row.model["name"]),
        "options": cell.options,
        "settings": cell.settings,
        "settings_from": row.settings_from,
        "runs": runs,
    }
