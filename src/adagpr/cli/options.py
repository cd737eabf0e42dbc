"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from adagpr.cli.console import show
from adagpr.errors import InputError

if TYPE_CHECKING:
    from adagpr.graph import Graph

AsJson = Annotated[bool, Option("--json", help="Print the result as JSON.")]
Dataset = Annotated[
    str | None, Argument(help="A data set (see: adagpr data ls) or an .npz file, unless you give tables.")
]
DataRoot = Annotated[Path | None, Option(help="Folder of the data files. Default: $ADAGPR_DATA, else a cache.")]
Jobs = Annotated[int | None, Option(min=1, help="Number of processes. Default: one per core.")]
MovedFile = Annotated[str | None, Option(help="Where the run's .npz file is now, if it has moved.")]
SplitName = Annotated[
    str | None,
    Option(
        help="Name of the split: public, geom-gcn (all ten), geom-gcn/3, random/7; for tables stratified/7. "
        "Default: the data set's own."
    ),
]
TrainedRun = Annotated[Path, Argument(metavar="RUN", help="Folder of a run of adagpr or gcnii.")]

# A user's own graph in two tables: the arguments of `adagpr.load`, and the options that give them.
TABLE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "nodes": (Path | None, Option(help="Your own graph: its table of nodes (CSV, TSV, Parquet or Feather).")),
    "edges": (Path | None, Option(help="Your own graph: its table of edges.")),
    "label": (str | None, Option(help="Column of the classes; empty where a class is unknown.")),
    "id": (str | None, Option(help="Column of the node ids. Default: detected.")),
    "source": (str | None, Option(help="Column where edges start. Default: detected.")),
    "target": (str | None, Option(help="Column where edges end. Default: detected.")),
    "weight": (str | None, Option(help="Column of the edge weights. Default: detected.")),
    "split_column": (
        str | None,
        Option(help="Column that says train, val or test. Default: detected, else a split is drawn."),
    ),
    "features": (
        list[str] | None,
        Option("--feature", help="Column to make features of; repeatable. Default: all other columns."),
    ),
    "directed": (bool, Option("--directed", help="Read each edge in one direction only.")),
    "as_is": (bool, Option("--as-is", help="Use numeric columns unchanged and ignore all others.")),
}


def takes_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces a command's keyword ``tables``, a dictionary as `adagpr.load` takes it, by the options that fill it."""
    own = inspect.signature(command, eval_str=True)
    parameters = list(own.parameters.values())
    place = list(own.parameters).index("tables")
    parameters[place : place + 1] = [
        parameters[place].replace(
            name=name, default=False if kind is bool else None, annotation=Annotated[kind, option]
        )
        for name, (kind, option) in TABLE_OPTIONS.items()
    ]

    @functools.wraps(command)
    def with_tables(**values: Any) -> None:
        given = {name: values.pop(name) for name in TABLE_OPTIONS}
        command(**values, tables={name: value for name, value in given.items() if value or value == ""})

    with_tables.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_tables


def check_tables(dataset: str | None, tables: dict[str, Any], stored: dict[str, Any] | None = None) -> None:
    """Refuses tables beside a data set, and tables of which one is missing here and in a configuration file."""
    if tables and dataset is not None:
        option = next(iter(tables)).replace("_", "-").replace("features", "feature")
        raise InputError(f"Give a data set or tables, not both: '{dataset}' and --{option}.")
    for name in ("nodes", "edges", "label"):
        if tables and name not in {**(stored or {}), **tables}:
            raise InputError(f"Tables need --nodes, --edges and --label; --{name} is missing.")


def show_notes(graph: Graph) -> None:
    """Prints what was found in a user's tables; of sentences that differ only in names and numbers, the first."""
    alike: dict[str, list[str]] = {}
    for note in graph.notes:
        alike.setdefault(re.sub(r"'[^']*'|\d+", "", note), []).append(note)
    for first, *others in alike.values():
        show(f"{first} The same is true of {len(others)} more columns, named in the record." if others else first)
    show("")
