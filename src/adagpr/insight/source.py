"""The data of a run, loaded again, and the proof that they are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adagpr.data import load
from adagpr.errors import InputError
from adagpr.graph import Graph, Split
from adagpr.training import Run, describe_data


def data_of(
    run: Run, graph: Graph | None, split: Split | None, dataset: str | None, data_root: Path | str | None
) -> tuple[Graph, Split]:
    """The graph and the split of a run, as given or loaded again; their hashes must be those of the record.

    ``dataset`` is where the run's file is now, if it has moved, and ``data_root`` the folder of the data files.
    """
    stored = run.record["config"]["data"]
    if (graph is None) != (split is None):
        raise InputError("graph and split must be given together.")
    if graph is None or split is None:
        graph, splits = _loaded(stored, stored["split"], dataset, data_root)
        split = splits[0]
    _check(describe_data(graph, split), stored, ("graph", "split"))
    return graph, split


def graph_of(run: Run, graph: Graph | None, dataset: str | None, data_root: Path | str | None) -> Graph:
    """The graph of a run alone; the arguments are those of `data_of`."""
    stored = run.record["config"]["data"]
    if graph is None:
        try:
            graph, _ = _loaded(stored, stored["split"], dataset, data_root)
        except InputError:
            # The split may be the caller's own; the graph does not depend on it.
            graph, _ = _loaded(stored, None, dataset, data_root)
    _check({"graph_sha256": graph.fingerprint}, stored, ("graph",))
    return graph


def _loaded(
    stored: dict[str, Any], split: str | None, dataset: str | None, data_root: Path | str | None
) -> tuple[Graph, list[Split]]:
    known = ("name", "split", "graph_sha256", "split_sha256", "recipe_sha256")
    options = {key: value for key, value in stored.items() if key not in known}
    try:
        return load(dataset or stored["name"], split, data_root=data_root, **options)
    except InputError as error:
        raise InputError(f"The run's data cannot be loaded again, so give them: {error}") from error


def _check(found: dict[str, Any], stored: dict[str, Any], parts: tuple[str, ...]) -> None:
    for part in parts:
        if found[f"{part}_sha256"] != stored[f"{part}_sha256"]:
            raise InputError(f"This is not the {part} of the run: its SHA-256 sum differs from the record's.")
