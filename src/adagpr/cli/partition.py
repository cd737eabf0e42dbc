"""``adagpr partition``: cut a graph into parts on disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import adagpr
from adagpr.cli.console import progress, show_result
from adagpr.cli.interruption import interruptible
from adagpr.cli.options import AsJson, DataRoot, Dataset, check_tables, takes_tables
from adagpr.errors import InputError

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*$", re.IGNORECASE)
# What is printed of a manifest as it is.
_FACTS = (
    *("name", "method", "num_nodes", "num_edges", "num_features", "edge_cut"),
    *("split", "graph_sha256", "split_sha256", "notes"),
)


@takes_tables
def partition(
    parts: Annotated[int, Option(metavar="P", help="Number of parts.")],
    out: Annotated[Path, Option("--out", "-o", help="Folder of the partition.")],
    dataset: Dataset = None,
    split: Annotated[
        str | None,
        Option(
            help="Name of the split: public, geom-gcn/3, random/7; for tables stratified/7. Default: the data's own."
        ),
    ] = None,
    method: Annotated[
        str,
        Option(
            help="metis cuts the fewest edges and needs the graph in memory; greedy reads tables in bounded memory and "
            "uses their numbers unchanged; auto is metis if the memory suffices."
        ),
    ] = "auto",
    memory: Annotated[
        str | None, Option(help="Memory to use, such as 4GB. Default: half of the available memory.")
    ] = None,
    seed: Annotated[int, Option(min=0, help="Seed of the split, if one is drawn.")] = 0,
    *,
    tables: dict[str, Any],
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Cut a graph into parts on disk; if it is stopped, the same command resumes.

    For example: adagpr partition --nodes nodes.parquet --edges edges.parquet --label y --parts 64 -o parts
    """
    check_tables(dataset, tables)
    budget = None if memory is None else _bytes(memory)
    options: dict[str, Any] = {"method": method, "memory": budget, "seed": seed, "data_root": data_root, **tables}
    with (
        interruptible(out, {".work/progress.json": "The same command resumes with what is not done."}),
        progress() as bars,
    ):

        def on_progress(stage: str, done: int, total: int) -> None:
            bars.update(stage, done, total or None)

        made = adagpr.partition(dataset, split, parts=parts, out=out, on_progress=on_progress, **options)
    manifest = made.manifest
    nodes, edges = [part.num_nodes for part in manifest.parts], [part.num_edges for part in manifest.parts]
    plain = {
        "folder": str(made.folder),
        "num_parts": len(made),
        **{key: getattr(manifest, key) for key in _FACTS},
        "edge_cut_share": manifest.edge_cut / max(manifest.num_edges, 1),
        "random_cut_share": 1 - 1 / len(made),
        "nodes_of_parts": [min(nodes), max(nodes)],
        "edges_of_parts": [min(edges), max(edges)],
    }
    show_result(as_json, plain, *([*plain["notes"], ""] if tables else []), *_summary(plain))


def _bytes(size: str) -> float:
    """A size such as 4GB in bytes."""
    found = _SIZE.match(size)
    if found is None:
        raise InputError(f"--memory takes a size such as 4GB or 500MB, got '{size}'.")
    unit = 1024.0 if found[3] else 1000.0
    return float(found[1]) * float(unit ** " KMGT".index(found[2].upper() or " "))


def _summary(plain: dict[str, Any]) -> list[str]:
    (fewest, most), (least, largest) = plain["nodes_of_parts"], plain["edges_of_parts"]
    cut, chance = 100 * plain["edge_cut_share"], 100 * plain["random_cut_share"]
    return [
        f"parts     {plain['num_parts']:,} by {plain['method']}",
        f"nodes     {plain['num_nodes']:,}; {fewest:,} to {most:,} per part",
        f"edges     {plain['num_edges']:,} entries; {least:,} to {largest:,} per part",
        f"edge cut  {plain['edge_cut']:,} entries, {cut:.1f} % (at random {chance:.1f} %)",
        f"folder    {plain['folder']}",
    ]
