"""`partition_tables`: what it takes, and the stages in their order."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from adagpr.partitioning.cut import OnProgress, opened
from adagpr.partitioning.parts import Parts
from adagpr.partitioning.stream.assign import assign_nodes
from adagpr.partitioning.stream.columns import Columns, check_columns
from adagpr.partitioning.stream.edges import sort_edges
from adagpr.partitioning.stream.finish import finish
from adagpr.partitioning.stream.job import Job
from adagpr.partitioning.stream.nodes import read_nodes
from adagpr.partitioning.stream.rows import merge_rows
from adagpr.partitioning.stream.scatter import scatter
from adagpr.partitioning.stream.table import Table

__all__ = ["partition_tables"]

# Each leaves files below ``.work`` and returns the few facts that are recorded when it is done.
_STAGES = {
    "nodes": read_nodes,
    "edges": sort_edges,
    "rows": merge_rows,
    "assign": assign_nodes,
    "scatter": scatter,
}


def partition_tables(
    nodes: Path | str,
    edges: Path | str,
    columns: Columns,
    num_parts: int,
    out: Path | str,
    memory: float,
    *,
    directed: bool = False,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Parts:
    """Cuts the graph of two tables into parts on disk, in bounded memory; the same call goes on after a stop.

    Numbers are features as they are, in float32; a column of lists of one length gives one feature for each item, and
    other columns are left out. Repeated edges are merged and their weights added; where edges go both ways, the larger
    weight of the two counts.

    Args:
        nodes: Table of nodes: .csv, .tsv, .parquet, .feather or .arrow.
        edges: Table of edges.
        columns: Their columns.
        num_parts: Number of parts, at most that of the nodes.
        out: Folder of the partition.
        memory: Bytes to use beside what Python and its libraries take; the result does not depend on it.
        directed: Whether edges go one way.
        seed: Chooses the split where one is drawn: 60 percent train, 20 val, 20 test, by a hash of each node's place.
        on_progress: Told of every slice.

    Raises:
        InputError: A table cannot be used, ``memory`` is too small for the nodes, or ``out`` holds another partition.
    """
    tables = Table(Path(nodes)), Table(Path(edges))
    asked = {**asdict(columns), "directed": directed, "seed": seed, "num_parts": num_parts, "method": "greedy"}
    with opened(Path(out), {**asked, "files": [table.stamp for table in tables]}) as progress:
        if isinstance(progress, Parts):
            return progress
        check_columns(*tables, columns)
        limit = int(min(memory, 2**60))
        job = Job(*tables, columns, num_parts, directed, seed, limit, progress, on_progress)
        for name, stage in _STAGES.items():
            if name not in progress.stages:
                progress.record(name, stage(job))
        return finish(job)
