"""A user's tables: a graph and a split from a table of nodes and a table of edges, and the recipe of its features.

What does the work is imported when it is asked for, so that naming the functions costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adagpr.data.tables.read import Tables, from_tables, read_tables

if TYPE_CHECKING:
    from adagpr.data.tables.columns import Columns, feature_columns, find_columns
    from adagpr.data.tables.edges import EdgeCounts, merge_repeated, read_ends, read_weights
    from adagpr.data.tables.features import as_is_columns
    from adagpr.data.tables.file import TableFile
    from adagpr.data.tables.nodes import (
        IdLookup,
        Labels,
        check_split_codes,
        ids_of,
        label_messages,
        ordered_ids,
        split_codes,
        stratified_split,
    )
    from adagpr.data.tables.recipe import NumberColumn, Recipe, VectorColumn

_MODULES = ("columns", "edges", "features", "file", "nodes", "recipe")

__all__ = [
    "Columns",
    "EdgeCounts",
    "IdLookup",
    "Labels",
    "NumberColumn",
    "Recipe",
    "TableFile",
    "Tables",
    "VectorColumn",
    "as_is_columns",
    "check_split_codes",
    "feature_columns",
    "find_columns",
    "from_tables",
    "ids_of",
    "label_messages",
    "merge_repeated",
    "ordered_ids",
    "read_ends",
    "read_tables",
    "read_weights",
    "split_codes",
    "stratified_split",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in (import_module(f"adagpr.data.tables.{module}") for module in _MODULES):
            if getattr(getattr(module, name, None), "__module__", None) == module.__name__:
                return getattr(module, name)
    raise AttributeError(f"module 'adagpr.data.tables' has no attribute '{name}'")
