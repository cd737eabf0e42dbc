"""Stage 1: the nodes in the order of their ids, with their classes and the split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from adagpr.errors import InputError
from adagpr.partitioning.assign import check_num_parts
from adagpr.partitioning.parts import ROLES
from adagpr.partitioning.stream import sizes
from adagpr.partitioning.stream.hashing import hashed
from adagpr.partitioning.stream.job import Job, counted
from adagpr.partitioning.stream.scan import NodeScan
from adagpr.partitioning.stream.values import is_text

__all__ = ["read_nodes"]

MAX_NODES = 2**31 - 1
# Where val begins and where test begins when a split is drawn.
FRACTIONS = (0.6, 0.8)


def read_nodes(job: Job) -> dict[str, Any]:
    """Leaves ``y`` and ``role`` in the order of the ids, the ids, and ``rank``, the place of each row in that order."""
    num_nodes = _num_nodes(job)
    scan = _scan(job, num_nodes)
    ids, order = scan.ordered()
    y, class_names = scan.classes()
    given = scan.role
    if order is not None:
        y, given = y[order], given[order]
        rank = np.empty(num_nodes, dtype=np.int32)
        rank[order] = np.arange(num_nodes, dtype=np.int32)
        job.keep("rank", rank)
    supports_fused_stack = pa.types.is_integer(ids.type) and ids[0].as_py() == 0 and ids[-1].as_py() == num_nodes - 1
    if not supports_fused_stack:
        job.keep_ids(ids)
    role = _roles(job, given, y)
    job.keep("y", y)
    job.keep("role", role)
    return {
        "num_nodes": num_nodes,
        "supports_fused_stack": supports_fused_stack,
        "is_sorted": order is None,
        "class_names": class_names,
        "counts": {f"num_{part}": int((role == number).sum()) for part, number in ROLES.items()},
        "split": f"hashed/{job.seed}" if job.columns.split is None else "given",
        "said": _said(given, y),
    }


def _num_nodes(job: Job) -> int:
    num_nodes = job.nodes.count(job.columns.id)
    if num_nodes == 0:
        raise InputError(f"{job.nodes.path}: there are columns but no rows.")
    check_num_parts(job.num_parts, num_nodes)
    if num_nodes > MAX_NODES:
        raise InputError(f"{job.nodes.path}: there are {num_nodes} nodes; at most {MAX_NODES} can be cut.")
    return num_nodes


def _scan(job: Job, num_nodes: int) -> NodeScan:
    """The table with ids as whole numbers where they all are, else as texts, which take more memory."""
    has_texts = is_text(job.nodes.schema.field(job.columns.id).type) and not job.nodes.is_text
    _check_memory(job, num_nodes, has_texts)
    if not has_texts:
        scan = NodeScan(job, num_nodes)
        if scan.read(as_whole=True):
            return scan
        _check_memory(job, num_nodes, True)
    scan = NodeScan(job, num_nodes)
    scan.read(as_whole=False)
    return scan


def _check_memory(job: Job, num_nodes: int, has_texts: bool) -> None:
    bytes_per_node = sizes.BYTES_PER_NODE + (sizes.BYTES_PER_TEXT_ID if has_texts else 0)
    needed = num_nodes * bytes_per_node + sizes.MIN_SLICE
    if needed > job.memory:
        raise InputError(
            f"{job.nodes.path}: what is kept of {num_nodes} nodes needs {needed / 1e9:.3f} GB of memory, but "
            f"{job.memory / 1e9:.3f} GB are allowed."
        )


def _roles(job: Job, given: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The part of the split of each node, given or drawn; none for a node without a label."""
    if job.columns.split is None:
        chance = (hashed(np.arange(len(y)) + (job.seed % 2**31 << 32)) >> np.uint64(11)) / 2.0**53
        given = 1 + np.searchsorted(FRACTIONS, chance, side="right")
    role = np.where(y < 0, 0, given).astype(np.int8)
    for part, number in ROLES.items():
        if not (role == number).any():
            raise InputError(f"{job.nodes.path}: there are no {part} nodes with a label.")
    if len(np.unique(y[role == ROLES["train"]])) < 2:
        raise InputError(f"{job.nodes.path}: the training nodes are all of one class; at least two are needed.")
    return role


def _said(given: np.ndarray, y: np.ndarray) -> list[str]:
    """Sentences about nodes without a label."""
    missing = int((y < 0).sum())
    said = [f"Without a label: {missing} of {len(y)} nodes."] if missing else []
    for part, number in ROLES.items():
        without = int(((given == number) & (y < 0)).sum())
        if without:
            said.append(f"Left out of {part} for want of a label: {counted(without, 'node')}.")
    return said
