"""The data of a run, loaded again, and the proof that they are the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adagpr.data import load
from adagpr.errors import InputError
from adagpr.files import require_named
from adagpr.graph import Graph, Split
from adagpr.training import Run, describe_data

DatasetFiles = str | Path | Sequence[str | Path] | None
_NOT_OPTIONS = ("name", "split", "graph_sha256", "split_sha256", "recipe_sha256", "data_root", "progress")


def data_of(
    run: Run, graph: Graph | None, split: Split | None, dataset: DatasetFiles, data_root: Path | str | None
) -> tuple[Graph, Split]:
    """The graph and the split of a run, as given or loaded again; their hashes must be those of the record.

    ``dataset`` is where the run's file is now, for tables those of nodes and edges; a file that only the run names, and
    the user never did, is not opened. ``data_root`` is the folder of the data files.
    """
    stored = run.record["config"]["data"]
    if (graph is None) != (split is None):
        raise InputError("graph and split must be given together.")
    if graph is None or split is None:
        graph, splits = _loaded(run, stored["split"], dataset, data_root)
        split = splits[0]
    _check(describe_data(graph, split), stored, ("graph", "split"))
    return graph, split


def graph_of(run: Run, graph: Graph | None, dataset: DatasetFiles, data_root: Path | str | None) -> Graph:
    """The graph of a run alone; the arguments are those of `data_of`."""
    stored = run.record["config"]["data"]
    if graph is None:
        try:
            graph, _ = _loaded(run, stored["split"], dataset, data_root)
        except InputError:
            # The split may be the caller's own; the graph does not depend on it.
            graph, _ = _loaded(run, None, dataset, data_root)
    _check({"graph_sha256": graph.fingerprint}, stored, ("graph",))
    return graph


def _loaded(
    run: Run, split: str | None, dataset: DatasetFiles, data_root: Path | str | None
) -> tuple[Graph, list[Split]]:
    stored = run.record["config"]["data"]
    options = {key: value for key, value in stored.items() if key not in _NOT_OPTIONS}
    name, given = stored["name"], [dataset] if isinstance(dataset, str | Path) else [*(dataset or ())]
    try:
        if name == "tables":
            options |= zip(("nodes", "edges"), given, strict=False)
            files = [options[key] for key in ("nodes", "edges")[len(given) :] if key in options]
        else:
            name = given[0] if given else name
            files = [] if given or not str(name).endswith(".npz") else [name]
        require_named(files, run.folder, "--dataset FILE, or of tables --dataset NODES --dataset EDGES")
        return load(name, split, data_root=data_root, **options)
    except InputError as error:
        raise InputError(f"The run's data cannot be loaded again, so give them: {error}") from error


def _check(found: dict[str, Any], stored: dict[str, Any], parts: tuple[str, ...]) -> None:
    for part in parts:
        if found[f"{part}_sha256"] != stored[f"{part}_sha256"]:
            raise InputError(f"This is not the {part} of the run: its SHA-256 sum differs from the record's.")
