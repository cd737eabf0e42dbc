"""A user's tables: a graph and a split from a table of nodes and a table of edges, and the recipe of its features."""

from adagpr.data.tables.columns import Columns, feature_columns, find_columns
from adagpr.data.tables.features import as_is_columns
from adagpr.data.tables.file import TableFile
from adagpr.data.tables.nodes import (
    IdLookup,
    Labels,
    check_split_codes,
    id_messages,
    ids_of,
    label_messages,
    ordered_ids,
    split_codes,
    stratified_split,
)
from adagpr.data.tables.read import EdgeCounts, from_tables, merge_repeated, read_edges, read_tables
from adagpr.data.tables.recipe import NumberColumn, Recipe, VectorColumn

__all__ = [
    "Columns",
    "EdgeCounts",
    "IdLookup",
    "Labels",
    "NumberColumn",
    "Recipe",
    "TableFile",
    "VectorColumn",
    "as_is_columns",
    "check_split_codes",
    "feature_columns",
    "find_columns",
    "from_tables",
    "id_messages",
    "ids_of",
    "label_messages",
    "merge_repeated",
    "ordered_ids",
    "read_edges",
    "read_tables",
    "split_codes",
    "stratified_split",
]
