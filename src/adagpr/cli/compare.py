"""``adagpr compare``: two models on the same splits, and whether chance alone explains their difference."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import adagpr
from adagpr.cli.console import show_result, table
from adagpr.cli.options import AsJson


def compare(
    runs_a: Annotated[
        Path,
        Argument(metavar="RUNS_A", help="Model A: folder of a run or of several runs, or a file of results/catalogue."),
    ],
    runs_b: Annotated[Path, Argument(metavar="RUNS_B", help="Model B: the same.")],
    measure: Annotated[str, Option(help="What to compare: test_acc, or val_acc to choose a model.")] = "test_acc",
    as_json: AsJson = False,
) -> None:
    """Compare two models split by split: the mean difference, its interval, and an exact test.

    For example: adagpr compare runs/gcn runs/adagpr
    """
    found = adagpr.compare(runs_a, runs_b, measure)
    seeds = [[] if pair.seed is None else [str(pair.seed)] for pair in found.pairs]
    means = [(pair.split, pair.a, pair.b, pair.difference) for pair in found.pairs]
    means.append(("mean", found.mean_a, found.mean_b, found.mean_difference))
    rows = [
        (name, *seed, f"{a:.2f} %", f"{b:.2f} %", f"{difference:+.2f}")
        for (name, a, b, difference), seed in zip(means, [*seeds, [""] * len(seeds[0])], strict=True)
    ]
    headings = ("split", *(["seed"] if seeds[0] else []), "A", "B", "A - B")
    show_result(as_json, found.to_plain(), found.heading, "", table(headings, rows), "", *found.sentences)
