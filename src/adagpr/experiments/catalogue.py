"""The rows of the paper's tables as data: what was run, with which settings, and what was printed.

One TOML file is one row of a table for one data set::

    table = 2
    method = "GCN(Drop)"
    settings = "released"         # whose they are: one of `Settings`
    settings_from = "where the settings were read, or that none were released"
    notes = ["what a reader must know"]
    layers_offset = 0             # num_layers is the printed number of layers plus this

    [data]                        # arguments of adagpr.load
    [model]                       # name and arguments
    [training]                    # fields of TrainingConfig
    [published]                   # accuracy in percent by layers; "any" where none are printed
    "2" = 82.8                    # or "OOM", or "unprinted": run for a figure or a claim that prints no number
    [coefficients]                # what the paper prints of the learned coefficients, by layers
    "2" = [[1, 0], [0.8, 0.2]]
    [at.2]                        # options of one printed depth, before those of the whole row, and whose they are
    settings = "chosen"
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from adagpr.arguments import check
from adagpr.errors import InputError, unknown_name
from adagpr.files import read_toml
from adagpr.nn import model_class, model_options
from adagpr.training import TrainingConfig

__all__ = ["Cell", "Experiment", "catalogue", "experiment"]

Published = float | Literal["OOM", "unprinted"]
# By the paper, by the method's authors, by validation here, or what the method is usually run with.
Settings = Literal["printed", "released", "chosen", "usual"]
_FOLDER = Path(__file__).parent / "catalogue"


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    split: str


class Cell(BaseModel):
    """One printed number: a row at one depth.

    Attributes:
        layers: The depth as printed, none where the table prints none.
        published: Accuracy in percent, ``"OOM"``, or ``"unprinted"``.
        settings: Whose the options are.
        options: What `adagpr.fit` takes, depth included.
    """

    model_config = ConfigDict(frozen=True)

    layers: int | None
    published: Published
    settings: Settings
    options: dict[str, Any]


class Experiment(BaseModel):
    """One row of a table for one data set; see the module for its file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    table: int | Literal["ablation", "hop0"]
    method: str
    settings: Settings
    settings_from: str
    notes: list[str] = Field(default_factory=list)
    layers_offset: int = 0
    data: _Data
    model: dict[str, Any]
    training: dict[str, Any]
    published: dict[str, Published]
    coefficients: dict[str, list[list[float]]] = Field(default_factory=dict)
    at: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def cells(self) -> list[Cell]:
        """The printed numbers with the options that stand behind each."""
        own = {key: value for key, value in self.model.items() if key != "name"}
        found = []
        for printed, value in self.published.items():
            depth = {} if printed == "any" else {"num_layers": int(printed) + self.layers_offset}
            layers = None if printed == "any" else int(printed)
            here = {"settings": self.settings, **self.at.get(printed, {})}
            settings = here.pop("settings")
            options = {**own, **self.training, **here, **depth}
            found.append(Cell(layers=layers, published=value, settings=settings, options=options))
        return found


@cache
def catalogue() -> dict[str, Experiment]:
    """All experiments by name, that of their file."""
    return {path.stem: _read(path) for path in sorted(_FOLDER.glob("*.toml"))}


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in catalogue():
        raise unknown_name("experiment", name, catalogue())
    return catalogue()[name]


def _read(path: Path) -> Experiment:
    found = check(path.name, Experiment, {"name": path.stem, **read_toml(path)})
    known = {"name", *model_options(model_class(found.model["name"]).name)}
    at_depth = known | {"settings", *TrainingConfig.model_fields}
    for keys, allowed in ((found.model, known), *((options, at_depth) for options in found.at.values())):
        for key in keys:
            if key not in allowed:
                raise InputError(f"{path.name}: {unknown_name('key of the model', key, allowed)}")
    for depth in (*found.at, *found.coefficients):
        if depth not in found.published:
            raise InputError(f"{path.name}: {unknown_name('depth', depth, found.published)}")
    check(path.name, TrainingConfig, found.training)
    return found
