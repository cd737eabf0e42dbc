"""``adagpr data``: list, describe, download and check the data sets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from adagpr.cli.console import facts, open_console, progress, show_result, table
from adagpr.cli.options import AsJson, DataRoot
from adagpr.data import DatasetRow, catalogue, presence, row, sources
from adagpr.data import data_root as folder_of
from adagpr.data import fetch as fetch_files
from adagpr.data import verify as verify_files
from adagpr.errors import InputError

app = typer.Typer(name="data", help="List, describe, download and check the data sets.", no_args_is_help=True)

# Columns of a terminal that has room for whole headings.
_WIDE = 100
_STATUSES = ("ok", "missing", "altered")

Names = Annotated[list[str] | None, Argument(metavar="[NAMES]...", help="Data sets; see: adagpr data ls")]


@app.command("ls")
def list_datasets(data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """List the data sets, their sizes, and whether their files are here."""
    from rich.text import Text

    is_wide = open_console().width >= _WIDE
    features, homophily = ("features", "homophily") if is_wide else map(Text, ("fea-\ntures", "homo-\nphily"))
    rows = [
        (
            item.name,
            *map(str, (item.counts.nodes, item.counts.edges, item.counts.features, item.counts.classes)),
            f"{item.counts.homophily:.2f}",
            ", ".join(item.splits),
            presence(item, data_root),
        )
        for item in catalogue().values()
    ]
    headings = ("name", "nodes", "edges", features, "classes", homophily, "splits", "files")
    show_result(
        as_json,
        [_summary(item, data_root) for item in catalogue().values()],
        table(headings, rows, left=("splits", "files"), wrap=("splits",), gap=2 if is_wide else 1),
        "Edges are distinct pairs of different nodes. More about one: adagpr data info NAME",
    )


@app.command()
def info(
    name: Annotated[str, Argument(help="A data set; see: adagpr data ls")],
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Describe one data set: its source, its size, and what to know before you trust it."""
    item = row(name)
    plain = {**_summary(item, data_root), "oddities": item.oddities, "files": item.files()}
    heading = f"{item.title}. {item.description}"
    known = facts(_facts(item, data_root))
    oddities = facts([(f"{number}.", text) for number, text in enumerate(item.oddities, start=1)], gap=1)
    show_result(as_json, plain, heading, "", known, "", "To know before trusting a number:", oddities)


@app.command()
def fetch(
    names: Names = None,
    all_sets: Annotated[bool, Option("--all", help="Download every data set that can be downloaded.")] = False,
    force: Annotated[bool, Option("--force", help="Download also those files that are already here.")] = False,
    base_url: Annotated[
        str | None, Option("--from", metavar="URL", help="An http(s) mirror with the layout of the data folder.")
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Download the files that are missing, and check them against pinned checksums."""
    if bool(names) == all_sets:
        raise InputError("data fetch: name the data sets to download, or give --all, and not both.")
    public = [item.name for item in catalogue().values() if item.can_be_downloaded or base_url is not None]
    wanted = public if all_sets else list(names or ())
    with progress() as bars:

        def on_download(file: str, received: int, total: int | None) -> None:
            size = "" if total is None else f" of {total / 1e6:.1f}"
            bars.update(file, received, total, f"{received / 1e6:.1f}{size} MB", key=file)
            if received == total:
                bars.remove(file)

        files = fetch_files(wanted, data_root, base_url, force, on_download)
    folder = folder_of(data_root)
    plain = {"data_root": str(folder), "downloaded": [str(file.relative_to(folder)) for file in files]}
    text = f"Downloaded {len(files)} files to {folder}." if files else f"Nothing was missing in {folder}."
    show_result(as_json, plain, text)


@app.command()
def verify(names: Names = None, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Compare the files with their pinned checksums; the exit code is 1 if one is missing or altered."""
    found = verify_files(names or list(catalogue()), data_root)
    plain = [{"dataset": item.dataset, "file": item.file, "status": item.status} for item in found]
    counts: Counter[tuple[str, str]] = Counter((item.dataset, item.status) for item in found)
    datasets = dict.fromkeys(item.dataset for item in found)
    rows = [(name, *(str(counts[name, status]) for status in _STATUSES)) for name in datasets]
    altered = [f"Altered: {folder_of(data_root) / item.file}" for item in found if item.status == "altered"]
    show_result(as_json, plain, table(("name", *_STATUSES), rows), *dict.fromkeys(altered))
    if any(item.status != "ok" for item in found):
        raise typer.Exit(1)


def _summary(item: DatasetRow, root: Path | None) -> dict[str, Any]:
    """One row as plain data."""
    home = sources()[item.source].model_dump() if item.source else None
    return {
        **item.model_dump(include={"name", "title", "description", "splits", "metric"}),
        **item.counts.model_dump(),
        "default_split": item.default_split,
        "source": home,
        "presence": presence(item, root),
        "data_root": str(folder_of(root)) if home else None,
    }


def _facts(item: DatasetRow, root: Path | None) -> list[tuple[str, str]]:
    """What `info` shows in two columns."""
    counts = item.counts
    kind = "directed" if counts.directed else "undirected"
    edges = f"{counts.edges} distinct, {kind}; {counts.self_loops} self loops; {counts.entries} entries as stored"
    known = [
        ("name", item.name),
        ("nodes", f"{counts.nodes} in {counts.classes} classes, with {counts.features} features"),
        ("edges", edges),
        ("homophily", f"{counts.homophily:.4f}"),
        ("splits", f"{', '.join(item.splits)} (default: {item.default_split})"),
        ("metric", item.metric),
    ]
    for name in dict.fromkeys(file.partition("/")[0] for file in item.files()):
        home = sources()[name]
        licence = f", {home.licence} licence" if home.licence else ", licence not known"
        made = f"{home.converted_from}, converted, of " if home.converted_from else ""
        known.append(("source", f"{made}github.com/{home.repository} at {home.commit}{licence}"))
    return [*known, ("files", f"{presence(item, root)} in {folder_of(root)}" if item.source else "none: built in")]
