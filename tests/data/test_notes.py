"""What is odd in tables and read all the same, and the notes that say so: in memory, out of core and at prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adagpr.data import load
from adagpr.data.tables.features import fit_recipe
from adagpr.data.tables.read import read_tables
from adagpr.data.tables.table import read_table
from adagpr.errors import InputError
from adagpr.files import read_json
from adagpr.partitioning.out_of_core import partition_tables
from tests.partitioning.tables import MEMORY, NUM_NODES, OPTIONS, edge_table, node_table, saved

INF = float("inf")


def test_infinite_numbers_are_missing_and_the_note_counts_them() -> None:
    rows = {"a": [1.0, INF, 3.0, None, -INF, 5.0], "b": range(6)}
    features = fit_recipe(read_table(rows, "nodes"), ["a", "b"])
    missing = fit_recipe(read_table({**rows, "a": [1.0, None, 3.0, None, None, 5.0]}, "nodes"), ["a", "b"])
    assert np.array_equal(features.x, missing.x)
    assert features.recipe == missing.recipe
    assert "Column 'a' has 2 infinite numbers, taken as missing, the first in row 2." in features.messages
    assert not any("infinite" in message for message in missing.messages)


def test_infinite_numbers_of_a_later_table_are_missing_with_a_note() -> None:
    nodes: dict[str, Any] = {"id": [1, 2, 3, 4, 5, 6], "a": range(6), "y": [0, 1] * 3}
    edges = {"source": [1], "target": [2]}
    trained = read_tables(nodes, edges)
    again: dict[str, Any] = {"recipe": trained.recipe.to_plain(), "class_names": trained.graph.class_names}
    later = read_tables({**nodes, "a": [0, INF, 2, 3, INF, 5]}, edges, None, **again)
    assert "Column 'a' has 2 infinite numbers, taken as missing, the first in row 2." in later.messages
    assert (
        later.graph.x.tolist()
        == read_tables({**nodes, "a": [0, None, 2, 3, None, 5]}, edges, None, **again).graph.x.tolist()
    )


def test_a_column_of_nothing_but_infinite_numbers_is_refused() -> None:
    with pytest.raises(InputError, match="nodes, column 'a': every value is missing or infinite; remove the column"):
        fit_recipe(read_table({"a": [INF, None, -INF], "b": range(3)}, "nodes"), ["a", "b"])


def test_of_very_many_columns_some_are_named_and_the_others_counted() -> None:
    constant = {f"c{number}": [1, 1, 1] for number in range(400)}
    with pytest.raises(InputError, match=r"'c19' is left out.*There are 380 more sentences like these\.") as error:
        fit_recipe(read_table(constant, "nodes"), [*constant])
    assert len(str(error.value)) < 2000
    features = fit_recipe(read_table({**constant, "a": [1, 2, 3]}, "nodes"), [*constant, "a"])
    assert len(features.messages) == 22


def both(tmp_path: Path, ending: str, nodes: dict[str, Any], edges: dict[str, Any]) -> tuple[str, ...]:
    """The notes on two tables, once they are known to be the same whole and in batches, as the graphs are."""
    files = saved(tmp_path, ending, nodes, edges)
    graph, _ = load("tables", nodes=files[0], edges=files[1], label="topic", as_is=True)
    streamed = partition_tables(*files, 2, tmp_path / "parts", MEMORY, **OPTIONS).manifest
    assert (streamed.graph_sha256, streamed.notes) == (graph.fingerprint, graph.notes)
    return graph.notes


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("num_missing", [2, 40])
def test_infinite_numbers_as_they_are_are_the_mean_whole_and_in_batches(
    tmp_path: Path, ending: str, num_missing: int
) -> None:
    nodes = node_table("text")
    known = nodes["size"][num_missing + 1 :].tolist()
    nodes["size"] = pa.array([None, *[float("inf"), float("-inf")] * (num_missing // 2), *known])
    notes = both(tmp_path, ending, nodes, edge_table(nodes))
    where = "; a feature says where" if num_missing == 40 else ""
    assert f"Column 'size' has {num_missing} infinite numbers, taken as missing, the first in row 2." in notes
    assert f"Column 'size' has {num_missing + 1} missing values, taken as the mean{where}." in notes
    (size, *_) = read_json(tmp_path / "parts" / "manifest.json")["recipe"]["features"]["columns"]
    assert (size["name"], size["fill"], size["has_missing"]) == ("size", pytest.approx(np.mean(known)), bool(where))


def test_labels_of_a_text_file_that_differ_by_blanks_are_joined_with_a_note(tmp_path: Path) -> None:
    nodes = node_table()
    edges = edge_table(nodes)
    notes = both(tmp_path, "csv", {**nodes, "topic": pa.array(["a ", "b", "a", "c "] * 150)}, edges)
    assert "Labels of column 'topic' that differ only by blanks are joined: 'a' and 'a '." in notes


def test_labels_that_all_have_a_blank_need_no_note(tmp_path: Path) -> None:
    nodes = node_table()
    notes = both(tmp_path, "csv", {**nodes, "topic": pa.array([" a", " b", "c "] * 200)}, edge_table(nodes))
    assert not any("blanks" in note for note in notes)


@pytest.mark.parametrize(("labels", "shown"), [(["a ", "b", "a"], "'a' and 'a '"), (["01", "b", "1"], "'01' and '1'")])
def test_labels_of_other_files_that_differ_by_blanks_or_zeros_are_classes_with_a_note(
    labels: list[str], shown: str, tmp_path: Path
) -> None:
    nodes = node_table()
    notes = both(tmp_path, "parquet", {**nodes, "topic": pa.array(labels * 200)}, edge_table(nodes))
    assert f"Labels of column 'topic' that differ only by blanks or leading zeros are kept apart: {shown}." in notes


@pytest.mark.parametrize(
    ("ending", "odd", "plain"), [("csv", "007", "7"), ("parquet", "007", "7"), ("parquet", "x ", "x")]
)
def test_ids_that_differ_by_blanks_or_zeros_are_nodes_with_a_note(
    ending: str, odd: str, plain: str, tmp_path: Path
) -> None:
    nodes = {**node_table(), "id": pa.array([odd, *(f"n{i}" for i in range(NUM_NODES - 2)), plain])}
    notes = both(tmp_path, ending, nodes, edge_table(nodes))
    shown = f"'{odd}' (row 1) and '{plain}' (row {NUM_NODES})"
    assert any(
        note.endswith(f"column 'id': ids that differ only by blanks or leading zeros are kept apart: {shown}.")
        for note in notes
    )


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_ends_of_edges_that_lack_the_zeros_of_an_id_are_joined_with_a_note(
    ending: str, swapped: bool, tmp_path: Path
) -> None:
    nodes = node_table()
    edges = edge_table(nodes)
    coded = pa.array([f"{number:03}" for number in range(NUM_NODES)])
    if swapped:
        edges = {name: coded.take(values) for name, values in edges.items()}
    else:
        nodes["id"] = coded
    joined = sum(int((np.asarray(values).astype(int) < 100).sum()) for values in edges.values())
    (path, at), shown = (tmp_path / name for name in (f"edges.{ending}", f"nodes.{ending}")), "000" if swapped else "0"
    note = (
        f"{path}: {joined} ids have other leading zeros than in {at}, column 'id', and were joined, such as '{shown}'."
    )
    assert note in both(tmp_path, ending, nodes, edges)


def test_plain_tables_get_none_of_these_notes(tmp_path: Path) -> None:
    nodes = node_table("text")
    notes = " ".join(both(tmp_path, "csv", nodes, edge_table(nodes)))
    assert not any(word in notes for word in ("blanks", "zeros", "infinite", "read as"))
