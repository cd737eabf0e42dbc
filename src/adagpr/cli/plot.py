"""``adagpr plot``: the pictures of a run as files for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adagpr.cli.console import show, show_json
from adagpr.cli.options import AsJson, DataRoot


def plot(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or of several runs of one model.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the pictures.")] = Path("figures"),
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only coefficients, evolution, training, worth, filter, smoothing, trust or bound; repeatable."
        ),
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Draw the pictures of a run as PDF, PNG and SVG.

    For example: adagpr plot runs/texas-adagpr --only evolution -o figures
    """
    from adagpr import reporting

    files = [str(file) for file in reporting.plot(run, out, only=only or (), data_root=data_root).files]
    if as_json:
        show_json(files)
    else:
        show(*files)
