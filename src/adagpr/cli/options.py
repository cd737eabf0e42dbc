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

from adagpr.errors import InputError

if TYPE_CHECKING:
    from adagpr.graph import Graph

DataRoot = Annotated[Path | None, typer.Option(help="Folder of the data files. Default: $ADAGPR_DATA or a cache.")]
MovedFile = Annotated[str | None, typer.Option(help="The run's .npz file, where it has moved since.")]

# A user's own graph in two tables: what `adagpr.load` takes, and the option that gives it.
_TABLES: dict[str, tuple[Any, Any]] = {
    "nodes": (Path | None, typer.Option(help="Your own graph: a table of nodes (CSV, TSV, Parquet or Feather).")),
    "edges": (Path | None, typer.Option(help="Its table of edges.")),
    "label": (str | None, typer.Option(help="Column of the classes; empty where the class is unknown.")),
    "id": (str | None, typer.Option(help="Column of the ids. Default: found.")),
    "source": (str | None, typer.Option(help="Column where edges start. Default: found.")),
    "target": (str | None, typer.Option(help="Column where edges end. Default: found.")),
    "weight": (str | None, typer.Option(help="Column of the edges' weights. Default: found.")),
    "split_column": (
        str | None,
        typer.Option(help="Column that says train, val or test. Default: found, else a split is drawn."),
    ),
    "features": (
        list[str] | None,
        typer.Option("--feature", help="Column to make features of; repeatable. Default: all that are left."),
    ),
    "directed": (bool, typer.Option("--directed", help="Edges go one way.")),
    "as_is": (bool, typer.Option("--as-is", help="Take numbers as they are and leave other columns out.")),
}


def takes_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of a user's own tables, in the place of its keyword ``tables``.

    The command gets there what was said of tables, as `adagpr.load` takes it.
    """
    own = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if kind is bool else None,
            annotation=Annotated[kind, option],
        )
        for name, (kind, option) in _TABLES.items()
    ]
    place = list(own.parameters).index("tables")
    parameters = list(own.parameters.values())

    @functools.wraps(command)
    def with_tables(**values: Any) -> None:
        said = {name: values.pop(name) for name in _TABLES}
        tables = {
            name: os.fspath(value) if isinstance(value, Path) else value
            for name, value in said.items()
            if value or value == ""
        }
        command(**values, tables=tables)

    with_tables.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*parameters[:place], *options, *parameters[place + 1 :]]
    )
    return with_tables


def check_tables(dataset: str | None, tables: dict[str, Any], stored: dict[str, Any] | None = None) -> None:
    """Raises an `InputError` where tables are given beside a data set, or not all that is needed.

    Args:
        dataset: The data set that was named, if any.
        tables: What was said of tables.
        stored: What a configuration says of them already.
    """
    if tables and dataset is not None:
        raise InputError(f"Give a data set or tables, not both: '{dataset}' and {_flag(next(iter(tables)))}.")
    for name in ("nodes", "edges", "label"):
        if tables and name not in {**(stored or {}), **tables}:
            raise InputError(f"Tables need --nodes, --edges and --label; --{name} is missing.")


def _flag(name: str) -> str:
    """The option that gives an argument of `adagpr.load`."""
    return f"--{name.removesuffix('s') if name == 'features' else name.replace('_', '-')}"


def say_what_was_found(graph: Graph) -> None:
    """Prints what was found in a user's tables, before anything is made of it.

    Of sentences that differ in names and numbers alone one is printed; all are in the record and on the page.
    """
    alike: dict[str, list[str]] = {}
    for note in graph.notes:
        alike.setdefault(re.sub(r"'[^']*'|\d+", "", note), []).append(note)
    for own in alike.values():
        typer.echo(own[0] if len(own) == 1 else f"{own[0]} So too {len(own) - 1} more columns, which the record names.")
    typer.echo()
