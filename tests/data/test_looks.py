"""Text files as people save them: other encodings, other separators, decimal commas; read whole and in batches."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adagpr.data import load
from adagpr.data.tables import TableFile
from adagpr.data.tables.features import fit_recipe
from adagpr.data.tables.table import read_table
from adagpr.errors import InputError
from adagpr.partitioning.out_of_core import partition_tables
from tests.partitioning.tables import MEMORY

NUM_NODES = 120
OPTIONS: dict[str, Any] = {"label": "topic", "as_is": True}


def rows_of(decimal: str) -> list[list[str]]:
    """Nodes with quoted line ends, whole numbers and numbers with a point or a comma in them."""
    sizes = np.random.default_rng(0).normal(size=NUM_NODES).round(4)
    names = ["Zoë\nMüller", 'O"Neill; "Jr", é', "plain"]
    body = [
        [f"n{i}", str(size).replace(".", decimal), str(i % 7), names[i % 3], ["größe", "maß"][i % 2]]
        for i, size in enumerate(sizes)
    ]
    return [["id", "größe", "count", "name", "topic"], *body]


def text_of(rows: list[list[str]], separator: str) -> str:
    def cell(value: str) -> str:
        return '"' + value.replace('"', '""') + '"' if set(value) & {'"', "\n", separator} else value

    return "".join(separator.join(map(cell, row)) + "\n" for row in rows)


def saved(
    folder: Path, separator: str = ",", decimal: str = ".", encoding: str = "utf-8", ending: str = "csv"
) -> tuple[Path, Path]:
    folder.mkdir()
    edges = [["source", "target", "weight"]]
    edges += [[f"n{i}", f"n{(i * 7 + 3) % NUM_NODES}", f"{i % 5 + 1}{decimal}5"] for i in range(NUM_NODES)]
    paths = folder / f"nodes.{ending}", folder / f"edges.{ending}"
    for path, rows in zip(paths, (rows_of(decimal), edges), strict=True):
        content = text_of(rows, separator).encode(encoding)
        path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    return paths


LOOKS: dict[str, tuple[dict[str, str], str | None]] = {
    "semicolons": (
        {"separator": ";", "decimal": ","},
        "read as UTF-8, separated by semicolons, with decimal commas",
    ),
    "semicolons and points": ({"separator": ";"}, "read as UTF-8, separated by semicolons"),
    "tabs": ({"separator": "\t"}, "read as UTF-8, separated by tabs"),
    "strokes": ({"separator": "|"}, "read as UTF-8, separated by upright strokes"),
    "Windows-1252": (
        {"separator": ";", "decimal": ",", "encoding": "cp1252"},
        "read as Windows-1252, separated by semicolons, with decimal commas",
    ),
    "Latin-1": ({"encoding": "latin-1"}, "read as Windows-1252"),
    "UTF-16": ({"separator": "\t", "encoding": "utf-16"}, "read as UTF-16, separated by tabs"),
    "UTF-16 without a mark": ({"encoding": "utf-16-le"}, "read as UTF-16"),
    "UTF-16 the other way round": ({"encoding": "utf-16-be"}, "read as UTF-16"),
    "UTF-16, compressed": ({"encoding": "utf-16", "ending": "csv.gz"}, "read as UTF-16"),
    "UTF-8 with a mark": ({"encoding": "utf-8-sig"}, None),
    "commas in a .tsv": ({"ending": "tsv"}, "read as UTF-8, separated by commas"),
}


@pytest.mark.parametrize(("look", "sentence"), LOOKS.values(), ids=LOOKS)
def test_a_table_of_any_look_is_the_plain_table_whole_and_in_batches(
    look: dict[str, str], sentence: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adagpr.data.tables.file._BLOCK_BYTES", 512)
    plain, (split,) = load("tables", **files(saved(tmp_path / "plain")), label="topic", as_is=True)
    paths = saved(tmp_path / "other", **look)
    graph, (own,) = load("tables", **files(paths), label="topic", as_is=True)
    parts = partition_tables(*paths, 2, tmp_path / "parts", MEMORY, **OPTIONS)
    assert graph.fingerprint == parts.manifest.graph_sha256 == plain.fingerprint
    assert own.fingerprint == split.fingerprint
    assert (parts.manifest.notes, parts.manifest.recipe) == (graph.notes, graph.recipe)
    said = [note for note in graph.notes if "read as" in note]
    expected = [f"{path}: {sentence}." for path in paths]
    if sentence is not None and look.get("encoding") in ("cp1252", "latin-1"):
        # The edges are all ASCII, which is UTF-8 too.
        expected[1] = expected[1].replace("Windows-1252", "UTF-8")
        expected = [line for line in expected if not line.endswith("read as UTF-8.")]
    assert said == (expected if sentence is not None else [])
    scaled = [load("tables", **files(one), label="topic")[0] for one in (paths, saved(tmp_path / "again"))]
    assert scaled[0].fingerprint == scaled[1].fingerprint


def files(paths: tuple[Path, Path]) -> dict[str, Any]:
    return {"nodes": paths[0], "edges": paths[1]}


def columns(path: Path, content: bytes) -> dict[str, list[Any]]:
    path.write_bytes(content)
    sheet = read_table(path, "nodes")
    blocks = list(TableFile(path).blocks(sheet.names, 2))
    found = {name: sheet.values(name).to_pylist() for name in sheet.names}
    assert [len(block) for block in blocks[:-1]] == [2] * (len(blocks) - 1)
    return found


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        # What is read today stays as it is.
        ("t.csv", b'id,"a;b",c\n1,x,3\n', {"id": [1], "a;b": ["x"], "c": [3]}),
        ("t.tsv", b"id\ta\n1\t2,5\n", {"id": [1], "a": ["2,5"]}),
        ("t.csv", b'id,a\n1,"2,5"\n', {"id": [1], "a": ["2,5"]}),
        ("t.csv", b"id,a|b\n1,2|3\n", {"id": [1], "a|b": ["2|3"]}),
        # A comma in one name does not make a table of it.
        ("t.csv", b"id;a, b;c\n1;2,5;x\n2;3;y\n", {"id": [1, 2], "a, b": [2.5, 3.0], "c": ["x", "y"]}),
        ("t.csv", b"id;a\n1; -2,5\n2;NA\n3;,5e1\n", {"id": [1, 2, 3], "a": [-2.5, None, 5.0]}),
        ("t.csv", b"id;a;b\n1;1.5;2,5\n", {"id": [1], "a": [1.5], "b": [2.5]}),
        ("t.csv", b"id;a;b\n1;1,500;2,5\n", {"id": [1], "a": [1.5], "b": [2.5]}),
        ("t.csv", b"id;a\n1;1,5\n2;x, y\n", {"id": [1, 2], "a": ["1,5", "x, y"]}),
        (
            "t.csv",
            "id,a\n1,»Spaß«\n2,été\n3,naïve\n".encode("cp1252"),
            {"id": [1, 2, 3], "a": ["»Spaß«", "été", "naïve"]},
        ),
    ],
)
def test_small_files_are_read_as_their_reader_would(
    name: str, content: bytes, expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    assert columns(tmp_path / name, content) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id;a|b\n1;2|3\n", "its values are separated by semicolons or by upright strokes"),
        (b"id;a, b;c\n1;2,5;x\n", "its values are separated by commas or by semicolons"),
        (b"id;a\n1;1,500\n2;12,250\n", r"column 'a', row 1: '1,500' may have a decimal comma or thousands apart"),
        (b"id;a;b\n1;1.500;2,5\n", r"column 'a', row 1: '1.500' may have a decimal point or thousands apart"),
        (b"id;a\n1;2\n2;3;4\n", r"t\.csv, row 2: there are 3 values, but the header names 2"),
        ("id,a\n1,é\n2,".encode() + b"\xff\n", r"column 'a', row 2: the bytes are not UTF-8\. Save the file as UTF-8"),
        (b"id,a\n1,\x81\n", r"column 'a', row 1: the bytes are not UTF-8\. Save the file as UTF-8"),
        ("id,a\n1,é\n".encode("utf-16")[:-1], "the file is broken, cut short or of another kind"),
        ("id,a\n1,é\n".encode("utf-16")[:-4] + b"\x00\xd8\n\x00", "the file is broken, cut short or of another kind"),
    ],
)
def test_what_can_be_read_in_two_ways_or_in_none_is_one_sentence(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    for read in (lambda: read_table(tmp_path / "t.csv", "nodes").values("a"), lambda: survey(tmp_path / "t.csv")):
        with pytest.raises(InputError, match=message) as caught:
            read()
        assert str(caught.value).startswith(str(tmp_path / "t.csv"))
        assert "\n" not in str(caught.value)


def survey(path: Path) -> None:
    file = TableFile(path)
    file.survey(file.names)


def test_a_typing_mistake_among_numbers_with_commas_is_named(tmp_path: Path) -> None:
    values = [f"{i},5" for i in range(40)]
    values[16] = "many"
    (tmp_path / "t.csv").write_text("id;a\n" + "".join(f"{i};{value}\n" for i, value in enumerate(values)))
    with pytest.raises(InputError, match=r"column 'a', row 17: 'many' is not a number, but 39 of the column's 40"):
        fit_recipe(read_table(tmp_path / "t.csv", "nodes"), ["a"])
    assert pa.types.is_large_string(TableFile(tmp_path / "t.csv").type_of("a"))
