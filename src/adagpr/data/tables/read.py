"""`from_tables` and `read_tables`: a graph from a table of nodes and a table of edges.

Ends of edges are looked up among the nodes, repeated edges are merged, and their weights added.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.data.catalogue import DEFAULT_FRACTIONS
from adagpr.data.splits import check_seed, mask_split
from adagpr.data.tables.columns import Columns, feature_columns, find_columns
from adagpr.data.tables.features import Features, fit_recipe
from adagpr.data.tables.nodes import (
    IdLookup,
    Labels,
    check_split_codes,
    id_messages,
    ids_of,
    label_messages,
    named_classes,
    ordered_ids,
    split_codes,
    stratified_split,
)
from adagpr.data.tables.recipe import Recipe, infinite_messages, numbers_of
from adagpr.data.tables.table import TableData, read_table
from adagpr.data.tables.values import is_number_text, pluralize, quoted
from adagpr.errors import InputError
from adagpr.files import remember_named
from adagpr.graph import Graph, Split, edges_to_csr

_PATH = (str, os.PathLike)
_NUM_EDGES_SHOWN = 3


@dataclass(frozen=True, eq=False)
class Tables:
    """What two tables hold.

    There is no split if there are too few labels for one. For each node ``num_unseen`` is in how many columns it has a
    category that was never seen in training; ``messages`` are what was found and done, one sentence each.
    """

    graph: Graph
    split: Split | None
    recipe: Recipe
    num_unseen: np.ndarray
    messages: tuple[str, ...]


def from_tables(
    nodes: Any,
    edges: Any,
    label: str = "y",
    *,
    id: str | None = None,  # noqa: A002 - the name that the command line has too
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    directed: bool = False,
    features: Sequence[str] | None = None,
    as_is: bool = False,
    split_column: str | None = None,
) -> Graph:
    """Makes a `Graph` from a table of nodes and a table of edges.

    Both may be the path of a file (.csv, .tsv, .parquet, .feather, .arrow, each also with .gz, .bz2 or .zst behind), an
    Arrow table, a pandas or polars data frame, or a dictionary of columns. Rows may come in any order: nodes are put in
    the order of their ids. See `read_tables` for the split and for what was found.

    Args:
        nodes: One row per node: its id, its label where that is known, and columns to make features of.
        edges: One row per edge: the ids of its ends and perhaps a weight. Repeated edges are merged and their weights
            added; where an edge is given in both directions, the larger weight of the two counts.
        label: Column of the classes; a missing value means that the class is unknown.
        id: Column of the ids, by default one called ``id`` or ``node_id``, else the first that the edges refer to.
        source: Column where edges start, by default of a usual name, else the first.
        target: Column where edges end, by default of a usual name, else the second.
        weight: Column of the weights, by default one called ``weight`` if there is one; an empty text for none.
        directed: Whether edges are directed.
        features: Columns to make features of, by default all but id, label and split.
        as_is: Whether numbers are taken as they are, not scaled, and columns of anything else are left out.
        split_column: Column that says train, val or test; not a feature.

    Raises:
        InputError: A table cannot be used; the sentence names the file and, where there is one, the column and the row.

    Example:
        >>> people = {"id": ["ann", "bob", "eve"], "age": [31, 47, 28], "y": ["a", "b", None]}
        >>> graph = from_tables(people, {"from": ["ann", "bob"], "to": ["bob", "eve"]})
        >>> graph.num_nodes, graph.num_edges, graph.class_names, graph.y.tolist()
        (3, 4, ('a', 'b'), [0, 1, -1])
    """
    ends: dict[str, Any] = {"id": id, "source": source, "target": target, "weight": weight, "directed": directed}
    return read_tables(nodes, edges, label, features=features, as_is=as_is, split_column=split_column, **ends).graph


def read_tables(
    nodes: Any,
    edges: Any,
    label: str | None = "y",
    *,
    id: str | None = None,  # noqa: A002 - the name that the command line has too
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    directed: bool = False,
    features: Sequence[str] | None = None,
    as_is: bool = False,
    split_column: str | None = None,
    seed: int = 0,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    recipe: Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> Tables:
    """Makes a graph and a split from two tables, and says what was found.

    The first arguments are those of `from_tables`. Without a ``split_column`` a split is drawn class by class, in which
    every node of a class of one or two is for training; ``seed`` chooses it, and ``fractions`` are its shares of train,
    val and test. A ``recipe`` kept from training says how to make the features; by default it is found from the table.
    For tables to predict, ``class_names`` are those of the trained model, ``label`` may be none, and no split is made.
    """
    check_seed("read_tables", seed)
    if label is None and class_names is None:
        raise InputError("read_tables: label must name the column of the classes.")
    table, links = read_table(nodes, "nodes"), read_table(edges, "edges", may_be_empty=class_names is not None)
    columns = find_columns(table, links, label, id, source, target, weight, split_column)
    chosen = columns.describe(table, links, directed)
    ids = ids_of(table, columns.id)
    about_ids = id_messages(ids, table.where(columns.id))
    ids, order = ordered_ids(ids, table.where(columns.id))
    table = table if order is None else table.take(order)
    adj, about_edges = _adjacency(IdLookup(ids), len(ids), links, columns, directed, table.where(columns.id))
    y, names, split, about_labels = _targets(table, columns, seed, fractions, class_names)
    made, num_unseen = _features(table, columns, features, as_is, recipe)
    messages = (*chosen, made.messages[0], *about_edges, *made.messages[1:], *about_ids, *about_labels)
    stored = columns.recipe(table, links, directed, made.recipe)
    origin: dict[str, Any] = {}
    if isinstance(nodes, _PATH) and isinstance(edges, _PATH) and label is not None:
        given: dict[str, Any] = {"id": id, "source": source, "target": target, "weight": weight}
        given |= {"features": None if features is None else list(features)}
        given |= {"directed": directed or None, "as_is": as_is or None, "split_column": split_column}
        origin = {"name": "tables", "nodes": os.fspath(nodes), "edges": os.fspath(edges), "label": label}
        origin |= {key: value for key, value in given.items() if value is not None}
        remember_named(nodes, edges)
    name = (Path(nodes).name.partition(".")[0] if isinstance(nodes, _PATH) else "") or "tables"
    node_ids = ids.to_numpy() if pa.types.is_integer(ids.type) else np.array(ids.to_pylist(), dtype=object)
    graph = Graph(made.x, adj, y, names, node_ids, name, messages, origin, stored)
    return Tables(graph, split, made.recipe, num_unseen, messages)


def _targets(
    table: TableData, columns: Columns, seed: int, fractions: Sequence[float], class_names: Sequence[str] | None
) -> tuple[Tensor, tuple[str, ...], Split | None, list[str]]:
    """Classes, their names, the split, and sentences about them."""
    if class_names is not None:
        y = named_classes(table, columns.label, class_names) if columns.label else torch.full((len(table),), -1)
        return y, tuple(class_names), None, []
    labels = Labels(table.where(str(columns.label)), str(columns.label))
    labels.add(table)
    classes, names = labels.classes()
    y, messages = torch.from_numpy(classes.astype(np.int64)), [*labels.messages(), *label_messages(classes, names)]
    if columns.split is not None:
        parts = split_codes(table, columns.split)
        messages += check_split_codes(parts, classes, table.where(columns.split))
        train, val, test = ((parts == number) & (classes >= 0) for number in (1, 2, 3))
        return y, names, mask_split(train, val, test, "given"), messages
    split = stratified_split(y, seed, fractions)
    if split is None:
        messages.append("There are too few labels for a split: no class has three.")
    return y, names, split, messages


def _features(
    table: TableData, columns: Columns, features: Sequence[str] | None, as_is: bool, recipe: Mapping[str, Any] | None
) -> tuple[Features, np.ndarray]:
    """The features with their recipe, found or applied, and the number of unseen categories of each node."""
    if recipe is None:
        wanted, about = feature_columns(table, columns.of_nodes, features)
        fitted = fit_recipe(table, wanted, as_is=as_is, asked=features is not None)
        return replace(fitted, messages=(*fitted.messages, *about)), np.zeros(len(table), dtype=np.int64)
    known = Recipe.from_plain(recipe)
    x, num_unseen = known.apply(table)
    unseen = int((num_unseen > 0).sum())
    messages = [f"{pluralize(len(known.feature_names), 'feature')} as in training."]
    for column in known.columns:
        messages += infinite_messages(table, column.name)
    if unseen:
        messages.append(f"With a category that was never seen in training: {unseen} of {len(table)} nodes.")
    return Features(known, x, tuple(messages)), num_unseen


@dataclass
class EdgeCounts:
    """Rows with weight 0 and rows that repeat an edge, edges from a node to itself, nodes without another edge."""

    num_zero: int = 0
    num_repeated: int = 0
    num_loops: int = 0
    num_alone: int = 0

    def messages(self, edges: str, is_weighted: bool, num_nodes: int) -> list[str]:
        """Sentences on what was odd in the table called ``edges``."""
        how = "merged, their weights added" if is_weighted else "merged, each edge counted once"
        messages = (
            (self.num_zero, f"{pluralize(self.num_zero, 'row')} of {edges} with weight 0 left out."),
            (self.num_repeated, f"{pluralize(self.num_repeated, 'row')} of {edges} that repeat an edge {how}."),
            (self.num_loops, f"{pluralize(self.num_loops, 'edge')} from a node to itself kept."),
            (self.num_alone, f"Without an edge to another node: {self.num_alone} of {num_nodes} nodes."),
        )
        return [message for number, message in messages if number]


def _read_ends(edges: TableData, columns: Columns, lookup: IdLookup, ids_at: str) -> tuple[np.ndarray, np.ndarray]:
    """The nodes at both ends of each row; an id that no node has is an error that says where ids are (``ids_at``)."""
    sources, targets = (lookup.places(ids_of(edges, column)) for column in (columns.source, columns.target))
    rows = np.flatnonzero((sources < 0) | (targets < 0))
    if len(rows) == 0:
        return sources, targets
    shown = []
    for row in rows[:_NUM_EDGES_SHOWN]:
        column = columns.source if sources[row] < 0 else columns.target
        shown.append(f"{quoted(edges.texts(column)[int(row)])} (column '{column}', row {edges.rows[row]})")
    least = "at least " if edges.is_part else ""
    what = f"{least}1 edge names an id that is" if len(rows) == 1 else f"{least}{len(rows)} edges name ids that are"
    first = "" if len(rows) <= _NUM_EDGES_SHOWN else "the first "
    raise InputError(f"{edges.name}: {what} not in {ids_at}: {first}{', '.join(shown)}.")


def _read_weights(edges: TableData, column: str) -> np.ndarray:
    """The weight of each row: a number that is not negative, else an error."""
    kind = edges.kind(column)
    if kind not in ("whole", "real", "missing"):
        odd = ~edges.missing(column)
        if kind == "text" and edges.is_text:
            odd &= ~is_number_text(edges.texts(column))
        odd = odd if odd.any() else ~odd
        edges.refuse(column, odd, "a weight must be a number, got {}.", edges.texts(column))
    weight = numbers_of(edges, column)
    edges.refuse(column, np.isinf(weight), "the number is infinite.")
    edges.refuse(column, np.isnan(weight), "the weight is missing.")
    edges.refuse(column, weight < 0, "a weight must not be negative, got {}.", weight)
    return weight


def read_edges(
    edges: TableData, columns: Columns, lookup: IdLookup, ids_at: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
    """The ends and weights of the rows of a table, or of a block of one, and how many with weight 0 are left out."""
    sources, targets = _read_ends(edges, columns, lookup, ids_at)
    if columns.weight is None:
        return sources, targets, None, 0
    weights = _read_weights(edges, columns.weight)
    kept = weights > 0
    return sources[kept], targets[kept], weights[kept], int((~kept).sum())


def merge_repeated(keys: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Each key once, in order, with the sum of its weights, added in the order of their size.

    Keys are numbers from 0 up that name edges; where there are no weights they are sorted in place.
    """
    if weights is None:
        keys.sort()
    else:
        order = np.lexsort((weights, keys))
        keys, weights = keys[order], weights[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    if weights is not None and len(starts):
        with np.errstate(over="ignore"):
            weights = np.add.reduceat(weights, starts)
    return keys[starts], weights


def _adjacency(
    lookup: IdLookup, num_nodes: int, edges: TableData, columns: Columns, directed: bool, ids_at: str
) -> tuple[sp.csr_array, list[str]]:
    """The matrix of an edge table, and sentences on what was odd in it."""
    counts = EdgeCounts()
    sources, targets, weights, counts.num_zero = read_edges(edges, columns, lookup, ids_at)
    keys, weights = merge_repeated(sources * num_nodes + targets, weights)
    counts.num_repeated = len(sources) - len(keys)
    sources, targets = keys // num_nodes, keys % num_nodes
    is_loop = sources == targets
    counts.num_loops = int(is_loop.sum())
    touched = np.zeros(num_nodes, dtype=bool)
    touched[sources[~is_loop]] = touched[targets[~is_loop]] = True
    counts.num_alone = int((~touched).sum())
    weights = np.ones(len(keys)) if weights is None else weights
    if not directed:
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        weights = np.concatenate([weights, weights])
    adj = edges_to_csr(sources, targets, num_nodes, weights)
    about = counts.messages(edges.name, columns.weight is not None, num_nodes)
    return adj, [*lookup.messages(edges.name, ids_at), *about]
