"""``adagpr reproduce``: the paper's tables and figures, run where they are missing, beside what was printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import adagpr
from adagpr.cli import console
from adagpr.cli.interruption import interruptible
from adagpr.cli.options import AsJson, DataRoot, Jobs

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from adagpr.experiments import Cell, Table, TargetReport


def reproduce(
    targets: Annotated[
        list[str] | None,
        Argument(
            metavar="[TARGET]...",
            help="What to reproduce: table1, table2, table3, coefficients, evolution or ablation. Default: all.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        Option(help="Rows by name or part of a name, such as adagpr, texas or table2_gcn_cora:2,4; repeatable."),
    ] = None,
    seeds: Annotated[
        int | None,
        Option(
            min=1,
            help="Seeds per split. Default: 1 on ten splits, 3 on public ones, but 1 on Pubmed with 32 layers or more.",
        ),
    ] = None,
    jobs: Jobs = None,
    data_root: DataRoot = None,
    status: Annotated[bool, Option("--status", help="Only show what is done, missing or failed.")] = False,
    out: Annotated[Path, Option(help="Folder of tables, figures and records.")] = Path("reproduction"),
    runs: Annotated[Path | None, Option(help="Folder of the runs. Default: runs in the folder of --out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's tables and figures; if it is stopped, the same command resumes.

    For example: adagpr reproduce table3 --only adagpr, adagpr reproduce --status
    """
    asked: dict[str, Any] = {"only": only or (), "seeds": seeds, "out": out}
    if status:
        _show_status(targets or (), asked, as_json)
        return
    with interruptible(runs or out / "runs"), console.progress(remaining=True) as bars:

        def on_progress(name: str, done: int, total: int, share: float) -> None:
            bars.update(name, share, 1.0, f"{done} of {total} runs")

        found = adagpr.reproduce(
            targets or (), jobs=jobs, data_root=data_root, runs=runs, on_progress=on_progress, **asked
        )
    if as_json:
        console.show_json(found.to_plain())
    for target, report in found.reports.items() if not as_json else ():
        _show_tables(report)
        console.note(f"Written: {', '.join(map(str, found.files[target]))}", dim=True)
    console.note(*found.left_out, *(f"Failed: {name}: {reason}" for name, reason in found.failed.items()))
    if found.failed:
        raise typer.Exit(1)


def _show_status(targets: Sequence[str], asked: dict[str, Any], as_json: bool) -> None:
    """How many numbers of each method are done on each data set, and which others have begun or failed."""
    from adagpr.experiments import STATES, left_out, reproduction_status

    states = reproduction_status(targets, **asked)
    console.note(*left_out(cell for group in states.values() for cell, _ in group))
    if as_json:
        console.show_json({target: {cell.name: state for cell, state in group} for target, group in states.items()})
        return
    for target, group in states.items():
        if group:
            console.show(_done(target, group), "")
    everything = {cell.name: (cell, state) for group in states.values() for cell, state in group}.values()
    by_state = {kind: [cell for cell, state in everything if state == kind] for kind in STATES}
    console.show(f"In all {', '.join(f'{len(group)} {kind}' for kind, group in by_state.items())}.")
    for kind in ("part", "failed"):
        if by_state[kind]:
            console.show(f"{kind}: {' '.join(_patterns(by_state[kind]))}")


def _patterns(group: Iterable[Cell]) -> list[str]:
    """Cells as ``--only`` takes them: rows, and behind a colon their depths."""
    depths: dict[str, list[str]] = {}
    for cell in group:
        depths.setdefault(cell.row.name, []).append("" if cell.layers is None else str(cell.layers))
    return [f"{row}:{','.join(found)}".rstrip(":") for row, found in depths.items()]


def _done(target: str, group: list[tuple[Cell, str]]) -> Grid:
    """How many of a target's numbers are done, a row for each method, a column for each data set."""
    from adagpr.data import catalogue

    everything = Counter((cell.row.method, cell.row.dataset) for cell, _ in group)
    done = Counter((cell.row.method, cell.row.dataset) for cell, state in group if state == "done")
    methods, used = (dict.fromkeys(names) for names in zip(*everything, strict=True))
    datasets = [name for name in catalogue() if name in used]
    cells = {pair: f"{done[pair]}/{number}" for pair, number in everything.items()}
    rows = [(method, *(cells.get((method, dataset), "") for dataset in datasets)) for method in methods]
    return console.table(("method", *datasets), rows, title=f"{target}: done of all")


def _show_tables(report: TargetReport) -> None:
    """Tables on a terminal, Markdown elsewhere."""
    terminal = console.open_console()
    if not terminal.is_terminal:
        typer.echo(report.text)
        return
    for table in report.tables:
        for number in range(len(table.optional) + 1):
            left_out = table.optional[:number]
            grid = _grid(table, left_out)
            if terminal.measure(grid, options=terminal.options.update(max_width=10_000)).maximum <= terminal.width:
                break
        console.show(console.bold(table.title or report.target), *([table.remark] if table.remark else []), grid)
        if left_out:
            names = ", ".join(heading for heading in table.headings if heading in left_out)
            terminal.print(f"Left out, for a terminal of {terminal.width} columns: {names}.", style="dim")
        console.show("")


def _grid(table: Table, left_out: Iterable[str]) -> Grid:
    """A table without some of its columns."""
    kept = [number for number, heading in enumerate(table.headings) if heading not in left_out]
    lines = [[line[number] for number in kept] for line in table.lines]
    return console.table([table.headings[number] for number in kept], lines, left=table.headings, wrap=("note",), gap=1)
