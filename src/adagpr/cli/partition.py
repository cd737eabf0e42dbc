"""``adagpr partition``: cut a graph into parts on disk."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adagpr.cli.interruption import interruptible
from adagpr.cli.options import DataRoot, check_tables, takes_tables
from adagpr.errors import InputError, unknown_name

if TYPE_CHECKING:
    from adagpr.graph import Graph, Split
    from adagpr.partitioning.cut import OnProgress
    from adagpr.partitioning.parts import Method, Parts

__all__ = ["partition"]

# Rows of a table that are looked at to find its columns.
HEAD = 1000
_METHODS = ("auto", "metis", "greedy")
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*$", re.IGNORECASE)


@takes_tables
def partition(
    parts: Annotated[int, typer.Option(metavar="P", help="Number of parts.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the partition.")],
    dataset: Annotated[
        str | None, typer.Argument(help="A data set (see: adagpr data ls) or an .npz file, unless tables are given.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="public, geom-gcn/3, random/7; of tables given, stratified/7. Default: the set's own."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="metis: fewest edges between parts, needs the graph in memory. greedy: tables in bounded memory, "
            "their numbers as they are. auto: metis where the memory is enough."
        ),
    ] = "auto",
    memory: Annotated[
        str | None, typer.Option(help="Memory to use, such as 4GB. Default: half of what is available.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Chooses the split where one is drawn.")] = 0,
    *,
    tables: dict[str, Any],
    data_root: DataRoot = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Cut a graph into parts on disk; repeat the same command to go on after an interruption.

    For example: adagpr partition --nodes nodes.parquet --edges edges.parquet --label y --parts 64 -o parts
    """
    if method not in _METHODS:
        raise unknown_name("method", method, _METHODS)
    budget = _bytes(memory)
    check_tables(dataset, tables)
    if dataset is None and not tables:
        raise InputError("Name a data set, or give tables with --nodes, --edges and --label.")
    with _progress_bar(out) as on_progress:
        if tables and _method(method, out, lambda: _tables_memory(tables), budget) == "greedy":
            made = _stream(tables, split, parts, out, budget, seed, on_progress)
        else:
            graph, chosen = _load(dataset or "tables", split, seed, data_root, tables)
            how = _method(method, out, lambda: _graph_memory(graph), budget)
            from adagpr.partitioning.cut import partition_graph

            made = partition_graph(graph, chosen, parts, out, how, on_progress)
    if as_json:
        typer.echo(json.dumps(_plain(made), indent=2))
    else:
        _show(made, bool(tables))


def _bytes(size: str | None) -> float:
    """A size such as 4GB in bytes; by default half of the memory that is available."""
    if size is None:
        from adagpr.system import available_memory

        return available_memory() / 2
    found = _SIZE.match(size)
    if found is None:
        raise InputError(f"--memory takes a size such as 4GB or 500MB, got '{size}'.")
    unit = 1024.0 if found[3] else 1000.0
    return float(found[1]) * float(unit ** " KMGT".index(found[2].upper() or " "))


def _method(asked: str, out: Path, needed: Callable[[], float], budget: float) -> Method:
    """The method that was asked for, that of what is there already, or the best one that the memory is enough for."""
    from adagpr.partitioning.cut import method_of

    if asked != "auto":
        return "metis" if asked == "metis" else "greedy"
    return method_of(out) or ("metis" if needed() <= budget else "greedy")


def _graph_memory(graph: Graph) -> float:
    from adagpr.partitioning.cut import metis_memory

    return metis_memory(graph.num_edges, 0)


def _tables_memory(tables: dict[str, Any]) -> float:
    """What METIS takes on two tables, which are read whole for it."""
    from adagpr.partitioning.cut import metis_memory
    from adagpr.partitioning.stream import Table

    nodes, edges = Table(Path(tables["nodes"])), Table(Path(tables["edges"]))
    return metis_memory(2 * edges.most_rows(), nodes.most_bytes())


def _load(
    name: str, split: str | None, seed: int, data_root: Path | None, tables: dict[str, Any]
) -> tuple[Graph, Split]:
    from adagpr.data import load

    graph, splits = load(name, split, seed=seed, data_root=data_root, **tables)
    if len(splits) > 1:
        raise InputError(f"'{name}' has {len(splits)} such splits: name one, for example --split {splits[0].name}.")
    return graph, splits[0]


def _stream(
    tables: dict[str, Any],
    split: str | None,
    num_parts: int,
    out: Path,
    budget: float,
    seed: int,
    on_progress: OnProgress | None,
) -> Parts:
    """Partitions tables batch by batch, with columns found as when they are read whole."""
    from adagpr.data.tables.edges import edge_columns, id_column
    from adagpr.data.tables.sheet import read_sheet
    from adagpr.data.tables.targets import split_column_of
    from adagpr.partitioning.stream import Columns, Table, partition_tables

    given = {key: tables.get(key) for key in ("id", "source", "target", "weight", "split_column")}
    nodes, edges = (read_sheet(Table(Path(tables[key])).head(HEAD), tables[key]) for key in ("nodes", "edges"))
    nodes.require(tables["label"])
    ends = edge_columns(edges, given["source"], given["target"], given["weight"])
    part = split_column_of(nodes, given["split_column"])
    taken = [column for column in (tables["label"], part) if column is not None]
    key = id_column(nodes, edges, ends, given["id"], taken)
    features = tables.get("features")
    if split not in (None, "given") or (split == "given" and part is None):
        raise InputError(
            f"Split '{split}': tables that are not read whole have the split of a column, else one drawn with --seed."
        )
    columns = Columns(
        tables["label"], key, ends.source, ends.target, ends.weight, part, tuple(features) if features else None
    )
    return partition_tables(
        tables["nodes"],
        tables["edges"],
        columns,
        num_parts,
        out,
        budget,
        directed=bool(tables.get("directed")),
        seed=seed,
        on_progress=on_progress,
    )


def _plain(made: Parts) -> dict[str, Any]:
    """The result as plain data."""
    manifest = made.manifest
    sizes, entries = ([getattr(part, key) for part in manifest.parts] for key in ("num_nodes", "num_edges"))
    return {
        "folder": str(made.folder),
        "name": manifest.name,
        "method": manifest.method,
        "num_parts": len(made),
        "num_nodes": manifest.num_nodes,
        "num_edges": manifest.num_edges,
        "num_features": manifest.num_features,
        "edge_cut": manifest.edge_cut,
        "edge_cut_share": manifest.edge_cut / max(manifest.num_edges, 1),
        "random_cut_share": 1 - 1 / len(made),
        "nodes_of_parts": [min(sizes), max(sizes)],
        "edges_of_parts": [min(entries), max(entries)],
        "split": manifest.split,
        "graph_sha256": manifest.graph_sha256,
        "split_sha256": manifest.split_sha256,
        "notes": list(manifest.notes),
    }


def _show(made: Parts, with_notes: bool) -> None:
    plain = _plain(made)
    if with_notes:
        typer.echo("\n".join(plain["notes"]) + "\n")
    (fewest, most), (least, largest) = plain["nodes_of_parts"], plain["edges_of_parts"]
    typer.echo(f"parts     {plain['num_parts']:,} by {plain['method']}")
    typer.echo(f"nodes     {plain['num_nodes']:,}; {fewest:,} to {most:,} a part")
    typer.echo(f"edges     {plain['num_edges']:,} entries; {least:,} to {largest:,} a part")
    cut, chance = 100 * plain["edge_cut_share"], 100 * plain["random_cut_share"]
    typer.echo(f"edge cut  {plain['edge_cut']:,} entries, {cut:.1f} % (at random {chance:.1f} %)")
    typer.echo(f"folder    {plain['folder']}")


@contextmanager
def _progress_bar(out: Path) -> Iterator[OnProgress | None]:
    """A bar on a terminal's standard error; elsewhere silence."""
    with interruptible(out, {"*": "The same command resumes with what is not done."}):
        if not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("reading", total=None)

            def tell(stage: str, done: int, total: int) -> None:
                progress.update(task, description=stage, completed=done, total=total or None)

            yield tell
