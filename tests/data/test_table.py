from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adagpr.data.tables.read import from_tables
from adagpr.data.tables.table import TableData, read_table
from adagpr.errors import InputError

TABLE = pa.table({"id": [1, 2, 3], "size": [0.5, None, 2.0], "ok": [True, False, True], "name": ["a", "b, c", None]})


def write_zstd(path: Path) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        arrow_csv.write_csv(TABLE, stream)


def write_text(path: Path) -> bytes:
    arrow_csv.write_csv(TABLE, str(path))
    return path.read_bytes()


def write_tsv(path: Path) -> None:
    arrow_csv.write_csv(TABLE, str(path), arrow_csv.WriteOptions(delimiter="\t"))


def write_stream(path: Path) -> None:
    with pa.ipc.new_stream(str(path), TABLE.schema) as writer:
        writer.write_table(TABLE)


WRITERS: dict[str, Any] = {
    "t.csv": write_text,
    "t.tsv": write_tsv,
    "t.csv.gz": lambda path: path.write_bytes(gzip.compress(write_text(path.with_name("plain.csv")))),
    "t.csv.bz2": lambda path: path.write_bytes(bz2.compress(write_text(path.with_name("plain.csv")))),
    "t.csv.zst": write_zstd,
    "t.parquet": lambda path: pq.write_table(TABLE, path),
    "t.feather": lambda path: feather.write_feather(TABLE, str(path)),
    "t.arrow": write_stream,
}


def columns(sheet: TableData) -> dict[str, list[Any]]:
    return {name: sheet.values(name).to_pylist() for name in sheet.names}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_table(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    sheet = read_table(tmp_path / name, "nodes")
    assert columns(sheet) == TABLE.to_pydict()
    assert [sheet.kind(column) for column in sheet.names] == ["whole", "real", "boolean", "text"]


class Convertible:
    def to_arrow(self) -> pa.Table:
        return TABLE


@pytest.mark.parametrize("source", [TABLE, TABLE.to_batches()[0], Convertible(), TABLE.to_pydict()])
def test_tables_in_memory_come_in_through_arrow(source: Any) -> None:
    assert columns(read_table(source, "nodes")) == TABLE.to_pydict()


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1, 2], pa.uint8()), "whole", [1, 2]),
        (pa.array([1.5, float("nan")], pa.float32()), "real", [1.5, None]),
        (pa.array(["", "b"]), "text", [None, "b"]),
        (pa.array(["a", "b"]).dictionary_encode(), "text", ["a", "b"]),
        (pa.array([b"a", b"b"]), "text", ["a", "b"]),
        (pa.array([None, None]), "missing", [None, None]),
        (pa.array([1, 2]).cast(pa.decimal128(20, 0)), "whole", [1, 2]),
        (pa.array([1.5, 2]).cast(pa.decimal128(20, 2)), "real", [1.5, 2]),
        (np.array([3, 4], dtype=np.int16), "whole", [3, 4]),
        (pa.array([[1], [2]]), "other", [[1], [2]]),
        (pa.chunked_array([["a"], ["b"]]), "text", ["a", "b"]),
        (pa.array([1, 2], pa.duration("s")), "whole", [1, 2]),
    ],
)
def test_types_of_arrow_become_few(values: Any, kind: str, expected: list[Any]) -> None:
    sheet = read_table({"a": values}, "nodes")
    assert sheet.kind("a") == kind
    assert sheet.values("a").to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", "NA"], "whole"),
        (["1", "2.5", ""], "real"),
        (["1e3", " 2 ", "3"], "real"),
        (["007", "8", "9"], "text"),
        (["0x1f", "8", "9"], "text"),
        (["true", "False", ""], "boolean"),
        (["2024-01-31", "2024-02-01", ""], "date"),
        (["2024-01-31 10:00:00", "2024-02-01 11:30:00", ""], "date"),
        (["2024-01-31T10:00:00Z", "2024-02-01T11:30:00Z", ""], "date"),
        (["1", "2", "x"], "text"),
        (["NA", "", "null"], "missing"),
        (["12345678901234567890123", "1", "2"], "real"),
    ],
)
def test_a_column_of_a_text_file_gets_the_narrowest_type(values: list[str], kind: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,a\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values)))
    assert read_table(tmp_path / "t.csv", "nodes").kind("a") == kind


def test_quoted_values_may_hold_line_ends_and_delimiters(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbf\r\n"id", text \r\n1,"a\r\nb"\r\n\r\n2,"c, ""d"""\r\n')
    assert columns(read_table(tmp_path / "t.csv", "n")) == {"id": [1, 2], "text": ["a\r\nb", 'c, "d"']}


def test_a_column_without_a_name_is_marked(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",id\n0,5\n1,6\n")
    assert read_table(tmp_path / "t.csv", "nodes").nameless == {"column 1"}


def test_an_unknown_column_is_answered_with_a_near_one_or_the_first_few() -> None:
    sheet = read_table({f"w{i}": [1] for i in range(30)}, "nodes")
    with pytest.raises(InputError, match=r"nodes: Unknown column 'w311'\. Did you mean 'w"):
        sheet.require("w311")
    with pytest.raises(InputError, match=r"nodes: Unknown column 'topic'\. Known: w0, .*, w19 and 10 more\."):
        sheet.require("topic")


def test_rows_keep_their_number_in_another_order() -> None:
    sheet = read_table({"id": [5, 6, 7]}, "nodes").take(np.array([2, 0, 1]))
    assert sheet.values("id").to_pylist() == [7, 5, 6]
    assert sheet.where("id", 0) == "nodes, column 'id', row 3"
    assert sheet.first(np.array([True, True, False])) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", r"t\.csv: the file is empty"),
        ("t.csv", b"\n\n", r"t\.csv: the file is empty"),
        ("t.csv", b"id,a\n", "there is a header but no row below it"),
        ("t.csv", b"id,a\n1,2\n2,3,4\n", r"t\.csv, row 2: there are 3 values, but the header names 2"),
        ("t.csv", b"\n\nid,a\n1,2\n2\n", r"t\.csv, row 2: there is 1 value, but"),
        ("t.csv", b"id,a\n1,\xc3\xa9\n2,\xff\xfe\n", r"t\.csv, column 'a', row 2: the bytes are not UTF-8"),
        ("t.csv", b"id,\xff\n1,\xc3\xa9\n", r"t\.csv, column 2: its name in the header is not UTF-8"),
        ("t.csv", b"id,a,a\n1,2,3\n", "two columns are called 'a'"),
        ("t.csv.gz", b"id,a\n1,2\n", r"t\.csv\.gz: the file is broken, cut short or of another kind"),
        ("t.parquet", b"", "the file is empty"),
        ("t.parquet", b"PAR1 no more", r"t\.parquet: the file is broken, cut short or of another kind"),
        ("t.feather", b"some text", r"t\.feather: the file is broken, cut short or of another kind"),
        ("t.xlsx", b"x", r"unknown ending '\.xlsx'\. Known: \.csv, \.tsv"),
        ("t", b"x", r"unknown ending ''\. Known: \.csv, \.tsv"),
    ],
)
def test_each_broken_file_is_one_sentence_that_names_it(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_table(tmp_path / name, "nodes")
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.arrow", "t.csv.gz", "t.csv.zst", "t.csv.bz2"])
def test_a_file_cut_short_is_refused(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for length in (len(whole) // 3, len(whole) // 2, len(whole) - 9):
        (tmp_path / name).write_bytes(whole[:length])
        with pytest.raises(InputError, match="is broken, cut short or of another kind"):
            read_table(tmp_path / name, "nodes")


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: there is no such file"):
        read_table(tmp_path / "none.csv", "nodes")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match=r"folder\.csv: this is a folder"):
        read_table(str(tmp_path / "folder.csv"), "nodes")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (5, "nodes: must be the path of a file, an Arrow table, a data frame or a dictionary of columns, got int"),
        ({}, "nodes: there are no columns"),
        ({"a": []}, "nodes: there are columns but no rows"),
        ({"a": [1, 2], "b": [1]}, "nodes: the columns have 1 to 2 rows"),
        ({"a": [None, 1, 2, "x"]}, "nodes, column 'a', row 4: a value of the type str among values of the type int"),
        ({"a": "abc"}, "nodes, column 'a': must be a list of values, got str"),
        ({"a": 5}, "nodes, column 'a': must be a list of values, got int"),
        (pa.table({"a": [1]}).rename_columns([""]).append_column("column 1", [[2]]), "two columns are called"),
    ],
)
def test_what_is_no_table_is_refused(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_table(source, "nodes")


def test_bytes_that_are_no_text_are_named_by_column_and_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3], "a": pa.array([b"x", b"y", b"\xff"])}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t\.parquet, column 'a', row 3: there are bytes that are not UTF-8"):
        read_table(tmp_path / "t.parquet", "nodes").values("a")


def file_bytes(ending: str) -> tuple[bytes, bytes]:
    nodes = {
        "id": ["a", "b", "c", "d", "e", "f"],
        "size": [0.5, 1.5, None, 2.5, 1e3, 7.0],
        "count": [1, 2, 3, 4, 5, 6],
        "day": ["2020-01-01", "2020-01-02"] * 3,
        "text": ["to be", "or not", "to be", "that is", "is it", "not"],
        "ok": [True, False] * 3,
        "y": ["red", "blue", "red", "blue", "red", ""],
    }
    edges = {"source": ["a", "b", "c"], "target": ["b", "c", "f"], "weight": [1.0, 2.0, 0.5]}
    tables = [pa.table(nodes), pa.table(edges)]
    parts = []
    for table in tables:
        sink = pa.BufferOutputStream()
        if ending == "csv":
            arrow_csv.write_csv(table, sink)
        else:
            pq.write_table(table, sink)
        parts.append(sink.getvalue().to_pybytes())
    return parts[0], parts[1]


FILES = {ending: file_bytes(ending) for ending in ("csv", "parquet")}
ODD_BYTES = st.one_of(
    st.binary(max_size=3), st.sampled_from([b",", b"\n", b'"', b"\r", b";", b"\xff", b"NA", b"1e999"])
)
CHANGES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4), ODD_BYTES), min_size=1, max_size=4)


@settings(max_examples=1000, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(ending=st.sampled_from(["csv", "csv", "parquet"]), which=st.integers(0, 1), changes=CHANGES)
def test_mutated_files_give_a_graph_or_one_sentence(
    ending: str, which: int, changes: list[tuple[float, int, bytes]], tmp_path: Path
) -> None:
    contents = list(FILES[ending])
    for place, length, inserted in changes:
        at = int(place * len(contents[which]))
        contents[which] = contents[which][:at] + inserted + contents[which][at + length :]
    paths = [tmp_path / f"{name}.{ending}" for name in ("nodes", "edges")]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    message = ""
    try:
        from_tables(paths[0], paths[1])
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert {path.stem for path in tmp_path.iterdir()} == {"nodes", "edges"}
