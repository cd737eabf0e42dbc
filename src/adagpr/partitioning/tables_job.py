"""One call of `partition_tables` as its stages see it: what was asked, and what earlier stages left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from adagpr.data import tables
from adagpr.files import write_atomically
from adagpr.partitioning.assign import OnProgress
from adagpr.partitioning.cut import PartitionState
from adagpr.partitioning.parts import write_arrow

# How much is read and held at a time; the result depends on none of it. Bytes per node: ids, parts, numbers by part,
# where rows start, degrees, and a copy of one of them.
BYTES_PER_NODE, BYTES_PER_TEXT_ID = 48, 64
# Bytes that are there for slices however many nodes there are.
MIN_SLICE = 16 * 2**20
# The most rows of a table of nodes, and of one of edges, at a time.
MAX_ROWS, MAX_EDGES = 1 << 17, 1 << 22


@dataclass(frozen=True, eq=False)
class Job:
    """What every stage is given: what was asked, and what earlier stages left."""

    nodes: tables.TableFile
    edges: tables.TableFile
    columns: tables.Columns
    asked_features: Sequence[str] | None
    num_parts: int
    directed: bool
    is_drawn: bool
    seed: int
    memory: int
    as_is: bool
    state: PartitionState
    on_progress: OnProgress

    @cached_property
    def features(self) -> tuple[list[tables.NumberColumn | tables.VectorColumn], list[str]]:
        """What features are made of, and sentences about it."""
        wanted, about = tables.feature_columns(self.nodes, self.columns.of_nodes, self.asked_features)
        self.nodes.survey([*self.columns.of_nodes, *wanted], to_count=wanted)
        entries, messages = tables.as_is_columns(self.nodes, wanted, self.asked_features is not None)
        return entries, [*messages, *about]

    @cached_property
    def num_features(self) -> int:
        """Number of features."""
        return sum(len(entry.feature_names) for entry in self.features[0])

    @cached_property
    def num_nodes(self) -> int:
        """Number of nodes, once they are read."""
        return int(self.state.stages["nodes"]["num_nodes"])

    @cached_property
    def is_weighted(self) -> bool:
        """Whether edges have weights."""
        return self.columns.weight is not None

    @cached_property
    def slice_bytes(self) -> int:
        """Bytes that one slice may take: half of what is left, as copies come and go."""
        return max(MIN_SLICE, self.memory - BYTES_PER_NODE * self.num_nodes) // 2

    def keep(self, name: str, array: np.ndarray) -> None:
        """Leaves an array for later stages."""

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.save(file, array, allow_pickle=False)

        write_atomically(self.state.work / f"{name}.npy", write)

    def load(self, name: str) -> np.ndarray:
        """An array that an earlier stage left, mapped into memory."""
        found: np.ndarray = np.load(self.state.work / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return found

    def keep_ids(self, ids: Any) -> None:
        """Leaves the ids of the nodes in order."""
        table = pa.table({"node_id": ids})
        write_atomically(self.state.work / "ids.arrow", lambda path: write_arrow(path, table, self.state.key))

    def load_ids(self) -> Any:
        """The ids in order, mapped into memory; none where they are the numbers from 0 on."""
        if not (self.state.work / "ids.arrow").exists():
            return None
        with pa.memory_map(str(self.state.work / "ids.arrow")) as file:
            return pa.ipc.open_file(file).read_all()["node_id"].chunk(0)
