"""``adagpr data``: list, describe, download and check the data sets."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adagpr.data import DatasetRow, OnDownload, catalogue, data_root, presence, row, sources
from adagpr.data import fetch as fetch_files
from adagpr.data import verify as verify_files
from adagpr.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["app"]

app = typer.Typer(name="data", help="List, describe, download and check the data sets.", no_args_is_help=True)

PIPED_WIDTH = 120
WIDE = 100

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAMES]...", help="Data sets; see: adagpr data ls")]
Root = Annotated[
    Path | None, typer.Option("--data-root", help="Folder of the files, instead of ADAGPR_DATA or the cache.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("ls")
def list_datasets(data_root: Root = None, as_json: Json = False) -> None:
    """List the data sets, what they hold, and whether their files are here."""
    rows = list(catalogue().values())
    if as_json:
        _print_json([_summary(item, data_root) for item in rows])
        return
    headings = ("name", "nodes", "edges", "features", "classes", "homophily", "splits", "files")
    if _width() < WIDE:
        headings = ("name", "nodes", "edges", "fea-\ntures", "classes", "homo-\nphily", "splits", "files")
    table = _table()
    for position, heading in enumerate(headings):
        is_number = 1 <= position <= 5
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=heading != "splits")
    for item in rows:
        counts = item.counts
        numbers = (counts.nodes, counts.edges, counts.features, counts.classes)
        texts = (f"{counts.homophily:.2f}", ", ".join(item.splits), presence(item, data_root))
        table.add_row(item.name, *(str(number) for number in numbers), *texts)
    _print(table, "Edges are distinct pairs of different nodes. More about one: adagpr data info NAME")


@app.command()
def info(
    name: Annotated[str, typer.Argument(help="A data set; see: adagpr data ls")],
    data_root: Root = None,
    as_json: Json = False,
) -> None:
    """Describe one data set: where it comes from, what it holds, and what is odd about it."""
    item = row(name)
    if as_json:
        _print_json(_summary(item, data_root) | {"oddities": list(item.oddities), "files": item.files()})
        return
    from rich.table import Table

    facts = Table.grid(padding=(0, 2))
    for label, value in _facts(item, data_root):
        facts.add_row(label, value)
    oddities = Table.grid(padding=(0, 1))
    for number, oddity in enumerate(item.oddities, start=1):
        oddities.add_row(f"{number}.", oddity)
    _print(f"{item.title}. {item.description}", "", facts, "", "To know before trusting a number:", oddities)


@app.command()
def fetch(
    names: Names = None,
    all_sets: Annotated[bool, typer.Option("--all", help="Every data set.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Download files again that are here.")] = False,
    base_url: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="An http(s) mirror laid out like the data folder.")
    ] = None,
    data_root: Root = None,
    as_json: Json = False,
) -> None:
    """Download what is missing, and check it against the pinned sums."""
    if bool(names) == all_sets:
        raise InputError("data fetch: name the data sets to download, or give --all, and not both.")
    wanted = list(catalogue()) if all_sets else list(names or ())
    with _progress_bar() as progress:
        files = fetch_files(wanted, data_root, base_url, force, progress)
    folder = _root(data_root)
    if as_json:
        _print_json({"data_root": str(folder), "downloaded": [str(file.relative_to(folder)) for file in files]})
        return
    _print(f"Downloaded {len(files)} files to {folder}." if files else f"Nothing was missing in {folder}.")


@app.command()
def verify(names: Names = None, data_root: Root = None, as_json: Json = False) -> None:
    """Compare the files with their pinned sums; ends with 1 if one is missing or altered."""
    found = verify_files(names or list(catalogue()), data_root)
    if as_json:
        _print_json([{"dataset": item.dataset, "file": item.file, "status": item.status} for item in found])
    else:
        table = _table()
        table.add_column("name", no_wrap=True)
        for status in ("ok", "missing", "altered"):
            table.add_column(status, justify="right")
        counts = Counter((item.dataset, item.status) for item in found)
        for name in dict.fromkeys(item.dataset for item in found):
            table.add_row(name, *(str(counts[name, status]) for status in ("ok", "missing", "altered")))
        altered = [f"Altered: {_root(data_root) / item.file}" for item in found if item.status == "altered"]
        _print(table, *dict.fromkeys(altered))
    if any(item.status != "ok" for item in found):
        raise typer.Exit(1)


def _root(root: Path | None) -> Path:
    return data_root(root)


def _summary(item: DatasetRow, root: Path | None) -> dict[str, Any]:
    """One row as plain data."""
    home = sources()[item.source].model_dump() if item.source else None
    return {
        "name": item.name,
        "title": item.title,
        "description": item.description,
        **item.counts.model_dump(),
        "splits": list(item.splits),
        "default_split": item.default_split,
        "source": home,
        "presence": presence(item, root),
        "data_root": str(_root(root)) if home else None,
    }


def _facts(item: DatasetRow, root: Path | None) -> list[tuple[str, str]]:
    """What `info` shows in two columns."""
    counts = item.counts
    kind = "directed" if counts.directed else "undirected"
    facts = [
        ("name", item.name),
        ("nodes", f"{counts.nodes} in {counts.classes} classes, with {counts.features} features"),
        (
            "edges",
            f"{counts.edges} distinct, {kind}; {counts.self_loops} self loops; {counts.entries} entries as stored",
        ),
        ("homophily", f"{counts.homophily:.4f}"),
        ("splits", f"{', '.join(item.splits)} (default: {item.default_split})"),
    ]
    for name in dict.fromkeys(file.partition("/")[0] for file in item.files()):
        home = sources()[name]
        licence = f", {home.licence} licence" if home.licence else ", licence not known"
        facts.append(("source", f"github.com/{home.repository} at {home.commit}{licence}"))
    where = f"{presence(item, root)} in {_root(root)}" if item.source else "none: built in"
    return [*facts, ("files", where)]


def _print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def _width() -> int:
    """Columns of the terminal; into a pipe, enough for every table."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH


def _table() -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 1, 0, 0) if _width() < WIDE else (0, 2, 0, 0))


def _print(*parts: Any) -> None:
    """Prints texts and tables to stdout."""
    from rich.console import Console

    console = Console(highlight=False, width=_width())
    for part in parts:
        console.print(part, markup=False)


@contextmanager
def _progress_bar() -> Iterator[OnDownload | None]:
    """A progress bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(file: str, received: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=received, visible=total is None or received < total)

        yield show
