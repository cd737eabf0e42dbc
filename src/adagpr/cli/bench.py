"""``adagpr bench``: an epoch taken apart, and AdaGPR beside other implementations of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from adagpr.cli import console
from adagpr.cli.options import AsJson

if TYPE_CHECKING:
    from adagpr.benchmarking import Case, Profile


def bench(
    name: Annotated[
        str,
        Argument(
            metavar="SET",
            help="headline, products, gcnii, layers, coeffs, channels, nodes, edges, hops, memory, saving or signed.",
        ),
    ] = "headline",
    profile: Annotated[bool, Option("--profile", help="Profile one epoch of each case instead of comparing.")] = False,
    out: Annotated[Path, Option(help="Folder of the records; recorded cases are not measured again.")] = Path("bench"),
    as_json: AsJson = False,
) -> None:
    """Time AdaGPR side by side with other implementations of it, or see where an epoch spends its time.

    For example: adagpr bench headline, adagpr bench --profile
    """
    from adagpr import benchmarking

    names = [case.name for case in benchmarking.cases(name)]

    def on_case(case: Case, found: dict[str, Any] | Profile) -> None:
        if isinstance(found, benchmarking.Profile):
            _show(case, found, benchmarking.flame_graph_path(case, out))
        elif sys.stderr.isatty():
            console.note(f"{names.index(case.name) + 1} of {len(names)}: {case.name}")

    found = benchmarking.bench(name, out, profile=profile, on_case=on_case)
    if as_json:
        console.show_json(found.to_plain())
    elif not profile:
        typer.echo(found.markdown(), nl=False)


def _show(case: Case, found: Profile, flame_graph: Path) -> None:
    # The table is for people; standard output belongs to --json.
    show = console.show if sys.stdout.isatty() else console.note
    rows = [(name, f"{a:.2f}", f"{b:.2f}", f"{100 * share:.1f} %") for name, a, b, share in found.table()]
    show(
        "",
        f"{case.name}: {case.num_layers} layers, {case.hidden_channels} channels, K = {case.num_coeffs}",
        console.table(["category", "training ms", "evaluation ms", "share"], rows),
        f"Products alone would take {100 * found.limit_share:.0f} % of this epoch. Flame graph for "
        f"https://www.speedscope.app: {flame_graph}",
    )
