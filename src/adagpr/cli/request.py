"""What a user asks for: a configuration file, and words such as ``num_layers=4`` that win over it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adagpr.cli.options import TABLE_OPTIONS
from adagpr.errors import InputError, unknown_name
from adagpr.files import none_from_text, read_toml

_NOT_DATA_OPTIONS = ("name", "split", "data_root", "progress")
_SUMS: tuple[str, ...] = ("graph_sha256", "split_sha256", "recipe_sha256")


@dataclass(frozen=True)
class Request:
    """A data set with options of `adagpr.load` and the sums it must have; a model with its options and training's."""

    dataset: str = "digits"
    split: str | None = None
    model: str = "adagpr"
    options: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    sums: dict[str, str] = field(default_factory=dict)


def read_request(path: Path | None, settings: list[str]) -> Request:
    """The request of a TOML file, if there is one, with ``settings`` laid over it key by key."""
    tables: dict[str, dict[str, Any]] = {"data": {}, "model": {}, "training": {}}
    for name, table in ({} if path is None else read_toml(path)).items():
        if name not in tables:
            raise InputError(f"{path}: {unknown_name('table', name, tables)}")
        if not isinstance(table, dict):
            raise InputError(f"{path}: {name} must be a table, got {table!r}.")
        tables[name] = table
    data, model = tables["data"], tables["model"]
    named = {"dataset": data.pop("name", None), "split": data.pop("split", None), "model": model.pop("name", None)}
    for key, value in named.items():
        if value is not None and not isinstance(value, str):
            raise InputError(f"{path}: the name of the {key} must be a text, got {value!r}.")
    sums = {key: str(data.pop(key)) for key in _SUMS if key in data}
    options = {**model, **tables["training"]}
    for key, value in parse_settings(settings).items():
        if key == "data":
            data |= value if isinstance(value, dict) else {"data": value}
        elif isinstance(value, dict) and isinstance(options.get(key), dict):
            options[key] = options[key] | value
        else:
            options[key] = value
    for key in _NOT_DATA_OPTIONS:
        if key in data:
            raise InputError(f"data.{key} cannot be set; see: adagpr train --help")
    found = {key: value for key, value in named.items() if value is not None}
    # A column may be named "none"; everywhere else the text means None.
    columns = {key: value for key, value in data.items() if key in TABLE_OPTIONS}
    return Request(options=none_from_text(options), data=none_from_text(data) | columns, sums=sums, **found)


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """Reads ``key=value`` words; values as in TOML, bare words as text, ``group.name`` as a nested table.

    Example:
        >>> parse_settings(["num_layers=4", "decay=penalty", "weight_decay.convs=1.0"])
        {'num_layers': 4, 'decay': 'penalty', 'weight_decay': {'convs': 1.0}}
    """
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        head, dot, tail = key.strip().replace("-", "_").partition(".")
        if not equals or not head:
            raise InputError(f"--set takes KEY=VALUE, got '{setting}'.")
        value = {tail: _value(text)} if dot else _value(text)
        if head in found and isinstance(found[head], dict) != isinstance(value, dict):
            raise InputError(f"--set gives {head} both as a value and as a table.")
        found[head] = found[head] | value if head in found and isinstance(value, dict) else value
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError, KeyError):
        return text.strip()
