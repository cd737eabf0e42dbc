"""``adagpr report`` and ``adagpr plot``: what runs show, as one page and as files for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import adagpr
from adagpr.cli.console import show_result
from adagpr.cli.options import AsJson, DataRoot, RunFiles


def report(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Folder of a run, or of several runs of one model.")],
    out: Annotated[Path, Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    name: Annotated[
        list[str] | None,
        Option(help="Title of a run on the page; repeat it for each RUN. Default: data set and model."),
    ] = None,
    dataset: RunFiles = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained page about a run: coefficients, training, what the graph is worth, bounds.

    For example: adagpr report runs/texas-adagpr runs/texas-gcn -o texas.html
    """
    file = adagpr.report(runs, out, names=name or None, dataset=dataset, data_root=data_root)
    size = file.stat().st_size
    plain = {"file": str(file), "bytes": size, "runs": [str(run) for run in runs]}
    show_result(as_json, plain, f"{file}  {size / 1e6:.1f} MB")


def plot(
    run: Annotated[Path, Argument(metavar="RUN", help="Folder of a run, or of several runs of one model.")],
    out: Annotated[Path, Option("--out", "-o", help="Folder of the pictures.")] = Path("figures"),
    only: Annotated[
        list[str] | None,
        Option(
            help="Draw only coefficients, evolution, training, worth, filter, smoothing, trust or bound; repeatable."
        ),
    ] = None,
    dataset: RunFiles = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Draw the pictures of a run as PDF, PNG and SVG.

    For example: adagpr plot runs/texas-adagpr --only evolution -o figures
    """
    files = [str(file) for file in adagpr.plot(run, out, only=only or (), dataset=dataset, data_root=data_root).files]
    show_result(as_json, files, *files)
