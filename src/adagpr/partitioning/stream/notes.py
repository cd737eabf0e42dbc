"""What the manifest says beside the numbers: what was done, and how to get the graph and its features again."""

from __future__ import annotations

import os
from typing import Any

from adagpr.partitioning.stream.job import Job, counted

__all__ = ["notes_of", "origin_of", "recipe_of"]


def notes_of(job: Job) -> tuple[str, ...]:
    """What was found and done, one sentence each."""
    stages, names = job.progress.stages, job.columns
    kind = "directed" if job.directed else "undirected"
    taken = (*names.of_nodes, *job.features)
    others = [name for name in job.nodes.schema.names if name not in taken] if names.features is None else []
    return (
        f"{job.nodes.path}: {job.num_nodes} rows; ids from column '{names.id}', labels from column '{names.label}'"
        + ("." if names.split is None else f", split from column '{names.split}'."),
        f"{job.edges.path}: {stages['edges']['num_rows']} rows; {kind} edges from column '{names.source}' to column "
        f"'{names.target}'" + ("." if names.weight is None else f", weights from column '{names.weight}'."),
        f"{counted(job.num_features, 'feature')} from {counted(len(job.features), 'column')}: numbers as they are.",
        *stages["edges"]["said"],
        *stages["rows"]["said"],
        *(f"Column '{name}' is left out: it holds no numbers." for name in others),
        *stages["nodes"]["said"],
    )


def origin_of(job: Job) -> dict[str, Any]:
    """The arguments of `adagpr.load` that give the graph."""
    return {
        "name": "tables",
        "nodes": os.fspath(job.nodes.path),
        "edges": os.fspath(job.edges.path),
        "label": job.columns.label,
        **_ends(job),
        "features": list(job.features),
        "as_is": True,
        **({"directed": True} if job.directed else {}),
        **({} if job.columns.split is None else {"split_column": job.columns.split}),
    }


def recipe_of(job: Job) -> dict[str, Any] | None:
    """How the features were made, to make them again at prediction; none where a column gave several."""
    if any(count != 1 for count in job.features.values()):
        return None
    entry = {"kind": "as is", "shift": 0.0, "scale": 1.0, "fill": None, "has_missing": False}
    made = {"version": 1, "columns": [{"name": name, **entry} for name in job.features]}
    return {"columns": {**_ends(job), "directed": job.directed}, "features": made}


def _ends(job: Job) -> dict[str, str]:
    """The columns that link the two tables."""
    names = job.columns
    return {"id": names.id, "source": names.source, "target": names.target, "weight": names.weight or ""}
