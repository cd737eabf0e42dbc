"""``adagpr plot``: the pictures of a run as files for a paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from adagpr.cli.options import DataRoot

__all__ = ["plot"]


def plot(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or of several runs of one model.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the pictures.")] = Path("figures"),
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="coefficients, evolution, training, worth, filter, smoothing, trust, bound; repeatable. Default: all."
        ),
    ] = None,
    data_root: DataRoot = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the files as JSON.")] = False,
) -> None:
    """Draw the pictures of a run as PDF, PNG and SVG.

    For example: adagpr plot runs/texas-adagpr --only evolution -o figures
    """
    from adagpr import reporting

    files = [str(file) for file in reporting.plot(run, out, only=only or (), data_root=data_root).files]
    typer.echo(json.dumps(files, indent=2) if as_json else "\n".join(files))
