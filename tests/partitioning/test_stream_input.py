"""What streaming refuses: one sentence that names the file and, where there is one, the column and the row."""

from __future__ import annotations

import gzip
import resource
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from adagpr.data.tables import TableFile
from adagpr.errors import InputError, StorageError
from adagpr.partitioning.out_of_core import partition_tables
from tests.partitioning.tables import MEMORY, NUM_NODES, OPTIONS, edge_table, node_table, saved


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "tpic"}, "nodes.feather: Unknown column 'tpic'. Did you mean 'topic'"),
        ({"source": "from"}, "edges.feather: Unknown column 'from'"),
        ({"split_column": "name"}, "column 'name', row 1: 'nobody' is no part of a split"),
        ({"features": ("name",)}, "column 'name': no feature can be made of texts"),
        ({"features": ("id",)}, "column 'id': a column of ids, labels or the split cannot also be a feature"),
        ({"label": "size"}, r"column 'size', row 1: the label is -?0\.\d+; labels must be classes, not a measure"),
        ({"id": "age"}, r"column 'age': \d+ ids are in more than one row: the first '\d+' \(rows \d+ and \d+"),
        ({"label": "name"}, "column 'name': every known label is 'nobody'; at least two classes are needed to learn"),
        ({"weight": "odd"}, "column 'odd', row 3: a weight must not be negative, got -1"),
    ],
)
def test_columns_that_cannot_be_used_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    nodes = node_table()
    edges = {**edge_table(nodes), "odd": pa.array([1, 1, -1] * 1500)}
    files = saved(tmp_path, "feather", nodes, edges)
    with pytest.raises(InputError, match=message):
        partition_tables(*files, 3, tmp_path / "parts", MEMORY, **(OPTIONS | change))


@pytest.mark.parametrize(("kind", "bad"), [("plain", NUM_NODES), ("whole", 5), ("text", "nobody")])
def test_an_edge_to_an_unknown_node_is_named(tmp_path: Path, kind: str, bad: Any) -> None:
    nodes = node_table(kind)
    edges = edge_table(nodes)
    edges["target"] = pa.array([*edges["target"].to_pylist()[:4499], bad])
    files = saved(tmp_path, "parquet", nodes, edges)
    with pytest.raises(
        InputError, match=f"at least 1 edge names an id that is not in .*: '{bad}' .column 'target', row 4500"
    ):
        partition_tables(*files, 3, tmp_path / "parts", MEMORY, **OPTIONS)


@pytest.mark.parametrize(("num_parts", "message"), [(0, "at least 1, got 0"), (601, "601 parts are more than")])
def test_a_number_of_parts_out_of_range_is_refused(tmp_path: Path, num_parts: int, message: str) -> None:
    nodes = node_table()
    files = saved(tmp_path, "feather", nodes, edge_table(nodes))
    with pytest.raises(InputError, match=message):
        partition_tables(*files, num_parts, tmp_path / "parts", MEMORY, **OPTIONS)


def test_too_little_memory_for_the_nodes_says_how_much_is_needed(tmp_path: Path) -> None:
    nodes = node_table()
    files = saved(tmp_path, "feather", nodes, edge_table(nodes))
    with pytest.raises(InputError, match=r"600 nodes needs 0\.017 GB of memory, but 0\.001 GB are allowed"):
        partition_tables(*files, 3, tmp_path / "parts", 1e6, **OPTIONS)


def test_a_number_that_is_too_large_for_a_feature_is_named(tmp_path: Path) -> None:
    nodes = node_table()
    nodes["size"] = pa.array([1.5] * 41 + [1e300, None] + [2.0] * (NUM_NODES - 43))
    files = saved(tmp_path, "csv", nodes, edge_table(nodes))
    with pytest.raises(InputError, match="column 'size', row 42: the number is too large"):
        partition_tables(*files, 3, tmp_path / "parts", MEMORY, **OPTIONS)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_compressed_table_that_cannot_be_unpacked_on_disk_is_not_called_broken(tmp_path: Path, ending: str) -> None:
    """A table in another encoding is rewritten there, too; a limit on the size of files acts as a full disk."""
    nodes = node_table()
    paths = saved(tmp_path, ending, nodes, edge_table(nodes))
    content = paths[0].read_bytes() if ending == "parquet" else paths[0].read_text().encode("utf-16")
    (tmp_path / f"n.{ending}.gz").write_bytes(gzip.compress(content))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(StorageError, match=f"Cannot write to the folder {tmp_path}: File too large"):
            _ = TableFile(tmp_path / f"n.{ending}.gz", tmp_path).num_rows
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.csv", "there is no such file"),
        ("broken.parquet", "the file is broken"),
        ("odd.txt", "unknown ending '.txt'"),
    ],
)
def test_a_file_that_is_no_table_is_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"nothing")
    (tmp_path / "odd.txt").write_bytes(b"nothing")
    with pytest.raises(InputError, match=f"{name}: {message}"):
        _ = TableFile(tmp_path / name).names
