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

if TYPE_CHECKING:
    from adagpr.data import tables
    from adagpr.data.splits import parse_split, random_split, random_splits
    from adagpr.data.tables import Tables, from_tables, read_tables

__all__ = [
    "DatasetRow",
    "FileStatus",
    "OnDownload",
    "Tables",
    "catalogue",
    "csbm",
    "data_root",
    "fetch",
    "from_tables",
    "load",
    "parse_split",
    "presence",
    "random_split",
    "random_splits",
    "read_tables",
    "row",
    "sources",
    "tables",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in __all__ or name == "tables":
        raise AttributeError(f"module 'adagpr.data' has no attribute '{name}'")
    value = getattr(import_module(f"adagpr.data.{'splits' if 'split' in name else 'tables'}"), name)
    globals()[name] = value
    return value
