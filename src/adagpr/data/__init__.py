"""Graphs to train on: the papers' benchmark sets, an embedded one, synthetic ones, and a user's own files.

Reading the catalogue and getting files is light and imported here; what needs torch is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adagpr.data.catalogue import DatasetRow, catalogue, row, sources
from adagpr.data.download import FileStatus, OnDownload, data_root, fetch, presence, verify

if TYPE_CHECKING:
    from adagpr.data import tables
    from adagpr.data.built_in import csbm
    from adagpr.data.loading import load
    from adagpr.data.splits import parse_split, random_split, random_splits
    from adagpr.data.tables import from_tables, read_tables

__all__ = [
    "DatasetRow",
    "FileStatus",
    "OnDownload",
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
_HOME_OF = {"csbm": "built_in", "load": "loading", "from_tables": "tables", "read_tables": "tables"}
_HOME_OF |= dict.fromkeys(("parse_split", "random_split", "random_splits"), "splits")


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'adagpr.data' has no attribute '{name}'")
    value = getattr(import_module(f"adagpr.data.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
