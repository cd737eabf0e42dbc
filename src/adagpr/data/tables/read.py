"""`from_tables` and `read_tables`: a graph from a table of nodes and a table of edges."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from adagpr.data.catalogue import DEFAULT_FRACTIONS
from adagpr.data.splits import check_seed
from adagpr.data.tables.columns import Columns, feature_columns, find_columns
from adagpr.data.tables.edges import adjacency
from adagpr.data.tables.features import Features, fit_recipe
from adagpr.data.tables.nodes import (
    IdLookup,
    Labels,
    given_split,
    ids_of,
    label_messages,
    named_classes,
    ordered_ids,
    stratified_split,
)
from adagpr.data.tables.recipe import Recipe
from adagpr.data.tables.table import TableData, read_table
from adagpr.data.tables.values import counted
from adagpr.errors import InputError
from adagpr.graph import Graph, Split


@dataclass(frozen=True, eq=False)
class Tables:
    """What two tables hold.

    Attributes:
        graph: The graph, its nodes in the order of their ids.
        split: Train, val and test nodes; none if there are too few labels for one.
        recipe: How the features were made, to make them again at prediction.
        num_unseen: For each node, in how many columns it has a category that was never seen in training.
        messages: What was found and done, one sentence each, for the user.
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
    recipe: Recipe | Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> Tables:
    """Makes a graph and a split from two tables, and says what was found.

    The first arguments are those of `from_tables`. Without a ``split_column`` a split is drawn class by class, in which
    every node of a class of one or two is for training; ``seed`` chooses it, and ``fractions`` are its shares of train,
    val and test. A ``recipe`` kept from training says how to make the features; by default it is found from the table.
    For tables to predict, ``class_names`` are those of the trained model, ``label`` may be none, and no split is made.

    Example:
        >>> people = {"id": [7, 9, 4], "age": [31, 47, 28], "topic": ["a", "b", "a"]}
        >>> tables = read_tables(people, {"src": [7, 9], "dst": [9, 4]}, "topic")
        >>> tables.graph.node_ids.tolist(), tables.split
        ([4, 7, 9], None)
        >>> tables.messages[0]
        "nodes: 3 rows; ids from column 'id', labels from column 'topic'."
    """
    check_seed("read_tables", seed)
    if label is None and class_names is None:
        raise InputError("read_tables: label must name the column of the classes.")
    table, links = read_table(nodes, "nodes"), read_table(edges, "edges", may_be_empty=class_names is not None)
    columns = find_columns(table, links, label, id, source, target, weight, split_column)
    chosen = columns.describe(table, links, directed)
    ids, order = ordered_ids(ids_of(table, columns.id), table.where(columns.id))
    table = table if order is None else table.take(order)
    adj, about_edges = adjacency(IdLookup(ids), len(ids), links, columns, directed, table.where(columns.id))
    y, names, split, about_labels = _targets(table, columns, seed, fractions, class_names)
    made, num_unseen = _features(table, columns, features, as_is, recipe)
    messages = (*chosen, made.messages[0], *about_edges, *made.messages[1:], *about_labels)
    stored = {"columns": columns.stored(directed), "features": made.recipe.to_plain()}
    given: dict[str, Any] = {"id": id, "source": source, "target": target, "weight": weight, "features": features}
    given |= {"directed": directed or None, "as_is": as_is or None, "split_column": split_column}
    origin = _origin(nodes, edges, label, given)
    node_ids = ids.to_numpy() if pa.types.is_integer(ids.type) else np.array(ids.to_pylist(), dtype=object)
    graph = Graph(made.x, adj, y, names, node_ids, _name(nodes), messages, origin, stored)
    return Tables(graph, split, made.recipe, num_unseen, messages)


def _origin(nodes: Any, edges: Any, label: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """What `adagpr.load` needs to read the same files again; nothing where they are no files."""
    if not all(isinstance(source, (str, os.PathLike)) for source in (nodes, edges)) or label is None:
        return {}
    options = {key: list(value) if key == "features" else value for key, value in given.items() if value is not None}
    return {"name": "tables", "nodes": os.fspath(nodes), "edges": os.fspath(edges), "label": label, **options}


def _targets(
    table: TableData, columns: Columns, seed: int, fractions: Sequence[float], class_names: Sequence[str] | None
) -> tuple[Tensor, tuple[str, ...], Split | None, list[str]]:
    """Classes, their names, the split, and sentences about them."""
    if class_names is not None:
        y = named_classes(table, columns.label, class_names) if columns.label else torch.full((len(table),), -1)
        return y, tuple(class_names), None, []
    labels = Labels(table.where(str(columns.label)), str(columns.label))
    labels.add(table)
    codes, names = labels.classes()
    y, messages = torch.from_numpy(codes.astype(np.int64)), label_messages(codes, names)
    if columns.split is not None:
        split, about = given_split(table, columns.split, y)
        return y, names, split, messages + about
    drawn = stratified_split(y, seed, fractions)
    if drawn is None:
        messages.append("There are too few labels for a split: no class has three.")
    return y, names, drawn, messages


def _features(
    table: TableData,
    columns: Columns,
    features: Sequence[str] | None,
    as_is: bool,
    recipe: Recipe | Mapping[str, Any] | None,
) -> tuple[Features, np.ndarray]:
    """The features with their recipe, found or applied, and the number of unseen categories of each node."""
    if recipe is None:
        wanted, about = feature_columns(table, columns.of_nodes, features)
        fitted = fit_recipe(table, wanted, as_is=as_is, asked=features is not None)
        return replace(fitted, messages=(*fitted.messages, *about)), np.zeros(len(table), dtype=np.int64)
    known = recipe if isinstance(recipe, Recipe) else Recipe.from_plain(recipe)
    x, num_unseen = known.apply(table)
    unseen = int((num_unseen > 0).sum())
    messages = [f"{counted(len(known.feature_names), 'feature')} as in training."]
    if unseen:
        messages.append(f"With a category that was never seen in training: {unseen} of {len(table)} nodes.")
    return Features(known, x, tuple(messages)), num_unseen


def _name(nodes: Any) -> str:
    """What to call the graph: the node file's name without its endings."""
    return Path(nodes).name.partition(".")[0] or "tables" if isinstance(nodes, (str, os.PathLike)) else "tables"
