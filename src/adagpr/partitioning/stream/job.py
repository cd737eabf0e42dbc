"""One call of `partition_tables` as its stages see it: what was asked, and what earlier stages left."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from adagpr.files import write_atomically
from adagpr.partitioning.cut import OnProgress, PartitionState
from adagpr.partitioning.stream import sizes
from adagpr.partitioning.stream.columns import Columns, feature_columns
from adagpr.partitioning.stream.table import Table

__all__ = ["Job", "counted"]


@dataclass(frozen=True, eq=False)
class Job:
    """What every stage is given.

    Attributes:
        nodes: Table of nodes.
        edges: Table of edges.
        columns: Their columns.
        num_parts: Number of parts.
        directed: Whether edges go one way.
        seed: Chooses the split where one is drawn.
        memory: Bytes to use.
        progress: The stages that are done.
        on_progress: Told of every slice.
    """

    nodes: Table
    edges: Table
    columns: Columns
    num_parts: int
    directed: bool
    seed: int
    memory: int
    progress: PartitionState
    on_progress: OnProgress | None

    @property
    def work(self) -> Path:
        """Folder of the files between stages."""
        return self.progress.work

    @cached_property
    def features(self) -> dict[str, int]:
        """The columns that features are made of, each with how many it gives."""
        return feature_columns(self.nodes, self.columns)

    @property
    def num_features(self) -> int:
        """Number of features."""
        return sum(self.features.values())

    @property
    def num_nodes(self) -> int:
        """Number of nodes, once they are read."""
        return int(self.progress.stages["nodes"]["num_nodes"])

    @property
    def is_weighted(self) -> bool:
        """Whether edges have weights."""
        return self.columns.weight is not None

    @property
    def slice_bytes(self) -> int:
        """Bytes that one slice may take: half of what is left, as copies come and go."""
        return max(sizes.MIN_SLICE, self.memory - sizes.BYTES_PER_NODE * self.num_nodes) // 2

    def tell(self, what: str, done: int, total: int) -> None:
        """Tells the caller how far a stage is; a total of 0 is not known."""
        if self.on_progress is not None:
            self.on_progress(what, done, total)

    def keep(self, name: str, array: np.ndarray) -> None:
        """Leaves an array for later stages."""

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.save(file, array, allow_pickle=False)

        write_atomically(self.work / f"{name}.npy", write)

    def load(self, name: str) -> np.ndarray:
        """An array that an earlier stage left, mapped into memory."""
        found: np.ndarray = np.load(self.work / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return found

    def keep_ids(self, ids: Any) -> None:
        """Leaves the ids of the nodes in order, unless they are the numbers from 0 on."""

        def write(temporary: Path) -> None:
            table = pa.table({"node_id": ids})
            with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)

        write_atomically(self.work / "ids.arrow", write)

    def load_ids(self) -> Any:
        """The ids in order, mapped into memory; none where they are the numbers from 0 on."""
        if self.progress.stages["nodes"]["supports_fused_stack"]:
            return None
        with pa.memory_map(str(self.work / "ids.arrow")) as source:
            return pa.ipc.open_file(source).read_all()["node_id"].chunk(0)


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
