"""The front of the reproduction: runs what is missing of the paper's tables and figures, and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adagpr.data import catalogue as datasets
from adagpr.errors import InputError
from adagpr.experiments.catalogue import Cell, cells, plan
from adagpr.experiments.runner import Folders, run_cells, state_of
from adagpr.experiments.targets import TargetReport, report_target
from adagpr.nn import model_class
from adagpr.schemas import CellFailure, read_json
from adagpr.system import num_cores

if TYPE_CHECKING:
    import pandas as pd

# Called with the name of the cell at work, the runs that there are, the runs in all, and the share of work done.
OnProgress = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` came to; tables and figures are by target."""

    reports: dict[str, TargetReport]  # of the cells that were asked for
    files: dict[str, list[Path]]  # what was written; these hold all that is recorded, not only what was asked for now
    failed: dict[str, str]  # why cells failed, by their names
    left_out: tuple[str, ...]  # sentences on rows that were not run because a library is missing

    def to_plain(self) -> list[dict[str, Any]]:
        """The rows of all targets, ready for JSON."""
        return [row for report in self.reports.values() for row in report.plain]

    def frame(self, target: str) -> pd.DataFrame:
        """The rows of a target as a pandas table."""
        import pandas as pd

        return pd.DataFrame(self.reports[target].rows)

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for report in self.reports.values() for table in report.tables)


def reproduce(
    targets: Sequence[str] = (),
    *,
    only: Sequence[str] = (),
    seeds: int | None = None,
    jobs: int | None = None,
    data_root: Path | str | None = None,
    out: Path | str = "reproduction",
    runs: Path | str | None = None,
    on_progress: OnProgress | None = None,
) -> Reproduction:
    """Reproduces the paper's tables and figures: runs what is missing, and writes ours beside what was printed.

    Args:
        targets: Some of `adagpr.experiments.TARGETS`, by default all.
        only: Patterns of rows, such as ``adagpr``, ``texas`` or ``table2_gcn_cora:2,4``; by default all.
        seeds: Seeds for each split; by default 1 on ten splits, 3 on public ones, but 1 on Pubmed with 32 layers or
            more.
        jobs: Number of processes, by default one for each core.
        data_root: Folder of the data files; see `adagpr.load`.
        out: Folder of tables, figures and records.
        runs: Folder of the runs, by default ``runs`` in that folder.
        on_progress: Called when a cell is looked at and whenever a run ends.

    Raises:
        InputError: There is no such target or row, or nothing that was asked for can be run here.
    """
    folders = Folders(Path(runs) if runs is not None else Path(out) / "runs", Path(out) / "catalogue")
    planned = plan(targets, only, seeds)
    runnable, sentences = _runnable(planned)
    failed = _run(runnable, folders, jobs or num_cores(), data_root, on_progress)
    reports, files = {}, {}
    for target, group in planned.items():
        recorded = report_target(target, cells(target), folders)
        files[target] = recorded.save(Path(out))
        reports[target] = report_target(target, group, folders) if only else recorded
    return Reproduction(reports, files, failed, tuple(sentences))


def reproduction_status(
    targets: Sequence[str] = (), *, only: Sequence[str] = (), seeds: int | None = None, out: Path | str = "reproduction"
) -> dict[str, list[tuple[Cell, str]]]:
    """The cells of each target and their states: ``"done"``, ``"part"``, ``"missing"`` or ``"failed"``.

    The arguments are those of `reproduce`; nothing is run.
    """
    folders = Folders(Path(out) / "runs", Path(out) / "catalogue")
    planned = plan(targets, only, seeds)
    return {target: [(cell, state_of(folders, cell)) for cell in group] for target, group in planned.items()}


def left_out(group: Iterable[Cell]) -> list[str]:
    """Sentences on the rows of cells that cannot be run here, because a library is missing."""
    return [f"Left out: the rows of {model}. {reason}" for model, reason in _reasons(group).items()]


def _reasons(group: Iterable[Cell]) -> dict[str, str]:
    """Why models of cells cannot be trained here, by their names."""
    models = dict.fromkeys(cell.row.model for cell in group)
    return {model: why for model in models if (why := model_class(model).why_unavailable()) is not None}


def _runnable(planned: dict[str, list[Cell]]) -> tuple[list[Cell], list[str]]:
    """The cells that can be run here, each once, and sentences on the others."""
    # A row may belong to two targets.
    distinct = {(cell.name, cell.seeds): cell for group in planned.values() for cell in group}
    reasons = _reasons(distinct.values())
    found = [cell for cell in distinct.values() if cell.row.model not in reasons]
    if reasons and not found:
        raise InputError(" ".join(reasons.values()))
    return found, left_out(distinct.values())


def _run(
    group: Sequence[Cell],
    folders: Folders,
    num_workers: int,
    data_root: Path | str | None,
    on_progress: OnProgress | None,
) -> dict[str, str]:
    """Runs what is missing; why cells failed, by their names."""
    work = {cell.name: _work(cell) for cell in group}
    counts: dict[str, tuple[int, int]] = {}

    def on_cell(cell: Cell, complete: int, total: int) -> None:
        if on_progress is None:
            return
        counts[cell.name] = (complete, total)
        done, in_all = (sum(numbers) for numbers in zip(*counts.values(), strict=True))
        spent = sum(work[name] * have / number for name, (have, number) in counts.items())
        on_progress(cell.name, done, in_all, spent / sum(work.values()))

    run_cells(group, folders, num_workers, on_cell, None if data_root is None else Path(data_root))
    failures = [folders.failure(cell) for cell in group if folders.failure(cell).exists()]
    records = {path.stem: read_json(path, CellFailure, "Remove the file.") for path in failures}
    return {name: " ".join(dict.fromkeys(record["failed"])) for name, record in records.items()}


def _work(cell: Cell) -> float:
    """How much work a cell is, because runs are of unequal length."""
    counts, options = datasets()[cell.row.dataset].counts, cell.options
    hops = options.get("num_coeffs", 2)
    width, depth = options.get("hidden_channels", 64), options.get("num_layers", 2)
    a_layer = width * ((max(hops) if isinstance(hops, list) else hops) * counts.entries + counts.nodes * width)
    num_splits = 1 if cell.row.split == "public" else 10
    return float(len(cell.seeds) * num_splits * (depth * a_layer + 1e6))
