"""Columns of lists of numbers, as embeddings come: one feature per position, in memory and out of core."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from adagpr import from_tables
from adagpr.data import load
from adagpr.data.tables.features import fit_recipe
from adagpr.data.tables.recipe import Recipe
from adagpr.data.tables.table import read_table
from adagpr.errors import InputError
from adagpr.partitioning.out_of_core import partition_tables
from tests.partitioning.tables import MEMORY, edge_table, node_table, saved

X = np.random.default_rng(0).normal(size=(600, 3))
X[:, 2] = 0.1
LISTS = X.tolist()
KINDS: dict[str, Any] = {
    "lists": pa.array(LISTS),
    "large lists": pa.array(LISTS, pa.large_list(pa.float64())),
    "fixed lists": pa.array(LISTS, pa.list_(pa.float64(), 3)),
    "a slice": pa.array([[9.0], *LISTS]).slice(1),
    "pandas": pd.DataFrame({"v": list(X)}),
    "polars lists": pl.DataFrame({"v": LISTS}),
    "polars arrays": pl.DataFrame({"v": pl.Series(LISTS, dtype=pl.Array(pl.Float64, 3))}),
}


def fit(values: Any, **options: Any) -> Any:
    sheet = read_table(values if hasattr(values, "columns") else {"v": values}, "nodes")
    return fit_recipe(sheet, ["v"], **options)


@pytest.mark.parametrize("kind", KINDS)
def test_each_position_is_scaled_as_a_column_of_numbers_is(kind: str) -> None:
    features = fit(KINDS[kind])
    numbers = fit_recipe(read_table({"a": X[:, 0], "b": X[:, 1]}, "nodes"), ["a", "b"])
    assert features.recipe.feature_names == ["v[0]", "v[1]", "v[2]"]
    assert np.array_equal(features.x[:, :2], numbers.x)
    assert not features.x[:, 2].any()
    assert features.messages[0] == "3 features from 1 column: lists of numbers, scaled (v)."


def test_the_recipe_is_saved_and_scales_later_lists_as_the_first() -> None:
    features = fit(KINDS["lists"])
    again = Recipe.from_plain(json.loads(json.dumps(features.recipe.to_plain(), allow_nan=False)))
    assert again == features.recipe
    x, _ = again.apply({"v": KINDS["fixed lists"][7:9]})
    assert np.array_equal(x, features.x[7:9])


def test_numbers_in_lists_of_any_type_are_kept_as_they_are() -> None:
    for values in ([[1, 2], [3, 4]], [[True, False], [False, True]], [[0.5, 1.0], [2.0, 3.0]]):
        assert fit(pa.array(values), as_is=True).x.tolist() == [[float(number) for number in row] for row in values]


BAD: list[tuple[Any, str]] = [
    (pa.array([[1.0, 2.0], [1.0]]), "row 2: the list has 1 value, not 2"),
    (pa.array([[1.0, 2.0], None]), "row 2: the list is missing"),
    (pa.array([[1.0, 2.0], None], pa.list_(pa.float64(), 2)), "row 2: the list is missing"),
    (pa.array([[1.0, 2.0], [None, 2.0]]), "row 2: a number of the list is missing, infinite or too large"),
    (pa.array([[1.0, 2.0], [2.0, 3.0], [float("inf"), 2.0]]), "row 3: a number of the list is missing, infinite"),
    (pa.array([[1.0, 2.0], [float("nan"), 2.0]]), "row 2: a number of the list is missing, infinite or too large"),
    (pa.array([["a"], ["b"]]), "row 1: the list holds no numbers"),
    (pa.array([None, [], []], pa.list_(pa.string())), "row 2: the list holds no numbers"),
    (pa.array([[], []], pa.list_(pa.float64())), "row 1: the list is empty"),
]


@pytest.mark.parametrize(("values", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_other_lists_are_left_out_or_refused_with_column_and_row(values: Any, reason: str) -> None:
    table = {"v": values, "size": range(len(values))}
    features = fit_recipe(read_table(table, "nodes"), ["v", "size"])
    assert features.recipe.feature_names == ["size"]
    (message,) = (message for message in features.messages if "'v'" in message)
    assert message.startswith(f"Column 'v' is left out: {reason}")
    for as_is in (False, True):
        with pytest.raises(InputError, match=f"nodes, column 'v', {reason}"):
            fit_recipe(read_table(table, "nodes"), ["v"], asked=True, as_is=as_is)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 2.0]], "nodes, column 'v', row 1: the list has 2 values, not 3"),
        ([[1.0, 2.0, 3.0], None], "nodes, column 'v', row 2: the list is missing"),
        ([[1.0, 2.0, 3.0], [1.0, 2.0, None]], "row 2: a number of the list is missing, infinite or too large"),
        ([["a", "b", "c"]], "nodes, column 'v', row 1: the list holds no numbers"),
        ([1.0], "nodes, column 'v', row 1: the value is '1.0', but the model was trained on lists of numbers"),
    ],
)
def test_later_lists_that_do_not_fit_are_named(values: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(KINDS["lists"]).recipe.apply({"v": pa.array(values)})


@pytest.mark.parametrize("ending", ["feather", "parquet"])
@pytest.mark.parametrize("kind", ["lists", "fixed lists"])
def test_lists_of_a_file_give_the_same_graph_in_memory_and_out_of_core(kind: str, ending: str, tmp_path: Path) -> None:
    nodes = node_table()
    # Chunks of files end within the table.
    files = saved(tmp_path, ending, {**nodes, "v": KINDS[kind]}, edge_table(nodes))
    graph, _ = load("tables", nodes=files[0], edges=files[1], label="topic", as_is=True)
    streamed = partition_tables(*files, 3, tmp_path / "parts", MEMORY, label="topic", as_is=True).manifest
    assert streamed.graph_sha256 == graph.fingerprint
    assert (streamed.notes, streamed.recipe) == (graph.notes, graph.recipe)
    scaled = from_tables(*files, label="topic")
    assert scaled.num_features == graph.num_features
    assert "lists of numbers, scaled (v)" in scaled.notes[2]


@pytest.mark.parametrize("bad", [[0.0], None, [0.0, None, 1.0]])
def test_bad_lists_of_a_file_are_left_out_or_refused_alike(bad: Any, tmp_path: Path) -> None:
    nodes = node_table()
    files = saved(tmp_path, "parquet", {**nodes, "v": pa.array([*LISTS[:-1], bad])}, edge_table(nodes))
    graph, _ = load("tables", nodes=files[0], edges=files[1], label="topic", as_is=True)
    streamed = partition_tables(*files, 3, tmp_path / "parts", MEMORY, label="topic", as_is=True).manifest
    assert streamed.notes == graph.notes
    assert any(note.startswith("Column 'v' is left out: row 600: ") for note in graph.notes)
    with pytest.raises(InputError, match="column 'v', row 600: "):
        partition_tables(*files, 3, tmp_path / "other", MEMORY, label="topic", as_is=True, features=["v"])
