"""What each target of ``adagpr reproduce`` needs: rows of the catalogue, their depths, and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from adagpr.errors import InputError, did_you_mean, unknown_name
from adagpr.experiments.catalogue import Cell, catalogue

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


def plan(targets: Sequence[str], only: Sequence[str] = (), num_seeds: int | None = None) -> dict[str, list[Cell]]:
    """The cells of several targets, see `cells`; an `InputError` if a pattern fits nothing of any of them."""
    for pattern in only:
        if not any(cells(target, [pattern]) for target in targets):
            raise InputError(f"Nothing of {', '.join(targets)} fits '{pattern}'.{_hint(pattern, targets)}")
    return {target: cells(target, only, num_seeds) for target in targets}


def cells(target: str, only: Sequence[str] = (), num_seeds: int | None = None) -> list[Cell]:
    """The cells of one of `TARGETS`.

    Args:
        target: Its name.
        only: Patterns of rows, at least one of which must fit: a row's name or a part of it, such as ``adagpr``,
            ``texas`` or ``table2_gcn*_cora``; with ``:8,16`` only these layers.
        num_seeds: Seeds for each split; see `Experiment.cells`.
    """
    if target not in TARGETS:
        raise unknown_name("target", target, TARGETS)
    rows = [row for row in catalogue().values() if any(fnmatchcase(row.name, name) for name in TARGETS[target])]
    found = [cell for row in rows for cell in row.cells(num_seeds)]
    if target == "coefficients":
        found = [cell for cell in found if cell.coefficients is not None]
    return [cell for cell in found if not only or any(_fits(pattern.lower(), cell) for pattern in only)]


def _fits(pattern: str, cell: Cell) -> bool:
    name, _, depths = pattern.partition(":")
    fits_row = any(fnmatchcase(part, name) for part in (cell.row.name, *cell.row.name.split("_")))
    return fits_row and (not depths or str(cell.layers) in depths.split(","))


def _hint(pattern: str, targets: Sequence[str]) -> str:
    """What may have been meant by a pattern that fits nothing: other depths of its row, or another row."""
    row, _, _ = pattern.partition(":")
    depths = sorted({cell.layers or 0 for target in targets for cell in cells(target, [row])})
    if depths:
        return f" Depths of {row}: {', '.join(map(str, depths))}." if any(depths) else f" {row} has no depth."
    names = {cell.row.name for target in targets for cell in cells(target)}
    return did_you_mean(row, names | {part for name in names for part in name.split("_")})
