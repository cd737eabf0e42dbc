"""The rows of the paper's tables as data: what was run, with which settings, what was printed, and for which target.

One TOML file is one printed row: what its data sets share, and for each of them what differs::

    like = "table2_gcn"           # the row that says what this one does not
    table = 2
    method = "GCN(Drop)"
    settings = "released"         # whose they are: one of `Settings`
    settings_from = "where they were read, {dataset} being its name, or that none were released"; or by `Settings`
    notes = ["what a reader must know"]
    layers_offset = 0             # num_layers is the printed number of layers plus this
    split = "public"              # for adagpr.load
    model = { name = "gcn" }      # and its arguments
    training = {}                 # fields of TrainingConfig
    layers = [2, 4]               # the printed depths, where all data sets have the same

    [dataset.cora]                # may replace settings and settings_from, and add notes and options of both kinds
    dropout = 0.8
    published = [82.8, 82.0]      # accuracy in percent: one per depth, or { 2 = 82.8 }, or alone for all; "OOM"; or
                                  # "unprinted": run for a figure or a claim that prints no number
    at.2 = { settings = "chosen", lr = 0.1 }      # options of one printed depth, and whose they are
    coefficients.2 = [[1, 0], [0.8, 0.2]]         # what the paper prints of the learned coefficients, by layers
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from adagpr.arguments import Strict, check
from adagpr.errors import InputError, did_you_mean, unknown_name
from adagpr.files import read_toml
from adagpr.nn import model_options
from adagpr.training import TrainingConfig

Published = float | Literal["OOM", "unprinted"]
# By the paper, by the method's authors, by validation here, or what the method is usually run with.
Settings = Literal["printed", "released", "chosen", "usual"]
_FOLDER = Path(__file__).parent / "paper"

# A public split is a single one, so several seeds give the interval; ten fixed splits give it themselves. From this
# depth on a single run on Pubmed takes an hour.
_SEEDS, _DEEP = 3, 32

# What each target of ``adagpr reproduce`` needs: rows by name; of the coefficients only the depths that are printed.
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


@dataclass(frozen=True)
class Experiment:
    """One row of a table on one data set."""

    name: str  # file of the row and data set, such as "table3_gcn_cora"
    table: int | str  # number of the table, or what else the row belongs to
    method: str  # as printed
    model: str
    dataset: str
    split: str  # its split or splits, as `adagpr.load` takes them
    settings: Settings  # whose the options are
    settings_from: str  # where they were read
    notes: list[str]
    layers_offset: int  # by how much ``num_layers`` differs from the printed number of layers
    options: dict[str, Any]  # what `adagpr.fit` takes, depth excluded
    published: dict[str, Published]  # accuracy in percent by printed layers; "any" where none are printed
    coefficients: dict[str, list[list[float]]]  # as printed, by printed layers, [layers][hops]
    at: dict[str, dict[str, Any]]  # options of single depths, and whose they are

    def cells(self, num_seeds: int | None = None) -> list[Cell]:
        """The printed numbers with the options behind each.

        Seeds count from 0; by default 3 on the public splits, except for deep networks on Pubmed, and 1 on ten splits.
        """
        found = []
        for printed, published in self.published.items():
            layers = None if printed == "any" else int(printed)
            depth = {} if layers is None else {"num_layers": layers + self.layers_offset}
            here = {"settings": self.settings, **self.at.get(printed, {})}
            settings = here.pop("settings")
            is_long = self.dataset == "pubmed" and (layers or 0) >= _DEEP
            seeds = range(num_seeds or (1 if is_long or self.split != "public" else _SEEDS))
            found.append(Cell(self, layers, published, settings, {**self.options, **here, **depth}, tuple(seeds)))
        return found


@dataclass(frozen=True)
class Cell:
    """One number of the paper: a row on one data set at one depth."""

    row: Experiment
    layers: int | None  # the depth as printed, none where the table prints none
    published: Published
    settings: Settings
    options: dict[str, Any]  # what `adagpr.fit` takes, depth included
    seeds: tuple[int, ...]  # those that it is run with on each of its splits

    @property
    def name(self) -> str:
        """The name of its record."""
        return self.row.name if self.layers is None else f"{self.row.name}-{self.layers}"

    @property
    def coefficients(self) -> list[list[float]] | None:
        """What the paper prints of the learned coefficients, if anything."""
        return self.row.coefficients.get(str(self.layers))


class _Dataset(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    published: Published | list[Published] | dict[str, Published]
    settings: Settings | None = None
    settings_from: str | None = None
    notes: list[str] = Field(default_factory=list)
    coefficients: dict[str, list[list[float]]] = Field(default_factory=dict)
    at: dict[str, dict[str, Any]] = Field(default_factory=dict)


class _Row(Strict):
    table: int | Literal["ablation", "hop0"]
    method: str
    settings: Settings
    settings_from: str | dict[Settings, str]
    notes: list[str] = Field(default_factory=list)
    layers_offset: int = 0
    layers: list[int] = Field(default_factory=list)
    split: str
    model: dict[str, Any]
    training: dict[str, Any] = Field(default_factory=dict)
    dataset: dict[str, _Dataset]


@cache
def catalogue() -> dict[str, Experiment]:
    """All experiments by name, in the order of their names."""
    found = {row.name: row for path in _FOLDER.glob("*.toml") for row in read_rows(path)}
    return dict(sorted(found.items()))


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in catalogue():
        raise unknown_name("experiment", name, catalogue())
    return catalogue()[name]


def read_rows(path: Path) -> list[Experiment]:
    """Reads and checks the file of a printed row: one experiment for each of its data sets."""
    values = read_toml(path)
    if "like" in values:
        values = {**read_toml(path.with_name(f"{values.pop('like')}.toml")), **values}
    row = check(path.name, _Row, values)
    return [_experiment(path, row, dataset, here) for dataset, here in row.dataset.items()]


def _experiment(path: Path, row: _Row, dataset: str, here: _Dataset) -> Experiment:
    model, arguments = str(row.model["name"]), {key: value for key, value in row.model.items() if key != "name"}
    own, settings = dict(here.model_extra or {}), here.settings or row.settings
    sources = row.settings_from if isinstance(row.settings_from, dict) else {settings: row.settings_from}
    published = _by_layers(path, row.layers, here.published)
    of_model, of_training = set(model_options(model)), set(TrainingConfig.model_fields)
    _check_names(path, "key of the model", arguments, of_model)
    _check_names(path, "key", own, of_model | of_training)
    for options in here.at.values():
        _check_names(path, "key", options, of_model | of_training | {"settings"})
    _check_names(path, "key of settings_from", [settings], set(sources))
    _check_names(path, "depth", (*here.at, *here.coefficients), set(published))
    check(path.name, TrainingConfig, {**row.training, **{key: own[key] for key in own if key in of_training}})
    return Experiment(
        name=f"{path.stem}_{dataset}",
        table=row.table,
        method=row.method,
        model=model,
        dataset=dataset,
        split=row.split,
        settings=settings,
        settings_from=(here.settings_from or sources[settings]).replace("{dataset}", dataset),
        notes=[*row.notes, *here.notes],
        layers_offset=row.layers_offset,
        options={**arguments, **row.training, **own},
        published=published,
        coefficients=here.coefficients,
        at=here.at,
    )


def _by_layers(
    path: Path, layers: list[int], published: Published | list[Published] | dict[str, Published]
) -> dict[str, Published]:
    if isinstance(published, dict):
        return published
    depths = [str(depth) for depth in layers] or ["any"]
    values = published if isinstance(published, list) else [published] * len(depths)
    if len(values) != len(depths):
        raise InputError(f"{path.name}: published must have one value for each of layers, got {values}.")
    return dict(zip(depths, values, strict=True))


def _check_names(path: Path, kind: str, names: Iterable[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"{path.name}: {unknown_name(kind, name, known)}")


def plan(targets: Sequence[str], only: Sequence[str] = (), num_seeds: int | None = None) -> dict[str, list[Cell]]:
    """The cells of several targets, by default all, without targets that no pattern fits; see `cells`.

    An `InputError` says that a pattern fits nothing of any of them.
    """
    targets = targets or list(TARGETS)
    for pattern in only:
        if not any(cells(target, [pattern]) for target in targets):
            raise InputError(f"Nothing of {', '.join(targets)} fits '{pattern}'.{_hint(pattern, targets)}")
    found = {target: cells(target, only, num_seeds) for target in targets}
    return {target: group for target, group in found.items() if group or not only}


def cells(target: str, only: Sequence[str] = (), num_seeds: int | None = None) -> list[Cell]:
    """The cells of one of `TARGETS` that fit at least one of the patterns ``only``, if there are any.

    A pattern is a row's name or part of it, such as ``adagpr``, ``texas`` or ``table2_gcn*_cora``; with ``:8,16`` only
    these layers. For ``num_seeds`` see `Experiment.cells`.
    """
    if target not in TARGETS:
        raise unknown_name("target", target, TARGETS)
    rows = [row for row in catalogue().values() if any(fnmatchcase(row.name, name) for name in TARGETS[target])]
    found = [cell for row in rows for cell in row.cells(num_seeds)]
    if target == "coefficients":
        found = [cell for cell in found if cell.coefficients is not None]
    return [cell for cell in found if not only or any(_fits(pattern, cell) for pattern in only)]


def _fits(pattern: str, cell: Cell) -> bool:
    name, _, depths = pattern.lower().partition(":")
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
