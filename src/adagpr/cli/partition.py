"""``adagpr partition``: cut a graph into parts on disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adagpr.cli.console import progress, show, show_json
from adagpr.cli.interruption import interruptible
from adagpr.cli.options import AsJson, DataRoot, Dataset, check_tables, takes_tables
from adagpr.errors import InputError

if TYPE_CHECKING:
    from adagpr.partitioning import Parts

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*$", re.IGNORECASE)


@takes_tables
def partition(
    parts: Annotated[int, typer.Option(metavar="P", help="Number of parts.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the partition.")],
    dataset: Dataset = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Name of the split: public, geom-gcn/3, random/7; for tables stratified/7. Default: the data's own."
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="metis cuts the fewest edges and needs the graph in memory; greedy reads tables in bounded memory and "
            "uses their numbers unchanged; auto is metis if the memory suffices."
        ),
    ] = "auto",
    memory: Annotated[
        str | None, typer.Option(help="Memory to use, such as 4GB. Default: half of the available memory.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, if one is drawn.")] = 0,
    *,
    tables: dict[str, Any],
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Cut a graph into parts on disk; if it is stopped, the same command resumes.

    For example: adagpr partition --nodes nodes.parquet --edges edges.parquet --label y --parts 64 -o parts
    """
    check_tables(dataset, tables)
    asked: dict[str, Any] = {"method": method, "seed": seed, "data_root": data_root, **tables}
    if memory is not None:
        asked["memory"] = _bytes(memory)
    from adagpr.partitioning import partition as make_parts

    with interruptible(out, {"*": "The same command resumes with what is not done."}), progress() as bars:

        def on_progress(stage: str, done: int, total: int) -> None:
            bars.update(stage, done, total or None)

        made = make_parts(dataset, split, parts=parts, out=out, on_progress=on_progress, **asked)
    if as_json:
        show_json(_plain(made))
    else:
        _show(made, bool(tables))


def _bytes(size: str) -> float:
    """A size such as 4GB in bytes."""
    found = _SIZE.match(size)
    if found is None:
        raise InputError(f"--memory takes a size such as 4GB or 500MB, got '{size}'.")
    unit = 1024.0 if found[3] else 1000.0
    return float(found[1]) * float(unit ** " KMGT".index(found[2].upper() or " "))


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
        show("\n".join(plain["notes"]) + "\n")
    (fewest, most), (least, largest) = plain["nodes_of_parts"], plain["edges_of_parts"]
    cut, chance = 100 * plain["edge_cut_share"], 100 * plain["random_cut_share"]
    show(
        f"parts     {plain['num_parts']:,} by {plain['method']}",
        f"nodes     {plain['num_nodes']:,}; {fewest:,} to {most:,} per part",
        f"edges     {plain['num_edges']:,} entries; {least:,} to {largest:,} per part",
        f"edge cut  {plain['edge_cut']:,} entries, {cut:.1f} % (at random {chance:.1f} %)",
        f"folder    {plain['folder']}",
    )
