"""Which columns of two tables name the nodes, join them, label them and split them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from adagpr.data.tables.file import TableFile
from adagpr.data.tables.nodes import PART_OF, IdLookup, ids_of
from adagpr.data.tables.table import TableData
from adagpr.data.tables.values import pluralize
from adagpr.errors import InputError

_ID_NAMES = ("id", "node_id", "nodeid", "node", "ids", "node_ids", "uid", "uuid")
_SPLIT_NAMES = ("split", "part", "set")
_END_NAMES = (
    *(("source", "target"), ("src", "dst"), ("from", "to"), ("source_id", "target_id"), ("src_id", "dst_id")),
    *(("from_id", "to_id"), ("sourceid", "targetid"), ("fromid", "toid"), ("head", "tail"), ("u", "v"), ("i", "j")),
    *(("node1", "node2"), ("node_1", "node_2"), ("id1", "id2"), ("id_1", "id_2"), ("citing", "cited")),
)

Table = TableData | TableFile


@dataclass(frozen=True)
class Columns:
    """The columns of two tables; there is no label where there is nothing to learn from."""

    label: str | None
    id: str
    source: str
    target: str
    weight: str | None = None
    split: str | None = None

    @property
    def of_nodes(self) -> list[str]:
        """The columns of the table of nodes that are no features."""
        return [column for column in (self.id, self.label, self.split) if column is not None]

    @property
    def of_edges(self) -> list[str]:
        """The columns of the table of edges that are used."""
        return [column for column in (self.source, self.target, self.weight) if column is not None]

    def describe(self, nodes: Table, edges: Table, directed: bool) -> list[str]:
        """Sentences on how the tables were read and on the columns that were chosen."""
        unused = [column for column in edges.names if column not in self.of_edges]
        return [
            *(f"{table.name}: {table.look}." for table in (nodes, edges) if table.look),
            f"{nodes.name}: {pluralize(nodes.num_rows, 'row')}; ids from column '{self.id}'"
            + (f", labels from column '{self.label}'" if self.label is not None else "")
            + (f", split from column '{self.split}'." if self.split is not None else "."),
            f"{edges.name}: {pluralize(edges.num_rows, 'row')}; {'directed' if directed else 'undirected'} edges from "
            f"column '{self.source}' to column '{self.target}'"
            + (f", weights from column '{self.weight}'" if self.weight is not None else "")
            + (f"; not used: {', '.join(unused)}." if unused else "."),
        ]

    def stored(self, directed: bool) -> dict[str, Any]:
        """What a prediction needs to know of tables like these."""
        ends = {"id": self.id, "source": self.source, "target": self.target, "weight": self.weight or ""}
        return {**ends, "directed": directed}

    def recipe(self, nodes: Table, edges: Table, directed: bool, features: Any) -> dict[str, Any]:
        """What is kept with a model: columns, features by their recipe, and how the files were read if that is odd.

        Later tables are read by their own look.
        """
        looks = {name: table.look for name, table in (("nodes", nodes), ("edges", edges)) if table.look}
        found = {"columns": self.stored(directed), "features": features.to_plain()}
        return {**found, "looks": looks} if looks else found


def find_columns(
    nodes: Table,
    edges: Table,
    label: str | None,
    id: str | None = None,  # noqa: A002 - the name that the command line has too
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    split_column: str | None = None,
) -> Columns:
    """The columns that were named, and for those that were not the ones of usual names and fitting values.

    All rows are looked at, so that tables give the same columns read whole or in batches. The arguments are those of
    `adagpr.from_tables`.
    """
    source, target, weight = _edge_columns(edges, source, target, weight)
    nodes.require(label, split_column)
    split = _split_column(nodes) if split_column is None else split_column
    taken = [column for column in (label, split) if column is not None]
    key = _id_column(nodes, edges, source, id, taken)
    if key in taken:
        raise InputError(f"{nodes.where(key)}: the column of ids cannot also hold the labels or the split.")
    return Columns(label, key, source, target, weight, split)


def feature_columns(nodes: Table, taken: Sequence[str], features: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The columns to make features of, in the order of the table: those named, else all that have a name and are free.

    With them comes a sentence on those that are left out because they have no name.
    """
    if isinstance(features, str):
        raise InputError(f"features must be a list of columns, got '{features}'.")
    for column in features or ():
        nodes.require(column)
        if column in taken:
            raise InputError(f"{nodes.where(column)}: a column of ids, labels or the split cannot also be a feature.")
    if features is not None:
        return [column for column in nodes.names if column in features], []
    unused = ", ".join(sorted(nodes.nameless - set(taken)))
    messages = [f"A column without a name is left out ({unused})."] if unused else []
    return [column for column in nodes.names if column not in taken and column not in nodes.nameless], messages


def _edge_columns(
    edges: Table, source: str | None, target: str | None, weight: str | None
) -> tuple[str, str, str | None]:
    """Both ends of an edge and its weight: those named, else those of usual names, else the first two columns."""
    edges.require(source, target, weight or None)
    usual = _usual_names(edges)
    if weight is None:
        weight = usual.get("weight", usual.get("edge_weight"))
    weight = weight or None
    pairs = [(usual[one], usual[two]) for one, two in _END_NAMES if one in usual and two in usual]
    if source is None and target is None and pairs:
        source, target = pairs[0]
    free = [column for column in edges.names if column not in (source, target, weight, *edges.nameless)]
    # The partner of an end that is known comes first.
    partners = {one for pair in pairs for one, two in (pair, pair[::-1]) if two in (source, target)}
    free.sort(key=lambda column: column not in partners)
    if len(free) < (source, target).count(None):
        raise InputError(
            f"{edges.name}: an edge needs two columns, source and target, but there are: {', '.join(edges.names)}."
        )
    source = free.pop(0) if source is None else source
    target = free.pop(0) if target is None else target
    if source == target:
        raise InputError(f"{edges.where(source)}: source and target must be different columns.")
    return source, target, weight


def _split_column(nodes: Table) -> str | None:
    """A column that is called split and holds nothing but the names of its parts."""
    for column in nodes.names:
        if column.strip().casefold() in _SPLIT_NAMES and nodes.kind(column) == "text":
            parts = (pc.unique(block.texts(column).drop_null()) for block in nodes.blocks([column]))
            if all(set(pc.utf8_lower(part).to_pylist()) <= PART_OF.keys() for part in parts):
                return column
    return None


def _id_column(nodes: Table, edges: Table, source: str, given: str | None, taken: Sequence[str]) -> str:
    """The column of the node ids: the one named, of a usual name, or the first whose values the edges use."""
    if given is not None:
        nodes.require(given)
        return given
    usual = _usual_names(nodes)
    for column in [usual[name] for name in _ID_NAMES if name in usual]:
        if column not in taken:
            return column
    for column in nodes.names:
        if column not in taken and _names_nodes(nodes, column, edges, source):
            return column
    raise InputError(
        f"{nodes.name}: no column of ids was found: none is called id or node_id, and none names the nodes in "
        f"{edges.where(source)}. Name the column with the option id."
    )


def _usual_names(table: Table) -> dict[str, str]:
    """Columns by their name in lower case, with underscores for all else than letters and digits."""
    names: dict[str, str] = {}
    for column in table.names:
        if column not in table.nameless:
            names.setdefault(re.sub(r"\W+", "_", column.strip().casefold()), column)
    return names


def _names_nodes(nodes: Table, column: str, edges: Table, end: str) -> bool:
    """Whether a column's values differ from each other and at least half of the edges' ends are among them."""
    if nodes.kind(column) in ("missing", "other", "boolean"):
        return False
    parts = []
    for block in nodes.blocks([column]):
        if block.missing(column).any():
            return False
        parts.append(ids_of(block, column))
    is_text = any(pa.types.is_large_string(part.type) for part in parts)
    ids = pa.concat_arrays([part.cast(pa.large_string()) if is_text else part for part in parts])
    if pc.count_distinct(ids).as_py() < len(ids):
        return False
    lookup = IdLookup(ids.take(pc.array_sort_indices(ids)))
    num_found = sum(int((lookup.places(ids_of(block, end)) >= 0).sum()) for block in edges.blocks([end]))
    return 2 * num_found >= edges.num_rows
