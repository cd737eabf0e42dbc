"""``adagpr compare``: two models on the same splits, and whether chance alone explains their difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from adagpr.insight import Comparison

__all__ = ["compare"]

_WORDS = {"test_acc": "test", "val_acc": "validation"}


def compare(
    runs_a: Annotated[
        Path,
        typer.Argument(
            metavar="RUNS_A", help="Model A: folder of a run or of several runs, or a file of results/catalogue."
        ),
    ],
    runs_b: Annotated[Path, typer.Argument(metavar="RUNS_B", help="Model B: the same.")],
    measure: Annotated[str, typer.Option(help="test_acc, or val_acc to choose a model by.")] = "test_acc",
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two models split by split: the mean difference, its interval, and an exact test.

    For example: adagpr compare runs/gcn runs/adagpr
    """
    from adagpr.insight import compare as compare_runs

    found = compare_runs(runs_a, runs_b, measure)
    if as_json:
        typer.echo(json.dumps(found.to_plain(), indent=2))
    else:
        _show(found)


def _show(found: Comparison) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    by_seed = found.pairs[0].seed is not None
    table = Table(box=None, pad_edge=False)
    for heading in ("split", *(["seed"] if by_seed else []), "A", "B", "A - B"):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for pair in found.pairs:
        seed = [str(pair.seed)] if by_seed else []
        table.add_row(Text(pair.split), *seed, f"{pair.a:.2f} %", f"{pair.b:.2f} %", f"{pair.difference:+.2f}")
    table.add_section()
    table.add_row("mean", *[""] * by_seed, f"{found.mean_a:.2f} %", f"{found.mean_b:.2f} %", _points(found))
    heading = f"{found.dataset}, {_WORDS[found.measure]} accuracy: A is {found.name_a}, B is {found.name_b}\n"
    console.print(heading, soft_wrap=True, markup=False)
    console.print(table, "")
    for sentence in (*_sentences(found), *found.remarks):
        console.print(sentence, soft_wrap=True, markup=False)


def _points(found: Comparison) -> str:
    return f"{found.mean_difference:+.2f}"


def _intervals(found: Comparison) -> str:
    if found.t_interval is None or found.bootstrap_interval is None:
        return ""
    (low, high), (low_boot, high_boot) = found.t_interval, found.bootstrap_interval
    return (
        f" on average, 95 % interval {low:+.2f} to {high:+.2f} (Student's t) or "
        f"{low_boot:+.2f} to {high_boot:+.2f} (bootstrap)"
    )


def _sentences(found: Comparison) -> list[str]:
    sentences = [
        f"A less B is {_points(found)} points{_intervals(found)}; "
        f"A won {found.wins}, tied {found.ties}, lost {found.losses}."
    ]
    if found.node_points is not None:
        sentences.append(
            f"One of {found.num_nodes} {_WORDS[found.measure]} nodes is worth {found.node_points:.2f} points; "
            f"the mean difference is {abs(found.mean_difference) / found.node_points:.1f} nodes."
        )
    sentences.append(f"At the 5 % level: {found.verdict} (p = {found.p_value:.4g}, {found.method}).")
    return sentences
