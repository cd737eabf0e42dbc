"""`partition`: from a data set or two tables to parts on disk, by the method that the memory is enough for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from adagpr.data import load
from adagpr.errors import InputError, unknown_name
from adagpr.partitioning.cut import OnProgress, method_of, metis_memory, partition_graph
from adagpr.partitioning.out_of_core import partition_tables, tables_memory
from adagpr.partitioning.parts import Method, Parts
from adagpr.system import available_memory

METHODS = ("auto", "metis", "greedy")


def partition(
    dataset: str | None = None,
    split: str | None = None,
    *,
    parts: int,
    out: Path | str,
    method: str = "auto",
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
    folder = Path(out)
    budget = available_memory() / 2 if memory is None else memory
    for name in ("nodes", "edges", "label") if tables else ():
        if name not in tables:
            raise InputError(f"partition: tables need {name}.")
    if tables and _method(method, folder, lambda: tables_memory(tables["nodes"], tables["edges"]), budget) == "greedy":
        return partition_tables(
            num_parts=parts, out=folder, memory=budget, split=split, seed=seed, on_progress=on_progress, **tables
        )
    graph, splits = load(dataset or "tables", split, seed=seed, data_root=data_root, **tables)
    if len(splits) > 1:
        raise InputError(f"'{dataset}' has {len(splits)} such splits: name one, for example {splits[0].name}.")
    how = _method(method, folder, lambda: metis_memory(graph.num_edges, 0), budget)
    return partition_graph(graph, splits[0], parts, folder, how, on_progress)


def _method(asked: str, out: Path, needed: Callable[[], float], budget: float) -> Method:
    """The method that was asked for, that of what is there already, or the best one that the memory is enough for."""
    if asked != "auto":
        return "metis" if asked == "metis" else "greedy"
    return method_of(out) or ("metis" if needed() <= budget else "greedy")
