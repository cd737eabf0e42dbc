"""Search spaces as data: which options a study tries, and which it keeps.

One TOML file is one space::

    model = "adagpr"              # or "any": then what a model does not take is left out
    datasets = ["texas"]          # for which it is the default, on splits of this kind
    split = "geom-gcn"
    source = "where the ranges were read"
    notes = ["what a reader must know"]

    [fixed]                       # the same in every trial: arguments of the model, fields of TrainingConfig
    lr = 0.01

    [search]                      # lists to choose from, and ranges with an optional step or log
    num_layers = [2, 4, 8]
    dropout = { low = 0.1, high = 0.9, step = 0.1 }
    "weight_decay.convs" = [1.0, 0.1] # one parameter group's decay

A file of the package may hold several spaces: one per data set in ``[variants]``, each with more that is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import optuna
from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from adagpr.arguments import Strict, check
from adagpr.errors import InputError, unknown_name
from adagpr.files import read_toml
from adagpr.nn import build, model_options
from adagpr.training import TrainingConfig

_FOLDER = Path(__file__).parent / "spaces"

_Number = StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]
_Value = StrictBool | _Number | StrictStr


class Parameter(Strict):
    """What one option may be: one of ``choices``, or a number from ``low`` to ``high``, whole if both ends are."""

    choices: list[_Value] | None = None
    low: _Number | None = None
    high: _Number | None = None
    step: _Number | None = None
    log: StrictBool = False

    def mistake(self) -> str | None:
        """What is wrong with the parameter, if anything."""
        if self.choices is not None:
            if any(value is not None for value in (self.low, self.high, self.step)) or self.log:
                return "takes either choices or a range, not both"
            return None if self.choices else "needs at least one choice"
        if self.low is None or self.high is None:
            return "needs choices, or low and high"
        if self.low > self.high:
            return f"must have low at most high, got {self.low} and {self.high}"
        if self.log and (self.step is not None or self.low <= 0):
            return "with log must have low above 0 and no step"
        return "must have a step above 0" if self.step is not None and self.step <= 0 else None

    def suggest(self, name: str, trial: optuna.Trial) -> Any:
        """The value that ``trial`` is to try."""
        if self.choices is not None:
            return trial.suggest_categorical(name, self.choices)
        low, high, step = self.low, self.high, self.step
        if isinstance(low, int) and isinstance(high, int) and (step is None or isinstance(step, int)):
            return trial.suggest_int(name, low, high, step=step or 1, log=self.log)
        return tidy(trial.suggest_float(name, float(low or 0), float(high or 0), step=step, log=self.log))

    def extremes(self) -> list[Any]:
        """Every choice, or both ends of the range."""
        return list(self.choices) if self.choices is not None else [self.low, self.high]


def tidy(value: Any) -> Any:
    """A number without the last bits that counting in steps leaves: 0.3 instead of 0.30000000000000004."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


class Space(Strict):
    """A search space; see the module for its file. Names of grouped options have a dot, ``weight_decay.convs``."""

    name: str
    model: str
    datasets: list[str] = Field(default_factory=list)
    split: str | None = None
    source: str = ""
    notes: list[str] = Field(default_factory=list)
    fixed: dict[str, Any] = Field(default_factory=dict)
    search: dict[str, Parameter]

    def suggest(self, trial: optuna.Trial) -> dict[str, Any]:
        """The values that ``trial`` is to try, by name."""
        return {name: parameter.suggest(name, trial) for name, parameter in self.search.items()}

    def options(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What `adagpr.fit` takes for these values, with what is fixed."""
        found: dict[str, Any] = {}
        for name, value in {**self.fixed, **params}.items():
            head, dot, tail = name.partition(".")
            if dot:
                found.setdefault(head, {})[tail] = value
            else:
                found[head] = value
        return found

    def probes(self) -> list[dict[str, Any]]:
        """Values that try out every choice and both ends of every range, the other parameters at their first."""
        first = {name: parameter.extremes()[0] for name, parameter in self.search.items()}
        return [first, *({**first, name: value} for name, item in self.search.items() for value in item.extremes()[1:])]

    def with_settings(self, settings: Mapping[str, Any]) -> Space:
        """The space with these options fixed, and no longer searched."""
        given = flat(settings)

        def is_free(name: str) -> bool:
            return not any(name == key or name.startswith(f"{key}.") or key.startswith(f"{name}.") for key in given)

        fixed = {name: value for name, value in self.fixed.items() if is_free(name)}
        search = {name: item for name, item in self.search.items() if is_free(name)}
        if not search:
            raise InputError("Every option of the search space is set by hand; there is nothing to search.")
        return self.model_copy(update={"fixed": {**fixed, **given}, "search": search})

    def for_model(self, model: str) -> Space:
        """The space for one model: that of another is refused, and a general one loses what the model does not take."""
        options = model_options(model)
        if self.model not in ("any", model):
            raise InputError(f"The search space '{self.name}' is for the model '{self.model}', not for '{model}'.")
        if self.model == model:
            return self
        built = build(model, {**options, "in_channels": 2, "out_channels": 2})
        learns = any(True for _ in built.parameters())
        known = {*options, *(TrainingConfig.model_fields if learns else ())}
        search = {name: item for name, item in self.search.items() if name.partition(".")[0] in known}
        for name in {*search} & {*options}:
            choices = [choice for choice in search[name].choices or [] if _takes(model, name, choice)]
            search[name] = search[name].model_copy(update={"choices": choices or None})
        return self.model_copy(update={"model": model, "search": search})

    def to_plain(self) -> dict[str, Any]:
        """What the trials depend on, as plain data."""
        search = {name: item.model_dump(exclude_none=True, exclude_defaults=True) for name, item in self.search.items()}
        return {"name": self.name, "fixed": self.fixed, "search": search}


def _takes(model: str, name: str, value: Any) -> bool:
    try:
        build(model, {**model_options(model), "in_channels": 2, "out_channels": 2, name: value})
    except InputError:
        return False
    return True


def flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with one name each: a table's entries become ``table.entry``, and the text ``none`` none."""
    found: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{name}": item for name, item in flat(value).items()}
        else:
            found[key] = None if value == "none" else value
    return found


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    """The contents of the spaces that come with the package, by name."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        content = read_toml(path)
        variants = content.pop("variants", {})
        for dataset, fixed in variants.items():
            own = {"datasets": [dataset], "fixed": {**fixed, **content["fixed"]}}
            found[f"{path.stem}_{dataset}"] = {**content, **own}
        if not variants:
            found[path.stem] = content
    return found


def space_names() -> list[str]:
    """The spaces that come with the package."""
    return sorted(_shipped())


def read_space(name: str) -> Space:
    """The space of that name, or that of a TOML file.

    Raises:
        InputError: There is none, or its file has mistakes; all of them are named.
    """
    if name.endswith(".toml"):
        owner, name, content = Path(name).name, Path(name).stem, read_toml(Path(name))
    elif name in _shipped():
        owner, content = name, _shipped()[name]
    else:
        raise unknown_name("search space", name, space_names())
    tables = content.get("search")
    if not isinstance(tables, Mapping) or not tables:
        raise InputError(f"{owner}: search must be a table with an entry for each parameter.")
    mistakes: list[str] = []
    search: dict[str, Parameter] = {}
    for key, table in tables.items():
        place = f"{owner}: search.{key}"
        try:
            search[key] = check(place, Parameter, table if isinstance(table, Mapping) else {"choices": table})
            if (mistake := search[key].mistake()) is not None:
                raise InputError(f"{place} {mistake}.")
        except InputError as error:
            mistakes.append(str(error))
    if mistakes:
        raise InputError(" ".join(mistakes))
    fixed = content.get("fixed", {})
    flat_fixed = flat(fixed) if isinstance(fixed, Mapping) else fixed
    return check(owner, Space, {**content, "name": name, "search": search, "fixed": flat_fixed})


def choose_space(dataset: str, split: str, model: str) -> Space:
    """The paper's space for a data set, a kind of split and a model, else the general one."""
    for name, content in _shipped().items():
        if (content["model"], content.get("split")) == (model, split) and dataset in content["datasets"]:
            return read_space(name)
    return read_space("general")
