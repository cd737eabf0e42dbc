"""Stage 4: the part of each node, from the rows on disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from adagpr.partitioning.assign import Block, block_size, greedy
from adagpr.partitioning.stream.buckets import ranges
from adagpr.partitioning.stream.job import Job
from adagpr.partitioning.stream.rows import read_entries

__all__ = ["assign_nodes"]


def assign_nodes(job: Job) -> dict[str, Any]:
    """Leaves ``part``, the part of each node."""
    num_nodes, indptr = job.num_nodes, np.array(job.load("indptr"))
    step = block_size(num_nodes, job.num_parts)

    def read_rows() -> Iterator[Block]:
        for low, high in ranges(indptr, job.slice_bytes // 64, step):
            yield low, indptr[low : high + 1] - indptr[low], read_entries(job, "columns", indptr, low, high)

    def tell(number: int, node: int) -> None:
        job.tell(f"assigning the nodes, pass {number + 1}", node, num_nodes)

    job.keep("part", greedy(read_rows, num_nodes, int(indptr[-1]), job.num_parts, on_block=tell))
    return {}
