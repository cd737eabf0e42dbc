from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from adagpr.data.tables.features import Features, fit_recipe
from adagpr.data.tables.recipe import CategoryColumn, NumberColumn, Recipe, TextColumn
from adagpr.data.tables.table import read_table
from adagpr.data.tables.words import tokenise
from adagpr.errors import InputError


def fit(table: Any, **options: Any) -> Features:
    sheet = read_table(table, "nodes")
    return fit_recipe(sheet, [column for column in sheet.names if column != "id"], **options)


def dense(x: Any) -> np.ndarray:
    return np.asarray(x.toarray() if isinstance(x, sp.csr_array) else x.numpy())


def mixed(num_rows: int = 200) -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    words = np.array(["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "Ärger", "42", "naïve"])
    return {
        "id": list(range(num_rows)),
        "size": [None if i % 7 == 0 else float(rng.normal(5, 2)) for i in range(num_rows)],
        "count": rng.integers(0, 9, num_rows).tolist(),
        "ok": [None if i == 3 else bool(i % 3) for i in range(num_rows)],
        "city": [None if i % 50 == 1 else f"city {i % 5}" for i in range(num_rows - 1)] + ["nowhere"],
        "day": [date(2020, 1, 1 + i % 28) for i in range(num_rows)],
        "text": [" ".join(rng.choice(words, 6)) + f", w{i}!" for i in range(num_rows)],
    }


def test_numbers_are_scaled_and_missing_ones_are_the_mean() -> None:
    features = fit({"a": [1.0, 3.0, None, 5.0]})
    expected = np.array([-2, 0, 0, 2]) / np.std([1, 3, 5])
    assert dense(features.x)[:, 0] == pytest.approx(expected)
    assert dense(features.x)[:, 1].tolist() == [0, 0, 1, 0]
    assert "Column 'a' has 1 missing value, taken as the mean; a feature says where." in features.messages


def test_a_few_missing_values_get_no_feature_of_their_own() -> None:
    features = fit({"a": [None, *range(199)]})
    assert features.recipe.feature_names == ["a"]
    assert dense(features.x)[0, 0] == 0


def test_dates_are_days_and_truth_values_zero_or_one() -> None:
    days = [date(2020, 1, 1), date(2020, 1, 3)]
    times = [datetime(2020, 1, 1, 12), datetime(2020, 1, 2, 12)]
    features = fit({"day": days, "time": times, "ok": [True, False]})
    assert dense(features.x).tolist() == [[-1, -1, 1], [1, 1, 0]]
    first, second = (column for column in features.recipe.columns[:2])
    assert isinstance(first, NumberColumn)
    assert isinstance(second, NumberColumn)
    assert (first.shift, second.shift) == (18263.0, 18263.0)


def test_categories_have_a_feature_each_and_single_ones_share_one() -> None:
    features = fit({"c": ["x", "y", "x", "y", "z", None, "w", "x", "x", "x"]})
    assert features.recipe.feature_names == ["c = x", "c = y", "c = other", "c is missing"]
    assert dense(features.x)[[0, 1, 4, 5, 6]].argmax(axis=1).tolist() == [0, 1, 2, 3, 2]
    assert dense(features.x).sum(axis=1).tolist() == [1.0] * 10


def test_bags_of_words_equal_those_of_scikit_learn() -> None:
    texts = mixed()["text"]
    features = fit({"text": texts})
    oracle = TfidfVectorizer(token_pattern=r"\w+", min_df=2)  # noqa: S106 - a pattern
    assert dense(features.x) == pytest.approx(oracle.fit_transform(texts).toarray(), abs=1e-6)
    assert features.recipe.feature_names == [f"text: {word}" for word in oracle.get_feature_names_out()]


def test_rows_are_taken_apart_in_groups_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit({"text": mixed()["text"]})
    monkeypatch.setattr("adagpr.data.tables.words._ROWS_AT_ONCE", 7)
    assert np.array_equal(dense(whole.x), dense(fit({"text": mixed()["text"]}).x))


def test_of_too_many_words_those_of_most_rows_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adagpr.data.tables.features.MAX_WORDS", 2)
    features = fit({"text": [f"b a c{i % 40} d{i}" + " e" * (i % 2) for i in range(80)]})
    assert features.recipe.feature_names == ["text: a", "text: b"]
    assert "Of column 'text' the 2 words of most rows are used and 41 are not." in features.messages


def test_words_are_runs_of_letters_and_digits_in_lower_case() -> None:
    tokens = tokenise(pa.array(["Ünï-code: x_1,2", "", None, "...!"], pa.large_string()))
    assert sorted(tokens.words[code] for code in tokens.codes) == ["2", "code", "x_1", "ünï"]
    assert tokens.rows.tolist() == [0, 0, 0, 0]


def test_a_declared_category_is_one_however_many_values_it_has() -> None:
    values = pa.array([f"v{i % 100}" for i in range(200)]).dictionary_encode()
    assert isinstance(fit({"c": values}).recipe.columns[0], CategoryColumn)
    assert isinstance(fit({"c": values.cast(pa.string())}).recipe.columns[0], TextColumn)


def test_numbers_that_are_declared_categories_are_categories() -> None:
    values = pa.array([3, 3, 7, 7]).dictionary_encode()
    recipe = fit({"c": values}).recipe
    assert recipe.feature_names == ["c = 3", "c = 7"]
    assert dense(recipe.apply({"c": values[1:3]})[0]).tolist() == [[1, 0], [0, 1]]


def test_a_recipe_goes_through_json_and_gives_the_same_features_of_other_rows() -> None:
    table = mixed()
    features = fit(table)
    assert {column.kind for column in features.recipe.columns} == {"number", "boolean", "category", "date", "text"}
    again = Recipe.from_plain(json.loads(json.dumps(features.recipe.to_plain(), allow_nan=False)))
    assert again == features.recipe
    picked = [5, 199, 1, 3, 7]
    x, unseen = again.apply({name: [values[i] for i in picked] for name, values in table.items()})
    assert np.array_equal(dense(x), dense(features.x)[picked])
    assert unseen.tolist() == [0] * 5


def test_a_text_file_at_prediction_is_read_as_training_was(tmp_path: Path) -> None:
    recipe = fit({"code": ["1", "2", "x"] * 4, "n": range(12)}).recipe
    (tmp_path / "new.csv").write_text("n,code\n3,1\n4,\n5,9\n")
    x, unseen = recipe.apply(tmp_path / "new.csv")
    assert dense(x)[:, :3].tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert unseen.tolist() == [0, 0, 1]


def test_numbers_taken_as_they_are_keep_every_bit_and_other_columns_go() -> None:
    values = np.random.default_rng(0).normal(size=50).astype(np.float32)
    features = fit({"b": values, "name": ["x"] * 50, "a": [True] * 50}, as_is=True)
    assert np.array_equal(dense(features.x), np.stack([values, np.ones(50, np.float32)], axis=1))
    assert "Column 'name' is left out: it holds no numbers." in features.messages


def test_columns_that_say_nothing_are_left_out() -> None:
    table = {
        "n": range(4),
        "one": [7] * 4,
        "yes": [True] * 4,
        "key": list("abcd"),
        "note": ["a b", "c d", "e f", "g h"],
    }
    features = fit(table)
    assert features.recipe.feature_names == ["n"]
    assert "Column 'one' is left out: it is the same on every row." in features.messages
    assert "Column 'key' is left out: every value differs." in features.messages
    assert "Column 'note' is left out: it is a text in which no word is in two rows." in features.messages


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ({"a": [1, 2], "b": [None, None]}, {}, "nodes, column 'b': every value is missing"),
        ({"a": [float("inf"), None]}, {"as_is": True}, "nodes, column 'a': every value is missing or infinite"),
        ({"a": [1, 1e308, -1e308]}, {}, "nodes, column 'a', row 2: the number is too large to be scaled"),
        ({"a": [1, 1e300]}, {"as_is": True}, "nodes, column 'a', row 2: the number is too large"),
        ({"a": [1, None, 1e300, -1e308]}, {"as_is": True}, "nodes, column 'a', row 3: the number is too large"),
        ({"a": ["x", "y"]}, {"as_is": True}, "nodes: no column is left to make features of. Column 'a' is left out"),
        ({"a": ["x", "y"]}, {"as_is": True, "asked": True}, "nodes, column 'a': no feature can be made of texts"),
        (
            {"a": [{"b": 1}] * 2},
            {"asked": True},
            "nodes, column 'a': no feature can be made of values of the type struct",
        ),
        ({"id": [1, 2]}, {}, "nodes: no column is left to make features of"),
    ],
)
def test_columns_that_cannot_be_used_are_errors(table: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(table, **options)


def test_a_word_among_numbers_is_named_by_its_row(tmp_path: Path) -> None:
    values = [str(i) for i in range(40)]
    values[16] = "many"
    (tmp_path / "t.csv").write_text("id,a\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values)))
    with pytest.raises(
        InputError, match=r"t\.csv, column 'a', row 17: 'many' is not a number, but 39 of the column's 40"
    ):
        fit(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": None}, "nodes: there is no column 'size', from which the model was trained"),
        (
            {"size": [None, "big"]},
            "nodes, column 'size', row 2: the value is 'big', but the model was trained on numbers",
        ),
        ({"ok": [1, 2]}, "nodes, column 'ok', row 1: the value is '1', but the model was trained on true and false"),
        ({"day": ["x", "y"]}, "nodes, column 'day', row 1: the value is 'x', but the model was trained on dates"),
        ({"city": [1, 2]}, "nodes, column 'city', row 1: the value is '1', but the model was trained on texts"),
        ({"size": [1.0, 1e308]}, "nodes, column 'size', row 2: the number is too large"),
    ],
)
def test_features_that_differ_from_training_are_errors(change: dict[str, Any], message: str) -> None:
    table = mixed()
    new = {name: values[:2] for name, values in table.items()} | change
    with pytest.raises(InputError, match=message):
        fit(table).recipe.apply({name: values for name, values in new.items() if values is not None})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "recipe: columns is missing"),
        ({"version": 2, "columns": []}, "recipe: version"),
        ({"columns": [{"kind": "text", "name": "a", "words": ["x"], "idf": []}]}, "words and weights of column 'a'"),
        ({"columns": [{"kind": "what"}]}, "recipe: columns"),
    ],
)
def test_a_broken_recipe_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe.from_plain(content)
