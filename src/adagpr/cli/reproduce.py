"""``adagpr reproduce``: the paper's tables and figures, run where they are missing, beside what was printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adagpr.cli.interruption import interruptible
from adagpr.cli.options import DataRoot

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid

    from adagpr.experiments import Cell
    from adagpr.experiments.reproduce import Report
    from adagpr.experiments.runner import Folders
    from adagpr.experiments.tables import Table

__all__ = ["reproduce"]


def reproduce(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="table1, table2, table3, coefficients, evolution, ablation. Default: all of them.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Rows by name or part of it, such as adagpr, texas or table2_gcn_cora:2,4; repeatable."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Seeds for each split. Default: 1 on ten splits, 3 on public ones, 1 on Pubmed from 32 layers on.",
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one for each core.")] = None,
    data_root: DataRoot = None,
    status: Annotated[
        bool, typer.Option("--status", help="Show what is done, missing or failed; run nothing.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder of tables, figures and records.")] = Path("reproduction"),
    runs: Annotated[Path | None, typer.Option(help="Folder of the runs. Default: runs/ in that folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Reproduce the paper; repeat the same command to go on after an interruption.

    For example: adagpr reproduce table3 --only adagpr, adagpr reproduce --status
    """
    from rich.console import Console

    from adagpr.experiments.plan import TARGETS, cells, plan
    from adagpr.experiments.reproduce import report
    from adagpr.experiments.runner import Folders

    folders = Folders(runs or out / "runs", out / "catalogue")
    planned = plan(targets or list(TARGETS), only or (), seeds)
    if only:
        planned = {target: group for target, group in planned.items() if group}
    # A row of two targets is run once.
    distinct = {(cell.name, cell.seeds): cell for group in planned.values() for cell in group}
    notes = Console(stderr=True, highlight=False)
    if status:
        _status(planned, folders, as_json)
        return
    failed = _run(list(distinct.values()), folders, jobs, data_root, notes)
    plain: list[dict[str, Any]] = []
    for target, group in planned.items():
        # The files hold all that is recorded, also what was not asked for now.
        recorded = report(target, cells(target), folders)
        files = recorded.save(out)
        made = report(target, group, folders) if only else recorded
        plain += made.plain
        if not as_json:
            _show(made)
            notes.print(f"Written: {', '.join(str(path) for path in files)}", style="dim")
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
    for name, sentence in failed.items():
        notes.print(f"Failed: {name}: {sentence}")
    if failed:
        raise typer.Exit(1)


def _run(
    distinct: list[Cell], folders: Folders, jobs: int | None, data_root: Path | None, notes: Console
) -> dict[str, str]:
    """Runs what is missing with a progress bar; why tasks failed, by their names."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from adagpr.experiments.runner import run_cells
    from adagpr.files import read_json
    from adagpr.system import num_cores

    work = {cell.name: _work(cell) for cell in distinct}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[runs]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with (
        interruptible(folders.runs),
        Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bar,
    ):
        shown = bar.add_task("reading", total=sum(work.values()), runs="")
        done: dict[str, tuple[int, int]] = {}

        def on_cell(cell: Cell, complete: int, total: int) -> None:
            done[cell.name] = (complete, total)
            counts = [sum(numbers) for numbers in zip(*done.values(), strict=True)]
            spent = sum(work[name] * have / count for name, (have, count) in done.items())
            bar.update(shown, completed=spent, description=cell.name, runs=f"{counts[0]} of {counts[1]} runs")

        run_cells(distinct, folders, jobs or num_cores(), on_cell, data_root)
    failures = [folders.failure(cell) for cell in distinct if folders.failure(cell).exists()]
    return {path.stem: " ".join(dict.fromkeys(read_json(path)["failed"])) for path in failures}


def _work(cell: Cell) -> float:
    """How much work a cell is, so that the remaining time is not counted in runs of unequal length."""
    from adagpr.data import catalogue

    counts, options = catalogue()[cell.row.dataset].counts, cell.options
    hops = options.get("num_coeffs", 2)
    width, depth = options.get("hidden_channels", 64), options.get("num_layers", 2)
    a_layer = width * ((max(hops) if isinstance(hops, list) else hops) * counts.entries + counts.nodes * width)
    num_splits = 1 if cell.row.split == "public" else 10
    return float(len(cell.seeds) * num_splits * (depth * a_layer + 1e6))


def _status(planned: dict[str, list[Cell]], folders: Folders, as_json: bool) -> None:
    """How many numbers of each method are done on each data set, and which others have begun or failed."""
    from rich.console import Console

    from adagpr.experiments.runner import STATES, state_of

    states = {target: {cell.name: state_of(folders, cell) for cell in group} for target, group in planned.items()}
    if as_json:
        typer.echo(json.dumps(states, indent=2))
        return
    console = Console(highlight=False)
    for target, group in planned.items():
        if group:
            console.print(_done(target, group, states[target]))
            console.print()
    everything = {cell.name: (states[target][cell.name], cell) for target, group in planned.items() for cell in group}
    by_state = {kind: [cell for state, cell in everything.values() if state == kind] for kind in STATES}
    console.print(f"In all {', '.join(f'{len(group)} {kind}' for kind, group in by_state.items())}.")
    for kind in ("part", "failed"):
        if by_state[kind]:
            console.print(f"{kind}: {' '.join(_patterns(by_state[kind]))}", soft_wrap=True)


def _patterns(group: list[Cell]) -> list[str]:
    """Tasks as ``--only`` takes them: rows, and behind a colon their depths."""
    depths: dict[str, list[str]] = {}
    for cell in group:
        depths.setdefault(cell.row.name, []).append("" if cell.layers is None else str(cell.layers))
    return [f"{row}:{','.join(found)}".rstrip(":") for row, found in depths.items()]


def _done(target: str, group: list[Cell], states: dict[str, str]) -> Grid:
    """How many of a target's numbers are done, a row for each method, a column for each data set."""
    from rich.table import Table as Grid

    from adagpr.data import catalogue

    names = {cell.row.dataset for cell in group}
    datasets = [name for name in catalogue() if name in names]
    shown = Grid(title=f"{target}: done of all", title_justify="left", title_style="bold", box=None, pad_edge=False)
    shown.add_column("method")
    for dataset in datasets:
        shown.add_column(dataset, justify="right", no_wrap=True)
    for method in dict.fromkeys(cell.row.method for cell in group):
        cells = []
        for dataset in datasets:
            found = [states[cell.name] for cell in group if (cell.row.method, cell.row.dataset) == (method, dataset)]
            cells.append(f"{found.count('done')}/{len(found)}" if found else "")
        shown.add_row(method, *cells)
    return shown


def _show(made: Report) -> None:
    """Tables on a terminal, Markdown elsewhere."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        typer.echo(made.text)
        return
    for table in made.tables:
        console.print(f"[bold]{table.title or made.target}[/bold]", soft_wrap=True)
        if table.remark:
            console.print(table.remark)
        spare = list(table.spare)
        left_out: list[str] = []
        unlimited = console.options.update(max_width=10_000)
        while spare and console.measure(_fitting(table, left_out), options=unlimited).maximum > console.width:
            left_out.append(spare.pop(0))
        console.print(_fitting(table, left_out))
        if left_out:
            names = ", ".join(heading for heading in table.headings if heading in left_out)
            console.print(f"Left out, for a terminal of {console.width} columns: {names}.", style="dim")
        console.print()


def _fitting(table: Table, left_out: Sequence[str]) -> Grid:
    """A table without some of its columns."""
    from rich.table import Table as Grid

    kept = [number for number, heading in enumerate(table.headings) if heading not in left_out]
    grid = Grid(box=None, pad_edge=False, collapse_padding=True)
    for number in kept:
        grid.add_column(table.headings[number], no_wrap=table.headings[number] != "note")
    for line in table.lines:
        grid.add_row(*(line[number] for number in kept))
    return grid
