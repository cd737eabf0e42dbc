"""``adagpr report``: one page of a run, or of several side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from adagpr.cli.options import DataRoot

__all__ = ["report"]


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folder of a run, or of several runs of one model.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file.")] = Path("report.html"),
    name: Annotated[
        list[str] | None, typer.Option(help="What to call each folder, once for each. Default: data set and model.")
    ] = None,
    data_root: DataRoot = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the file and its size as JSON.")] = False,
) -> None:
    """Write a page of a run that opens anywhere: coefficients, training, what the graph is worth, bounds.

    For example: adagpr report runs/texas-adagpr runs/texas-gcn -o texas.html
    """
    from adagpr import reporting

    file = reporting.report(runs, out, names=name or None, data_root=data_root)
    size = file.stat().st_size
    if as_json:
        typer.echo(json.dumps({"file": str(file), "bytes": size, "runs": [str(run) for run in runs]}, indent=2))
    else:
        typer.echo(f"{file}  {size / 1e6:.1f} MB")
