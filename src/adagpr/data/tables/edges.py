"""Which columns name the nodes and join them, and the adjacency that they make.

Nodes are put in the order of their ids: whole numbers by size, all else as texts. Ids of two tables are compared as
whole numbers where both are, or where one side's texts are whole numbers too; else as texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from adagpr.data.tables.recipe import numbers_of
from adagpr.data.tables.sheet import TableData
from adagpr.data.tables.values import as_whole, counted, is_number_text, quoted
from adagpr.errors import InputError
from adagpr.graph import edges_to_csr

__all__ = ["EdgeColumns", "adjacency", "edge_columns", "id_column", "ids_of", "ordered_ids"]

_ID_NAMES = ("id", "node_id", "nodeid", "node", "ids", "node_ids", "uid", "uuid")
_END_NAMES = (
    *(("source", "target"), ("src", "dst"), ("from", "to"), ("source_id", "target_id"), ("src_id", "dst_id")),
    *(("from_id", "to_id"), ("sourceid", "targetid"), ("fromid", "toid"), ("head", "tail"), ("u", "v"), ("i", "j")),
    *(("node1", "node2"), ("node_1", "node_2"), ("id1", "id2"), ("id_1", "id_2"), ("citing", "cited")),
)
_WHOLE = r"^[+-]?\d{1,18}$"
_NUM_SHOWN = 3


@dataclass(frozen=True)
class EdgeColumns:
    """The columns of an edge table: both ends, and the weight if there is one."""

    source: str
    target: str
    weight: str | None


def edge_columns(edges: TableData, source: str | None, target: str | None, weight: str | None) -> EdgeColumns:
    """The columns that were named, and for those that were not the ones of usual names, else the first two.

    An empty name of the weights means that there are none.
    """
    for column in (source, target, weight or None):
        if column is not None:
            edges.require(column)
    usual = _usual_names(edges)
    if weight is None:
        weight = next((usual[name] for name in ("weight", "edge_weight") if name in usual), None)
    weight = weight or None
    free = [column for column in edges.names if column not in (source, target, weight)]
    pairs = [(usual[one], usual[two]) for one, two in _END_NAMES if one in usual and two in usual]
    if source is None and target is None and pairs:
        source, target = pairs[0]
    free = [column for column in free if column not in (source, target, *edges.nameless)]
    partner = {**dict(pairs), **{two: one for one, two in pairs}}
    for known in (source, target):
        if known in partner and partner[known] in free:
            free.insert(0, partner[known])
    try:
        source = source if source is not None else free.pop(0)
        free = [column for column in free if column != source]
        target = target if target is not None else free.pop(0)
    except IndexError:
        raise InputError(
            f"{edges.name}: an edge needs two columns, source and target, but there are: {', '.join(edges.names)}."
        ) from None
    if source == target:
        raise InputError(f"{edges.where(source)}: source and target must be two columns.")
    return EdgeColumns(source, target, weight)


def id_column(nodes: TableData, edges: TableData, ends: EdgeColumns, given: str | None, taken: Sequence[str]) -> str:
    """The column of the node ids: the one named, of a usual name, or the first whose values the edges use.

    Args:
        nodes: The node table.
        edges: The edge table.
        ends: The columns of the edge table.
        given: The name that was given, if any.
        taken: Columns that serve something else.
    """
    if given is not None:
        nodes.require(given)
        return given
    usual = _usual_names(nodes)
    for name in _ID_NAMES:
        if name in usual and usual[name] not in taken:
            return usual[name]
    for column in nodes.names:
        if column not in taken and _names_nodes(nodes, column, edges, ends.source):
            return column
    raise InputError(
        f"{nodes.name}: no column of ids was found: none is called id or node_id, and none names the nodes in "
        f"{edges.where(ends.source)}. Name it."
    )


def _usual_names(sheet: TableData) -> dict[str, str]:
    """Columns by their name in lower case, with underscores for all else than letters and digits."""
    names: dict[str, str] = {}
    for column in sheet.names:
        if column not in sheet.nameless:
            names.setdefault(re.sub(r"\W+", "_", column.strip().casefold()), column)
    return names


def _names_nodes(nodes: TableData, column: str, edges: TableData, end: str) -> bool:
    """Whether a column's values differ from each other and at least half of the edges' ends are among them."""
    if nodes.kind(column) in ("missing", "other", "boolean") or nodes.missing(column).any():
        return False
    ids = ids_of(nodes, column)
    if pc.count_distinct(ids).as_py() < len(ids):
        return False
    found = _positions(ids, ids_of(edges, end))
    return bool(2 * (found >= 0).sum() >= len(found))


def ids_of(sheet: TableData, column: str) -> Any:
    """A column of ids as int64 where all are whole numbers, else as texts; a missing id is an error."""
    if sheet.kind(column) == "other":
        raise InputError(f"{sheet.where(column)}: values of the type {sheet.values(column).type} cannot be ids.")
    missing = sheet.missing(column)
    if missing.any():
        count = int(missing.sum())
        more = f" ({count} such rows)" if count > 1 else ""
        raise InputError(f"{sheet.where(column, sheet.first(missing))}: the id is missing{more}.")
    whole = as_whole(sheet.values(column))
    return sheet.texts(column) if whole is None else whole


def ordered_ids(nodes: TableData, column: str) -> tuple[Any, np.ndarray]:
    """The ids of the nodes in order, and the position that each had; an id that occurs twice is an error."""
    ids = ids_of(nodes, column)
    order = pc.array_sort_indices(ids).to_numpy().astype(np.int64)
    ordered = ids.take(pa.array(order))
    encoded = ordered.dictionary_encode()
    if len(encoded.dictionary) < len(ordered):
        raise _repeated(nodes, column, encoded, order)
    return ordered, order


def _repeated(nodes: TableData, column: str, encoded: Any, order: np.ndarray) -> InputError:
    codes = encoded.indices.to_numpy()
    counts = np.bincount(codes)
    repeated = np.flatnonzero(counts > 1)
    rows_of = {int(code): np.sort(nodes.rows[order[codes == code]]) for code in repeated[:_NUM_SHOWN]}
    shown = ", ".join(
        f"{quoted(encoded.dictionary[code])} (rows {rows[0]} and {rows[1]}{', ...' if len(rows) > 2 else ''})"
        for code, rows in rows_of.items()
    )
    what = "1 id stands" if len(repeated) == 1 else f"{len(repeated)} ids stand"
    first = "" if len(repeated) <= _NUM_SHOWN else "the first "
    return InputError(f"{nodes.where(column)}: {what} in more than one row: {first}{shown}.")


def _positions(ids: Any, values: Any) -> np.ndarray:
    """Position of each value among the ids, -1 where it is none of them."""
    if ids.type != values.type and pa.types.is_large_string(values.type):
        values = _whole_texts(values)
    elif ids.type != values.type:
        whole = _whole_texts(ids)
        is_one_to_one = whole.null_count == 0 and pc.count_distinct(whole).as_py() == len(whole)
        ids, values = (whole, values) if is_one_to_one else (ids, values.cast(pa.large_string()))
    found = pc.index_in(values, value_set=ids)
    known = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    return np.where(known, pc.fill_null(found, -1).to_numpy(zero_copy_only=False), -1).astype(np.int64)


def _whole_texts(texts: Any) -> Any:
    """Texts as whole numbers, missing where they are none."""
    is_whole = pc.match_substring_regex(texts, _WHOLE)
    kept = pc.if_else(is_whole, pc.replace_substring_regex(texts, r"^\+", ""), pa.scalar(None, texts.type))
    return kept.cast(pa.int64())


def adjacency(
    ids: Any, edges: TableData, ends: EdgeColumns, directed: bool, ids_at: str
) -> tuple[sp.csr_array, list[str]]:
    """The matrix of an edge table, and sentences on what was odd in it.

    Args:
        ids: The ids of the nodes, in order.
        edges: The edge table.
        ends: Its columns.
        directed: Whether an edge goes one way.
        ids_at: Where the ids stand, for errors.
    """
    places = [_positions(ids, ids_of(edges, column)) for column in (ends.source, ends.target)]
    _check_known(edges, ends, places, ids_at)
    sources, targets = places
    weight = np.ones(len(edges)) if ends.weight is None else _weights(edges, ends.weight)
    messages = []
    if (weight == 0).any():
        messages.append(f"{counted(int((weight == 0).sum()), 'row')} of {edges.name} with weight 0 left out.")
        sources, targets, weight = sources[weight > 0], targets[weight > 0], weight[weight > 0]
    num_given = len(sources)
    sources, targets, weight = _merged(sources, targets, weight, len(ids), ends.weight is not None)
    if len(sources) < num_given:
        how = "merged, each edge counted once" if ends.weight is None else "merged, their weights added"
        messages.append(f"{counted(num_given - len(sources), 'row')} of {edges.name} that repeat an edge {how}.")
    num_loops = int((sources == targets).sum())
    if num_loops:
        messages.append(f"{counted(num_loops, 'edge')} from a node to itself kept.")
    if not directed:
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        weight = np.concatenate([weight, weight])
    adj = edges_to_csr(sources, targets, len(ids), weight)
    touched = np.zeros(len(ids), dtype=bool)
    touched[sources[sources != targets]] = touched[targets[sources != targets]] = True
    if not touched.all():
        messages.append(f"Without an edge to another node: {int((~touched).sum())} of {len(ids)} nodes.")
    return adj, messages


def _check_known(edges: TableData, ends: EdgeColumns, places: list[np.ndarray], ids_at: str) -> None:
    is_unknown = (places[0] < 0) | (places[1] < 0)
    rows = np.flatnonzero(is_unknown)
    if len(rows) == 0:
        return
    shown = []
    for row in rows[:_NUM_SHOWN]:
        column = ends.source if places[0][row] < 0 else ends.target
        shown.append(f"{quoted(edges.texts(column)[int(row)])} (column '{column}', row {edges.rows[row]})")
    what = "1 edge names an id that is" if len(rows) == 1 else f"{len(rows)} edges name ids that are"
    first = "" if len(rows) <= _NUM_SHOWN else "the first "
    raise InputError(f"{edges.name}: {what} not in {ids_at}: {first}{', '.join(shown)}.")


def _weights(edges: TableData, column: str) -> np.ndarray:
    """Checked weights."""
    kind = edges.kind(column)
    if kind not in ("whole", "real", "missing"):
        odd = ~edges.missing(column)
        if kind == "text" and edges.is_text:
            odd &= ~is_number_text(edges.texts(column))
        position = edges.first(odd) if odd.any() else 0
        raise InputError(
            f"{edges.where(column, position)}: a weight must be a number, got {quoted(edges.texts(column)[position])}."
        )
    weight = numbers_of(edges, column)
    if np.isnan(weight).any():
        raise InputError(f"{edges.where(column, edges.first(np.isnan(weight)))}: the weight is missing.")
    if (weight < 0).any():
        position = edges.first(weight < 0)
        raise InputError(f"{edges.where(column, position)}: a weight must not be negative, got {weight[position]:g}.")
    return weight


def _merged(
    sources: np.ndarray, targets: np.ndarray, weight: np.ndarray, num_nodes: int, is_weighted: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each edge once, with the sum of its weights, added in the order of their size so that rows may be shuffled."""
    keys = sources * num_nodes + targets
    order = np.lexsort((weight, keys))
    keys, weight = keys[order], weight[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    with np.errstate(over="ignore"):
        total = np.add.reduceat(weight, starts) if len(starts) and is_weighted else np.ones(len(starts))
    return keys[starts] // num_nodes, keys[starts] % num_nodes, total
