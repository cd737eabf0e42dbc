"""Options that several commands share."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adagpr.errors import InputError

if TYPE_CHECKING:
    from adagpr.graph import Graph

__all__ = [
    "AsIs",
    "DataRoot",
    "Directed",
    "EdgeTable",
    "Features",
    "IdColumn",
    "LabelColumn",
    "MovedFile",
    "NodeTable",
    "SourceColumn",
    "SplitColumn",
    "TargetColumn",
    "WeightColumn",
    "given_tables",
    "say_what_was_found",
]

DataRoot = Annotated[Path | None, typer.Option(help="Folder of the data files. Default: $ADAGPR_DATA or a cache.")]
MovedFile = Annotated[str | None, typer.Option(help="The run's .npz file, where it has moved since.")]

# A user's own graph in two tables.
NodeTable = Annotated[
    Path | None, typer.Option(help="Your own graph: a table of nodes (CSV, TSV, Parquet or Feather).")
]
EdgeTable = Annotated[Path | None, typer.Option(help="Its table of edges.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column of the classes; empty where the class is unknown.")]
IdColumn = Annotated[str | None, typer.Option("--id", help="Column of the ids. Default: found.")]
SourceColumn = Annotated[str | None, typer.Option(help="Column where edges start. Default: found.")]
TargetColumn = Annotated[str | None, typer.Option(help="Column where edges end. Default: found.")]
WeightColumn = Annotated[str | None, typer.Option(help="Column of the edges' weights. Default: found.")]
SplitColumn = Annotated[
    str | None, typer.Option(help="Column that says train, val or test. Default: found, else a split is drawn.")
]
Features = Annotated[
    list[str] | None, typer.Option(help="Column to make features of; repeatable. Default: all that are left.")
]
Directed = Annotated[bool, typer.Option("--directed", help="Edges go one way.")]
AsIs = Annotated[bool, typer.Option("--as-is", help="Take numbers as they are and leave other columns out.")]


def given_tables(dataset: str | None, stored: dict[str, Any], **named: Any) -> dict[str, Any]:
    """What was said of tables, as `adagpr.load` takes it; nothing where a data set is named and no table.

    Args:
        dataset: The data set that was named, if any.
        stored: What a configuration says of the tables already.
        named: The values of the options.
    """
    tables = {
        key: os.fspath(value) if isinstance(value, Path) else value
        for key, value in named.items()
        if value or value == ""
    }
    if tables and dataset is not None:
        raise InputError(f"Give a data set or tables, not both: '{dataset}' and {_flag(next(iter(tables)))}.")
    for name in ("nodes", "edges", "label"):
        if tables and name not in {**stored, **tables}:
            raise InputError(f"Tables need --nodes, --edges and --label; --{name} is missing.")
    return tables


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
