"""The last stage: the parts, one by one, and the manifest."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch

from adagpr.partitioning.cut import Numbering, local_rows, write_parts
from adagpr.partitioning.parts import Manifest, Parts, Rows
from adagpr.partitioning.stream.buckets import read_bucket
from adagpr.partitioning.stream.job import Job
from adagpr.partitioning.stream.notes import notes_of, origin_of, recipe_of
from adagpr.partitioning.stream.rows import ENTRIES

__all__ = ["finish"]


def finish(job: Job) -> Parts:
    """Writes the parts that are not there yet, then the manifest, and clears up."""
    stages = job.progress.stages
    numbering = Numbering(np.array(job.load("part")), job.num_parts)
    lengths = np.diff(job.load("indptr"))
    parts = write_parts(
        job.progress, job.num_parts, lambda number: _rows(job, number, numbering, lengths), job.on_progress
    )
    manifest = Manifest(
        key=job.progress.key,
        name=job.nodes.path.name.partition(".")[0] or "tables",
        num_features=job.num_features,
        class_names=tuple(stages["nodes"]["class_names"]),
        is_symmetric=stages["rows"]["is_symmetric"],
        method="greedy",
        split=stages["nodes"]["split"],
        **stages["nodes"]["counts"],
        **stages["scatter"],
        parts=parts,
        notes=notes_of(job),
        origin=origin_of(job),
        recipe=recipe_of(job),
    )
    return job.progress.finish(manifest)


def _rows(job: Job, number: int, numbering: Numbering, lengths: np.ndarray) -> Rows:
    """A part, from the files that hold its share.

    Args:
        job: The job.
        number: The part.
        numbering: The numbers by part.
        lengths: Entries of each row of the graph.
    """
    positions, ids = numbering.positions(number), job.load_ids()
    indptr = np.concatenate([[0], np.cumsum(lengths[positions])])
    columns = _entries(job, "columns", number)
    weights = _entries(job, "weights", number) if job.is_weighted else np.ones(len(columns))
    adj, halo = local_rows(numbering, number, indptr, columns, weights)
    degree = job.load("degree") if job.is_weighted else lengths
    # Copied on writing, which nobody does: torch takes no array that cannot be written.
    x = np.memmap(job.work / "features" / str(number), np.float32, "c", shape=(len(positions), job.num_features))
    return Rows(
        adj,
        degree[np.concatenate([positions, numbering.order[halo]])].astype(np.float64),
        halo,
        torch.from_numpy(x),
        torch.from_numpy(job.load("y")[positions].astype(np.int64)),
        job.load("role")[positions],
        pa.array(positions, pa.int64()) if ids is None else ids.take(pa.array(positions)),
        positions,
    )


def _entries(job: Job, name: str, number: int) -> np.ndarray:
    """Columns or weights of the rows of a part."""
    return read_bucket(job.work / f"{name}-of-parts", number, ENTRIES[name])
