"""How much is read, held and written at a time; the result depends on none of it."""

from __future__ import annotations

__all__ = [
    "BYTES_PER_NODE",
    "BYTES_PER_TEXT_ID",
    "CSV_BLOCK",
    "MAX_EDGES",
    "MAX_ROWS",
    "MIN_SLICE",
    "NUM_BUCKETS",
    "NUM_UNITS",
]

# Ids, parts, numbers by part, where rows start, degrees, and a copy of one of them.
BYTES_PER_NODE = 48
BYTES_PER_TEXT_ID = 64
# Bytes that are there for slices however many nodes there are.
MIN_SLICE = 16 * 2**20
# Files that edges are sorted into, and ranges of sources whose edges are counted.
NUM_BUCKETS = 256
NUM_UNITS = 1 << 16
# The most rows of a table of nodes, and of one of edges, at a time.
MAX_ROWS = 1 << 17
MAX_EDGES = 1 << 22
# Bytes of a text file at a time.
CSV_BLOCK = 1 << 22
