"""Which columns the two tables have, and which of them features are made of."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from adagpr.errors import InputError
from adagpr.partitioning.stream.table import Table
from adagpr.partitioning.stream.values import is_number

__all__ = ["Columns", "check_columns", "feature_columns"]


@dataclass(frozen=True)
class Columns:
    """The columns of the two tables.

    Attributes:
        label: Classes, in the table of nodes; a missing value means that the class is unknown.
        id: Ids of the nodes.
        source: Where edges start.
        target: Where edges end.
        weight: Weights of the edges, if they have some.
        split: What says train, val or test; else a split is drawn.
        features: What features are made of; by default all columns of numbers that are left.
    """

    label: str
    id: str = "id"
    source: str = "source"
    target: str = "target"
    weight: str | None = None
    split: str | None = None
    features: tuple[str, ...] | None = None

    @property
    def of_nodes(self) -> tuple[str, ...]:
        """The columns of the table of nodes that are no features."""
        return (self.id, self.label) if self.split is None else (self.id, self.label, self.split)

    @property
    def of_edges(self) -> tuple[str, ...]:
        """The columns of the table of edges."""
        return (self.source, self.target) if self.weight is None else (self.source, self.target, self.weight)


def check_columns(nodes: Table, edges: Table, columns: Columns) -> None:
    """Raises an `InputError` unless the tables have all columns, and numbers in those for features.

    Args:
        nodes: Table of nodes.
        edges: Table of edges.
        columns: Their columns.
    """
    wanted = columns.features or ()
    for column in (*columns.of_nodes, *wanted):
        nodes.require(column)
    for column in columns.of_edges:
        edges.require(column)
    for column in wanted:
        if column in columns.of_nodes:
            raise InputError(f"{nodes.where(column)}: a column of ids, labels or the split cannot be a feature too.")
        if _width(nodes, column) == 0:
            raise InputError(f"{nodes.where(column)}: no feature can be made of it, as it holds no numbers.")
    if not feature_columns(nodes, columns):
        raise InputError(f"{nodes.path}: no column of numbers is left to make features of.")


def feature_columns(nodes: Table, columns: Columns) -> dict[str, int]:
    """The columns that features are made of, in the order of the table, each with how many it gives.

    Args:
        nodes: Table of nodes.
        columns: Its columns.
    """
    wanted = nodes.schema.names if columns.features is None else columns.features
    names = [name for name in nodes.schema.names if name in wanted and name not in columns.of_nodes]
    return {name: width for name in names if (width := _width(nodes, name))}


def _width(nodes: Table, column: str) -> int:
    """How many features a column gives."""
    kind = nodes.schema.field(column).type
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) if is_number(kind.value_type) else 0
    return int(is_number(kind))
