"""What each target of ``adagpr reproduce`` needs: rows of the catalogue, their depths, and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from adagpr.errors import InputError, did_you_mean, unknown_name
from adagpr.experiments.catalogue import Cell, Experiment, catalogue

__all__ = ["TARGETS", "Task", "plan", "tasks"]

# Rows by name; of the coefficients only the depths whose coefficients the paper prints.
TARGETS: dict[str, tuple[str, ...]] = {
    "table1": (),
    "table2": ("table2_*",),
    "table3": ("table3_*",),
    "coefficients": ("table?_adagpr_*",),
    "evolution": ("table3_adagpr_texas", "hop0_adagpr_texas"),
    "ablation": (
        *(f"table2_{method}_{name}" for name in ("cora", "citeseer") for method in ("adagpr", "gcn")),
        "ablation_*",
    ),
}

# Public splits are one each, so that several seeds give the interval; ten fixed splits give it themselves. From this
# depth on a single run on Pubmed takes an hour.
_SEEDS, _DEEP = 3, 32


@dataclass(frozen=True)
class Task:
    """One number of the paper, and the seeds that it is run with on each of its splits."""

    row: Experiment
    cell: Cell
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """Names the record."""
        return f"{self.row.name}{'' if self.cell.layers is None else f'-{self.cell.layers}'}"


def plan(targets: Sequence[str], only: Sequence[str] = (), num_seeds: int | None = None) -> dict[str, list[Task]]:
    """The tasks of several targets; see `tasks`.

    Raises:
        InputError: There is no such target, or a pattern fits nothing of any of them.
    """
    for pattern in only:
        if not any(tasks(target, [pattern]) for target in targets):
            raise InputError(f"Nothing of {', '.join(targets)} fits '{pattern}'.{_hint(pattern, targets)}")
    return {target: tasks(target, only, num_seeds) for target in targets}


def _hint(pattern: str, targets: Sequence[str]) -> str:
    """What may have been meant by a pattern that fits nothing: other depths of its row, or another row."""
    row, _, _ = pattern.partition(":")
    depths = sorted({task.cell.layers or 0 for target in targets for task in tasks(target, [row])})
    if depths:
        return f" Depths of {row}: {', '.join(map(str, depths))}." if any(depths) else f" {row} has no depth."
    names = {task.row.name for target in targets for task in tasks(target)}
    return did_you_mean(row, names | {part for name in names for part in name.split("_")})


def tasks(target: str, only: Sequence[str] = (), num_seeds: int | None = None) -> list[Task]:
    """The tasks of a target.

    Args:
        target: One of `TARGETS`.
        only: Patterns of rows, of which one at least must fit: a row's name or a part of it, such as ``adagpr``,
            ``texas`` or ``table2_gcn*_cora``; with ``:8,16`` only these layers.
        num_seeds: Seeds for each split, from 0 on; by default 3 on the public splits, except for deep networks on
            Pubmed, and 1 where there are ten splits.

    Raises:
        InputError: There is no such target.
    """
    if target not in TARGETS:
        raise unknown_name("target", target, TARGETS)
    found = []
    for row in catalogue().values():
        if not any(fnmatchcase(row.name, pattern) for pattern in TARGETS[target]):
            continue
        for cell in row.cells():
            printed = target != "coefficients" or str(cell.layers) in row.coefficients
            if printed and (not only or any(_fits(pattern.lower(), row, cell) for pattern in only)):
                found.append(Task(row, cell, tuple(range(num_seeds or _num_seeds(row, cell)))))
    return found


def _fits(pattern: str, row: Experiment, cell: Cell) -> bool:
    name, _, depths = pattern.partition(":")
    fits_row = fnmatchcase(row.name, name) or any(fnmatchcase(part, name) for part in row.name.split("_"))
    return fits_row and (not depths or str(cell.layers) in depths.split(","))


def _num_seeds(row: Experiment, cell: Cell) -> int:
    if row.data.split != "public" or (row.data.name == "pubmed" and (cell.layers or 0) >= _DEEP):
        return 1
    return _SEEDS
