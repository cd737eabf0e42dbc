"""Graphs that do not fit: partitions on disk, borders exchanged between ranks, batches of parts."""

from adagpr.partitioning.cut import partition_graph
from adagpr.partitioning.partition import partition
from adagpr.partitioning.parts import Manifest, Part, Parts, open_parts, positions
from adagpr.partitioning.process_group import Group, group_from_environment
from adagpr.partitioning.shards import (
    HaloExchange,
    StoredOperator,
    bounds_of_ranks,
    exchanged_operator,
    induced,
    join,
    operator_of,
    parts_of_rank,
    stored_operator,
)

__all__ = [
    "Group",
    "HaloExchange",
    "Manifest",
    "Part",
    "Parts",
    "StoredOperator",
    "bounds_of_ranks",
    "exchanged_operator",
    "group_from_environment",
    "induced",
    "join",
    "open_parts",
    "operator_of",
    "partition",
    "partition_graph",
    "parts_of_rank",
    "positions",
    "stored_operator",
]
