"""`partition`: from a data set or two tables to parts on disk, by the method that the memory is enough for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from adagpr.data import load
from adagpr.errors import InputError, unknown_name
from adagpr.partitioning.assign import OnProgress, ignore_progress
from adagpr.partitioning.cut import method_of, metis_memory, partition_graph
from adagpr.partitioning.out_of_core import partition_tables, tables_memory
from adagpr.partitioning.parts import Parts
from adagpr.system import available_memory

METHODS = ("auto", "metis", "greedy")


def partition(
    dataset: str | None = None,
    split: str | None = None,
    *,
    parts: int,
    out: Path | str,
    method: Literal["auto", "metis", "greedy"] = "auto",
    memory: float | None = None,
    seed: int = 0,
    data_root: Path | str | None = None,
    on_progress: OnProgress | None = None,
    **tables: Any,
) -> Parts:
    """Cuts a graph into parts on disk; the same call resumes after a stop, or opens what is complete.

    Args:
        dataset: Name of a data set, or an .npz file; none where tables are given.
        split: Name of a split, by default the data set's own.
        parts: Number of parts, at most the number of nodes.
        out: Folder of the partition.
        method: ``"metis"`` for the fewest edges between parts, with the graph in memory; ``"greedy"`` for tables in
            bounded memory, their numbers as they are; ``"auto"`` for METIS where the memory is enough.
        memory: Bytes to use, by default half of those that are available.
        seed: Chooses the split where one is drawn.
        data_root: Folder of the data files.
        on_progress: Told what is being done, how far it is, and how far it goes.
        tables: The user's own tables, as `adagpr.load` takes them: ``nodes``, ``edges``, ``label`` and so on.

    Raises:
        InputError: The graph cannot be cut so, or ``out`` holds another partition.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     len(partition("digits", parts=4, out=folder))
        4
    """
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if dataset is None and not tables:
        raise InputError("Name a data set, or give tables: nodes, edges and the column of the label.")
    folder, tell = Path(out), on_progress or ignore_progress
    budget = available_memory() / 2 if memory is None else memory
    known = method_of(folder) if method == "auto" else method
    if tables:
        for name in ("nodes", "edges", "label"):
            if name not in tables:
                raise InputError(f"partition: tables need {name}.")
        if known is None:
            known = "metis" if tables_memory(tables["nodes"], tables["edges"]) <= budget else "greedy"
        if known == "greedy":
            return partition_tables(
                num_parts=parts, out=folder, memory=budget, split=split, seed=seed, on_progress=tell, **tables
            )
    graph, splits = load(dataset or "tables", split, seed=seed, data_root=data_root, **tables)
    if len(splits) > 1:
        raise InputError(f"'{dataset}' has {len(splits)} such splits: name one, for example {splits[0].name}.")
    if known is None:
        known = "metis" if metis_memory(graph.num_edges, 0) <= budget else "greedy"
    return partition_graph(graph, splits[0], parts, folder, known, tell)
