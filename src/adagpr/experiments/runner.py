"""Runs cells of the catalogue, only what is missing, in processes, and keeps a small record of each.

A run has a folder named by the hash of its resolved configuration, so equal runs of different rows are one run, and two
commands in the same folder share them: a run that another process holds is left to it and read afterwards. All runs
compute with one thread, so their bits do not depend on how many processes there are. The record of a cell is written
when its last run ends; until then its runs are in a file of their own, which can be taken to another machine as a
record can. Runs that are in either file are not repeated.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from adagpr.data import load
from adagpr.errors import AdaGPRError, BusyError, DamagedError
from adagpr.experiments.catalogue import Cell
from adagpr.files import exclusive, make_folder, remove_leftovers, tidied, write_json
from adagpr.graph import Graph, Split
from adagpr.schemas import CellRecord, read_json
from adagpr.training import Job, Run, config_digest, fit_group, group_size, in_groups, resolve, spread

_WAIT = 2.0  # seconds until a run that another process held is looked at again

STATES = ("done", "part", "missing", "failed")

OnCell = Callable[[Cell, int, int], None]  # called with a cell, how many of its runs are there, and how many it has


@dataclass(frozen=True)
class Folders:
    """Where runs and records are kept: a folder for each run, and a file for each cell, small enough to commit."""

    runs: Path
    records: Path

    def record(self, cell: Cell) -> Path:
        """The file of a cell's record."""
        return self.records / f"{cell.name}.json"

    def part(self, cell: Cell) -> Path:
        """The file of a cell's runs that are in no record because others are missing."""
        return self.records / "part" / f"{cell.name}.json"

    def failure(self, cell: Cell) -> Path:
        """The file that says why a cell failed."""
        return self.records / "failed" / f"{cell.name}.json"


def read_record(path: Path, cell: Cell) -> dict[str, Any] | None:
    """The record of a cell or of a part of it, where there is one that was made with the same settings."""
    try:
        record = read_json(path, CellRecord, "Remove the file to run what it holds again.")
    except DamagedError:
        # Another command may clear a part away at any time.
        if path.exists():
            raise
        return None
    return record if record["options"] == cell.options else None


def state_of(folders: Folders, cell: Cell) -> str:
    """The state of a cell, one of `STATES`; ``"part"`` where some of the runs asked for are recorded."""
    record = read_record(folders.record(cell), cell)
    if record is not None and set(cell.seeds) <= {run["seed"] for run in record["runs"]}:
        return "done"
    if folders.failure(cell).exists():
        return "failed"
    return "missing" if record is None and read_record(folders.part(cell), cell) is None else "part"


def _runs_in(path: Path, cell: Cell) -> list[dict[str, Any]]:
    record = read_record(path, cell)
    return [] if record is None else list(record["runs"])


def run_cells(
    cells: Sequence[Cell],
    folders: Folders,
    num_workers: int = 1,
    on_cell: OnCell | None = None,
    data_root: Path | None = None,
) -> list[dict[str, Any]]:
    """Runs what is missing of the cells, in this order, and returns their records; one that failed has none.

    What was interrupted resumes. ``on_cell`` is called when a cell is looked at and whenever a run of it ends.
    """
    states = [CellProgress(cell, folders, on_cell, data_root) for cell in cells]
    # Processes that are stopped leave the folder of the runs to each other.
    with tidied(folders.runs), tidied(folders.records):
        make_folder(folders.records)
        remove_leftovers(folders.records.glob("*/*"))
        _run_missing(states, num_workers)
        return [record for state in states if (record := state.finish()) is not None]


def _run_missing(states: Sequence[CellProgress], num_workers: int) -> None:
    """Runs what is missing of cells, and what other commands have in hand once they are done with it."""
    waiting = [(number, group) for number, state in enumerate(states) for group in state.groups()]
    while waiting:
        busy: list[tuple[int, Sequence[Job]]] = []

        def work(item: tuple[int, Sequence[Job]], report: Callable[..., Any]) -> None:
            number, group = item
            for outcome in states[number].fit(group):
                report(number, *outcome)

        def receive(number: int, name: str, *content: Any) -> None:
            if name == "busy":
                busy.append((number, content))  # noqa: B023 - used within this round only
            else:
                states[number].add(name, *content)

        spread(waiting, work, receive, num_workers)
        waiting = busy
        if busy:
            time.sleep(_WAIT)


class CellProgress:
    """A cell in progress: which of its runs there are, and which are still to do."""

    def __init__(self, cell: Cell, folders: Folders, on_cell: OnCell | None, data_root: Path | None) -> None:
        self.cell, self._folders, self._on_cell = cell, folders, on_cell
        self._graph, splits = _load(cell.row.dataset, cell.row.split, data_root)
        self._splits = {split.name: split for split in splits}
        self.setup = resolve(self._graph, splits[0], cell.row.model, {**cell.options, "num_threads": 1})
        # Every run that is recorded or done by now, by the hash of its configuration; also seeds that nobody asked for.
        self.rows: dict[str, dict[str, Any]] = {}
        self._take_in()
        # Seeds that are recorded already stay in the record, also where fewer are asked for now.
        seeds = sorted({*cell.seeds, *(run["seed"] for run in _runs_in(folders.record(cell), cell))})
        pairs = list(product(splits, seeds))
        self._names = [self._name(*pair) for pair in pairs]
        self._jobs = [Job(number, *pair, folders.runs / self._names[number]) for number, pair in enumerate(pairs)]
        self.failures: list[str] = []
        self._tell()

    def _name(self, split: Split, seed: int) -> str:
        """The hash of a run's configuration."""
        return config_digest(self.setup.plain_for(self._graph, split, seed))

    def _take_in(self) -> None:
        """Takes in the runs that are recorded by now, also by other commands."""
        for path in (self._folders.record(self.cell), self._folders.part(self.cell)):
            for run in _runs_in(path, self.cell):
                split = self._splits.get(run["split"])
                is_ours = split is not None and run["config"] == self._name(split, run["seed"])
                if is_ours and ("coefficients" in run or self.cell.coefficients is None):
                    self.rows.setdefault(run["config"], run)

    def groups(self) -> list[Sequence[Job]]:
        """The runs that are missing, grouped by what trains together."""
        return in_groups(self._missing(), group_size(self._graph, self.setup))

    def _missing(self) -> list[Job]:
        return [job for job in self._jobs if self._names[job.number] not in self.rows]

    def fit(self, group: Sequence[Job]) -> list[tuple[Any, ...]]:
        """Fits runs in this process; what became of each, as `add` takes it, or ``("busy", job)``."""
        try:
            found = fit_group(self._graph, self.setup, group)
        except AdaGPRError as error:
            if len(group) > 1:
                # A run that cannot be read, or that another process holds, must not take its group with it.
                return [outcome for job in group for outcome in self.fit([job])]
            return [("busy", group[0]) if isinstance(error, BusyError) else ("failed", str(error))]
        return [
            ("failed", str(run)) if isinstance(run, AdaGPRError) else ("done", self._row(job, run))
            for job, run in ((job, found[job.number]) for job in group)
        ]

    def _row(self, job: Job, run: Run) -> dict[str, Any]:
        row = {
            "config": self._names[job.number],
            "split": run.record["data"]["split"],
            "seed": job.seed,
            "test_acc": round(run.test_acc, 4),
            "val_acc": round(run.val_acc, 4),
            "best_epoch": run.best_epoch,
            "num_epochs": run.num_epochs,
            "machine": {"seconds": run.record["machine"]["seconds"]},
        }
        if self.cell.coefficients is not None:
            row["coefficients"] = [[round(value, 4) for value in layer] for layer in run.record["coefficients"]]
        return row

    def add(self, outcome: str, content: Any) -> None:
        """Notes what became of a run: its row, or why it failed."""
        if outcome == "failed":
            self.failures.append(content)
        else:
            self._write(content)
            self._tell()

    def finish(self) -> dict[str, Any] | None:
        """Writes and returns the record, or says why there is none."""
        record = self._write()
        if record is None:
            failure = self._folders.failure(self.cell)
            make_folder(failure.parent)
            write_json(failure, {"cell": self.cell.name, "failed": self.failures})
        return record

    def _write(self, row: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Writes all runs that there are, a new one and those of other commands too; the record if none is missing."""
        record, path, part = None, self._folders.record(self.cell), self._folders.part(self.cell)
        with exclusive(self._folders.records):
            self._take_in()
            if row is not None:
                self.rows.setdefault(row["config"], row)
            if self._missing():
                whole = _runs_in(path, self.cell)
            else:
                # The seeds that were run on every split.
                counts = Counter(run["seed"] for run in self.rows.values())
                complete = [run for run in self._sorted() if counts[run["seed"]] == len(self._splits)]
                record, whole = _record(self.cell, complete), complete
                if read_record(path, self.cell) != record:
                    write_json(path, record)
                self._folders.failure(self.cell).unlink(missing_ok=True)
            rest = [run for run in self._sorted() if run not in whole]
            if rest:
                make_folder(part.parent)
                write_json(part, _record(self.cell, rest))
            else:
                part.unlink(missing_ok=True)
        return record

    def _sorted(self) -> list[dict[str, Any]]:
        """All runs, split by split, within it seed by seed."""
        places = list(self._splits)
        return sorted(self.rows.values(), key=lambda run: (places.index(run["split"]), run["seed"]))

    def _tell(self) -> None:
        if self._on_cell is not None:
            self._on_cell(self.cell, len(self._jobs) - len(self._missing()), len(self._jobs))


@cache
def _load(name: str, split: str, data_root: Path | None) -> tuple[Graph, list[Split]]:
    return load(name, split, data_root=data_root)


def _record(cell: Cell, runs: list[dict[str, Any]]) -> dict[str, Any]:
    row = cell.row
    accuracies = [run["test_acc"] for run in runs]
    return {
        "table": row.table,
        "method": row.method,
        "dataset": row.dataset,
        "split": row.split,
        "layers": cell.layers,
        "published": cell.published,
        "test_acc": round(100 * fmean(accuracies), 2),
        "test_acc_std": round(100 * stdev(accuracies), 2) if len(accuracies) > 1 else 0.0,
        "val_acc": round(100 * fmean(run["val_acc"] for run in runs), 2),
        "num_runs": len(runs),
        "model": row.model,
        "options": cell.options,
        "settings": cell.settings,
        "settings_from": row.settings_from,
        "runs": runs,
    }
