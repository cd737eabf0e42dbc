"""``adagpr report``: one page of a run, or of several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adagpr.cli.console import show, show_json
from adagpr.cli.options import AsJson, DataRoot


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folder of a run, or of several runs of one model.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    name: Annotated[
        list[str] | None,
        typer.Option(help="Name of a folder on the page; repeat it for each. Default: data set and model."),
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained page about a run: coefficients, training, what the graph is worth, bounds.

    For example: adagpr report runs/texas-adagpr runs/texas-gcn -o texas.html
    """
    from adagpr import reporting

    file = reporting.report(runs, out, names=name or None, data_root=data_root)
    size = file.stat().st_size
    if as_json:
        show_json({"file": str(file), "bytes": size, "runs": [str(run) for run in runs]})
    else:
        show(f"{file}  {size / 1e6:.1f} MB")
