"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adagpr.cli.console import show
from adagpr.errors import InputError

if TYPE_CHECKING:
    from adagpr.graph import Graph

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Dataset = Annotated[
    str | None, typer.Argument(help="A data set (see: adagpr data ls) or an .npz file, unless you give tables.")
]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of the data files. Default: $ADAGPR_DATA, else a cache.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Number of processes. Default: one per core.")]
MovedFile = Annotated[str | None, typer.Option(help="Where the run's .npz file is now, if it has moved.")]
SplitName = Annotated[
    str | None,
    typer.Option(
        help="Name of the split: public, geom-gcn (all ten), geom-gcn/3, random/7; for tables stratified/7. "
        "Default: the data set's own."
    ),
]
TrainedRun = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run of adagpr or gcnii.")]

# A user's own graph in two tables: the arguments of `adagpr.load`, and the options that give them.
TABLE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "nodes": (Path | None, typer.Option(help="Your own graph: its table of nodes (CSV, TSV, Parquet or Feather).")),
    "edges": (Path | None, typer.Option(help="Your own graph: its table of edges.")),
    "label": (str | None, typer.Option(help="Column of the classes; empty where a class is unknown.")),
    "id": (str | None, typer.Option(help="Column of the node ids. Default: detected.")),
    "source": (str | None, typer.Option(help="Column where edges start. Default: detected.")),
    "target": (str | None, typer.Option(help="Column where edges end. Default: detected.")),
    "weight": (str | None, typer.Option(help="Column of the edge weights. Default: detected.")),
    "split_column": (
        str | None,
        typer.Option(help="Column that says train, val or test. Default: detected, else a split is drawn."),
    ),
    "features": (
        list[str] | None,
        typer.Option("--feature", help="Column to make features of; repeatable. Default: all other columns."),
    ),
    "directed": (bool, typer.Option("--directed", help="Read each edge in one direction only.")),
    "as_is": (bool, typer.Option("--as-is", help="Use numeric columns unchanged and ignore all others.")),
}


def takes_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces a command's keyword ``tables`` by the options of a user's own tables.

    The command gets those that were given in a dictionary, as `adagpr.load` takes them.
    """
    own = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if kind is bool else None,
            annotation=Annotated[kind, option],
        )
        for name, (kind, option) in TABLE_OPTIONS.items()
    ]
    place = list(own.parameters).index("tables")
    parameters = list(own.parameters.values())

    @functools.wraps(command)
    def with_tables(**values: Any) -> None:
        given = {name: values.pop(name) for name in TABLE_OPTIONS}
        tables = {
            name: os.fspath(value) if isinstance(value, Path) else value
            for name, value in given.items()
            if value or value == ""
        }
        command(**values, tables=tables)

    with_tables.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*parameters[:place], *options, *parameters[place + 1 :]]
    )
    return with_tables


def check_tables(dataset: str | None, tables: dict[str, Any], stored: dict[str, Any] | None = None) -> None:
    """Raises an `InputError` if tables are given beside a data set, or if one that is needed is missing.

    Args:
        dataset: The data set that was named, if any.
        tables: The options of tables that were given.
        stored: Those that a configuration file gives.
    """
    if tables and dataset is not None:
        raise InputError(f"Give a data set or tables, not both: '{dataset}' and {_flag(next(iter(tables)))}.")
    for name in ("nodes", "edges", "label"):
        if tables and name not in {**(stored or {}), **tables}:
            raise InputError(f"Tables need --nodes, --edges and --label; --{name} is missing.")


def _flag(name: str) -> str:
    """The option that gives an argument of `adagpr.load`."""
    return f"--{name.removesuffix('s') if name == 'features' else name.replace('_', '-')}"


def show_notes(graph: Graph) -> None:
    """Prints what was found in a user's tables, before anything is made of it.

    Of sentences that differ only in names and numbers, one is printed; all are in the record and on the page.
    """
    alike: dict[str, list[str]] = {}
    for note in graph.notes:
        alike.setdefault(re.sub(r"'[^']*'|\d+", "", note), []).append(note)
    for first, *others in alike.values():
        show(f"{first} The same is true of {len(others)} more columns, named in the record." if others else first)
    show("")
