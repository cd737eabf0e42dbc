"""Options that several commands share, and what is asked for with them and with a configuration file."""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import adagpr
from adagpr.cli.console import show
from adagpr.errors import InputError, unknown_name
from adagpr.files import none_from_text, read_toml, require_named

AsJson = Annotated[bool, Option("--json", help="Print the result as JSON.")]
Dataset = Annotated[
    str | None, Argument(help="A data set (see: adagpr data ls) or an .npz file, unless you give tables.")
]
DataRoot = Annotated[Path | None, Option(help="Folder of the data files. Default: $ADAGPR_DATA, else a cache.")]
Jobs = Annotated[int | None, Option(min=1, help="Number of processes. Default: one per core.")]
RunFiles = Annotated[
    list[str] | None,
    Option(
        "--dataset",
        help="The run's .npz file, or its table of nodes and, with the option again, of edges; "
        "for a run that you did not train, or whose files have moved.",
    ),
]
SplitName = Annotated[
    str | None,
    Option(
        help="Name of the split: public, geom-gcn (all ten), geom-gcn/3, random/7; for tables stratified/7. "
        "Default: the data set's own."
    ),
]
TrainedRun = Annotated[Path, Argument(metavar="RUN", help="Folder of a run of adagpr or gcnii.")]

# A user's own graph in two tables: the arguments of `adagpr.load`, and the options that give them.
TABLE_OPTIONS: dict[str, tuple[Any, str]] = {
    "nodes": (Path | None, "Your own graph: its table of nodes (CSV, TSV, Parquet or Feather)."),
    "edges": (Path | None, "Your own graph: its table of edges."),
    "label": (str | None, "Column of the classes; empty where a class is unknown."),
    "id": (str | None, "Column of the node ids. Default: detected."),
    "source": (str | None, "Column where edges start. Default: detected."),
    "target": (str | None, "Column where edges end. Default: detected."),
    "weight": (str | None, "Column of the edge weights. Default: detected."),
    "split_column": (str | None, "Column that says train, val or test. Default: detected, else a split is drawn."),
    "features": (list[str] | None, "Column to make features of; repeatable. Default: all other columns."),
    "directed": (bool, "Read each edge in one direction only."),
    "as_is": (bool, "Use numeric columns unchanged and ignore all others."),
}
_NOT_DATA_OPTIONS = ("name", "split", "data_root", "progress")
_SUMS = ("graph_sha256", "split_sha256", "recipe_sha256")


@dataclass(frozen=True)
class Request:
    """A data set with options of `adagpr.load` and the sums it must have; a model with its options and training's."""

    dataset: str | None = None
    split: str | None = None
    model: str = "adagpr"
    options: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    sums: dict[str, str] = field(default_factory=dict)


def takes_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces a command's keyword ``tables``, a dictionary as `adagpr.load` takes it, by the options that fill it."""
    own = inspect.signature(command, eval_str=True)
    parameters = list(own.parameters.values())
    place = list(own.parameters).index("tables")
    parameters[place : place + 1] = [
        parameters[place].replace(
            name=name,
            default=False if kind is bool else None,
            annotation=Annotated[kind, Option(_flag(name), help=text)],
        )
        for name, (kind, text) in TABLE_OPTIONS.items()
    ]

    @functools.wraps(command)
    def with_tables(**values: Any) -> None:
        given = {name: values.pop(name) for name in TABLE_OPTIONS}
        command(**values, tables={name: value for name, value in given.items() if value or value == ""})

    with_tables.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_tables


def _flag(name: str) -> str:
    return "--feature" if name == "features" else f"--{name.replace('_', '-')}"


def check_tables(dataset: str | None, tables: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> None:
    """Refuses tables beside a data set, and tables of which one is missing here and in a configuration file."""
    if tables and dataset is not None:
        raise InputError(f"Give a data set or tables, not both: '{dataset}' and {_flag(next(iter(tables)))}.")
    for name in ("nodes", "edges", "label"):
        if tables and name not in {**(stored or {}), **tables}:
            raise InputError(f"Tables need --nodes, --edges and --label; --{name} is missing.")


def read_request(
    path: Path | None,
    settings: Sequence[str],
    *,
    dataset: str | None = None,
    split: str | None = None,
    model: str | None = None,
    tables: Mapping[str, Any] | None = None,
) -> Request:
    """The request of a TOML file, if there is one, with the other arguments laid over it, settings key by key."""
    sections: dict[str, dict[str, Any]] = {"data": {}, "model": {}, "training": {}}
    for name, section in ({} if path is None else read_toml(path)).items():
        if name not in sections:
            raise InputError(f"{path}: {unknown_name('table', name, sections)}")
        if not isinstance(section, dict):
            raise InputError(f"{path}: {name} must be a table, got {section!r}.")
        sections[name] = section
    data, own = sections["data"], sections["model"]
    named = {"dataset": data.pop("name", None), "split": data.pop("split", None), "model": own.pop("name", None)}
    for key, value in named.items():
        if value is not None and not isinstance(value, str):
            raise InputError(f"{path}: the name of the {key} must be a text, got {value!r}.")
    sums = {key: str(data.pop(key)) for key in _SUMS if key in data}
    options = {**own, **sections["training"]}
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
    tables = tables or {}
    _check_named(path, dataset or named["dataset"], data, tables, is_own=dataset is not None)
    check_tables(dataset, tables, data if named["dataset"] == "tables" else {})
    if tables:
        dataset = "tables"
    return Request(
        dataset or named["dataset"],
        split or named["split"],
        model or named["model"] or "adagpr",
        none_from_text(options),
        # A column may be named "none"; everywhere else the text means None.
        {**none_from_text(data), **{key: data[key] for key in data if key in TABLE_OPTIONS}, **tables},
        # Whoever asks for other data does not repeat a run.
        {} if dataset or split else sums,
    )


def _check_named(
    path: Path | None, dataset: str | None, data: Mapping[str, Any], tables: Mapping[str, Any], is_own: bool
) -> None:
    """Refuses files that are named by the configuration alone, and lie elsewhere than it."""
    if is_own or path is None:
        return
    if dataset == "tables":
        files = [data[key] for key in ("nodes", "edges") if key in data and key not in tables]
        require_named(files, path, "--nodes FILE --edges FILE --label COLUMN")
    elif dataset is not None and dataset.endswith(".npz"):
        require_named([dataset], path, "adagpr train FILE --config ...")


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
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


def load_data(request: Request, data_root: Path | None, with_notes: bool) -> tuple[adagpr.Graph, list[adagpr.Split]]:
    """Loads the data of a request, if it is what the request was written for, and prints what was found in tables."""
    graph, splits = adagpr.load(request.dataset or "digits", request.split, data_root=data_root, **request.data)
    if with_notes:
        _show_notes(graph.notes)
    if request.sums:
        from adagpr.training import describe_data

        found = describe_data(graph, splits[0])
        for key, value in request.sums.items():
            if found[key] != value:
                what = f"another {key.removesuffix('_sha256')} of '{request.dataset or 'digits'}'"
                raise InputError(f"The configuration was written for {what}: {key} differs.")
    return graph, splits


def _show_notes(notes: Sequence[str]) -> None:
    """Prints sentences; of those that differ only in names and numbers, the first."""
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(re.sub(r"'[^']*'|\d+", "", note), []).append(note)
    for first, *others in alike.values():
        show(f"{first} The same is true of {len(others)} more columns, named in the record." if others else first)
    show("")
