"""``adagpr bench``: an epoch taken apart, and AdaGPR beside the other ways of computing it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from adagpr.benchmarking import Case
    from adagpr.benchmarking.profile import Profile

__all__ = ["bench"]


def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SET",
            help="headline, products, gcnii, layers, coeffs, channels, nodes, edges, hops, memory, saving.",
        ),
    ] = "headline",
    profile: Annotated[
        bool, typer.Option("--profile", help="Take one epoch of each case apart instead of comparing.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder of the records; what is there is not measured again.")] = Path(
        "bench"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time AdaGPR side by side with other ways of computing it, or see where an epoch spends its time.

    For example: adagpr bench headline, adagpr bench --profile
    """
    from adagpr.benchmarking import cases

    chosen = cases(name)
    if profile:
        found = {case.name: _profile(case, out) for case in chosen}
        if as_json:
            typer.echo(json.dumps({key: item.to_plain() for key, item in found.items()}, indent=2))
        return
    _compare(name, len(chosen), out, as_json)


def _compare(name: str, num_cases: int, out: Path, as_json: bool) -> None:
    from rich.console import Console

    from adagpr.benchmarking import markdown, run_set

    notes = Console(stderr=True)
    done = 0

    def on_case(case: Case, record: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        if notes.is_terminal:
            notes.print(f"{done} of {num_cases}: {case.name}", highlight=False)

    records = run_set(name, out, on_case)
    typer.echo(json.dumps(records, indent=2) if as_json else markdown(records), nl=as_json)


def _profile(case: Case, out: Path) -> Profile:
    import torch

    from adagpr.benchmarking import load_graph
    from adagpr.benchmarking.cases import build_model
    from adagpr.benchmarking.flame import flame_svg
    from adagpr.benchmarking.profile import category, profile_epoch
    from adagpr.files import make_folder, write_json, write_text
    from adagpr.ops import buffer_pool
    from adagpr.system import keep_freed_memory
    from adagpr.training import State, training_data

    keep_freed_memory()
    graph, split = load_graph(case)
    model, config = build_model(case, graph, split)
    torch.set_num_threads(min(config.num_threads or 1, case.threads))
    with buffer_pool():
        found = profile_epoch(State(model, config), training_data(graph, split, config, model))
    make_folder(out)
    write_json(out / f"profile-{case.name}.json", found.to_plain())
    write_text(out / f"profile-{case.name}.svg", flame_svg(found.stacks, category))
    _show(case, found, out / f"profile-{case.name}.svg")
    return found


def _show(case: Case, found: Profile, figure: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from adagpr.benchmarking.profile import table

    # The table is for people; standard output belongs to --json.
    console = Console(stderr=not sys.stdout.isatty(), highlight=False)
    shown = Table(box=None, pad_edge=False)
    for heading in ("part", "training ms", "evaluation ms", "share"):
        shown.add_column(heading, justify="left" if heading == "part" else "right")
    for row in table(found):
        numbers = (f"{row['training_ms']:.2f}", f"{row['evaluation_ms']:.2f}", f"{100 * row['share']:.1f} %")
        shown.add_row(row["part"], *numbers)
    console.print(f"\n{case.name}: {case.num_layers} layers, {case.hidden_channels} channels, K = {case.num_coeffs}")
    console.print(shown)
    console.print(f"Products alone would take {100 * found.limit_share:.0f} % of this epoch. Flame graph: {figure}")
