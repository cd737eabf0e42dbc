"""Graphs to train on: the papers' benchmark sets, an embedded one, synthetic ones, and a user's own files.

What is heavy to import is loaded when it is first used. The functions `load`, `csbm`, `catalogue` and `fetch`
share their names with the modules that hold them; those are light and imported here, so that the names mean functions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adagpr.data.catalogue import DatasetRow, catalogue, row, sources
from adagpr.data.csbm import csbm
from adagpr.data.download import FileStatus, OnDownload, data_root, fetch, presence, verify
from adagpr.data.load import load
from adagpr.data.tables.read import Tables, from_tables, read_tables

if TYPE_CHECKING:
    from adagpr.data.splits import parse_split, random_split, random_splits
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

_LATER = {
    "splits": ("parse_split", "random_split", "random_splits"),
    "tables.columns": ("Columns", "feature_columns", "find_columns"),
    "tables.edges": ("EdgeCounts", "merge_repeated", "read_ends", "read_weights"),
    "tables.features": ("as_is_columns",),
    "tables.file": ("TableFile",),
    "tables.nodes": (
        *("IdLookup", "Labels", "check_split_codes", "ids_of", "label_messages", "ordered_ids", "split_codes"),
        "stratified_split",
    ),
    "tables.recipe": ("NumberColumn", "Recipe", "VectorColumn"),
}

__all__ = [
    "Columns",
    "DatasetRow",
    "EdgeCounts",
    "FileStatus",
    "IdLookup",
    "Labels",
    "NumberColumn",
    "OnDownload",
    "Recipe",
    "TableFile",
    "Tables",
    "VectorColumn",
    "as_is_columns",
    "catalogue",
    "check_split_codes",
    "csbm",
    "data_root",
    "feature_columns",
    "fetch",
    "find_columns",
    "from_tables",
    "ids_of",
    "label_messages",
    "load",
    "merge_repeated",
    "ordered_ids",
    "parse_split",
    "presence",
    "random_split",
    "random_splits",
    "read_ends",
    "read_tables",
    "read_weights",
    "row",
    "sources",
    "split_codes",
    "stratified_split",
    "verify",
]


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            value = getattr(import_module(f"adagpr.data.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'adagpr.data' has no attribute '{name}'")
