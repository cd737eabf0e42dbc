"""Finds the recipe for a table's columns: what each holds, and what scaling, categories and words it needs.

Only features are looked at, never labels, and of all rows. The rows come in the order of the node ids, so that a table
in another order gives the same recipe to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from torch import Tensor

from adagpr.data.tables.file import SURVEY_ROWS, TableFile
from adagpr.data.tables.recipe import (
    CategoryColumn,
    Column,
    NumberColumn,
    Recipe,
    ScaledVectorColumn,
    TextColumn,
    VectorColumn,
    infinite_messages,
    join_blocks,
    list_size,
    numbers_of,
)
from adagpr.data.tables.table import TableData
from adagpr.data.tables.values import MEANT_NUMBERS, Kind, kind_of_type, pluralize, quoted
from adagpr.data.tables.words import choose_words, tfidf, tokenise
from adagpr.errors import InputError

_Kind = Literal["number", "date", "boolean", "category", "text", "other"]
# A column of the recipe with its features, or why there are none.
_Found = tuple[Column, np.ndarray | sp.csr_array] | str

# A column of texts with more different values is a text, unless the table itself calls it categories.
MAX_CATEGORIES = 64
MAX_DECLARED_CATEGORIES = 1024
# Words of one column, and of all columns together as long as that leaves each enough.
MAX_WORDS = 4096
MAX_WORDS_IN_ALL = 8192
MIN_WORDS = 256
# From this share of missing values on, a feature says where they are.
_MANY_MISSING = 0.01
_NUM_NAMES = 5
# A table may have a hundred thousand columns; beyond so many sentences on them the others are counted.
_MOST_MESSAGES = 20


@dataclass(eq=False)
class Features:
    """What was made of a table, how to make it again, and what a person should know, one sentence each."""

    recipe: Recipe
    x: Tensor | sp.csr_array
    messages: tuple[str, ...]


def fit_recipe(table: TableData, columns: Sequence[str], *, as_is: bool = False, asked: bool = False) -> Features:
    """Makes features of columns and keeps how it was done.

    With ``as_is`` numbers are taken as they are and all else is left out. If the caller ``asked`` for the columns, one
    that cannot be used is an error.
    """
    if as_is:
        vectors, messages = as_is_columns(table, columns, asked)
        x = join_blocks([entry.block(table) for entry in vectors])
        return Features(Recipe(columns=tuple(vectors)), x, tuple(messages))
    kinds = {column: _checked_kind(table, column, asked) for column in columns}
    num_texts = sum(kind == "text" for kind in kinds.values())
    max_words = min(MAX_WORDS, max(MIN_WORDS, MAX_WORDS_IN_ALL // max(num_texts, 1)))
    entries: list[Column] = []
    blocks: list[np.ndarray | sp.csr_array] = []
    messages = []
    for column, kind in kinds.items():
        if kind == "other":
            found: _Found = _lists(table, column, asked)
        elif kind == "category":
            found = _category(table, column, messages)
        elif kind == "text":
            found = _text(table, column, max_words, messages)
        else:
            found = _number(table, column, kind, messages)
        if isinstance(found, str):
            messages.append(f"Column '{column}' is left out: {found}.")
        else:
            entries.append(found[0])
            blocks.append(found[1])
    if not entries:
        raise _nothing_left(table, messages)
    return Features(Recipe(columns=tuple(entries)), join_blocks(blocks), (_summary(entries), *_shortened(messages)))


def as_is_columns(
    table: TableData | TableFile, columns: Sequence[str], asked: bool
) -> tuple[list[NumberColumn | VectorColumn], list[str]]:
    """What is made of columns whose numbers are taken as they are, and sentences on it, the first one in short."""
    entries: list[NumberColumn | VectorColumn] = []
    messages: list[str] = []
    kinds = {column: _known_kind(table, column) for column in columns}
    unknown = _num_unknown(table, [column for column, kind in kinds.items() if kind in ("whole", "real", "boolean")])
    for column in columns:
        of = table.type_of(column)
        # Where the type says the length, a row without a list is an error.
        is_fixed = pa.types.is_fixed_size_list(of) and kind_of_type(of.value_type) in ("whole", "real", "boolean")
        size, reason = (of.list_size, "") if is_fixed else list_size(table, column)
        if column in unknown:
            entries.append(_as_is_number(table, column, *unknown[column], messages))
        elif size:
            entries.append(VectorColumn(name=column, size=size))
        elif asked:
            raise _nothing_made(table, column, reason)
        else:
            messages.append(f"Column '{column}' is left out: {reason or 'it holds no numbers'}.")
    if not entries:
        raise _nothing_left(table, messages)
    return entries, [_summary(entries), *_shortened(messages)]


def _num_unknown(table: TableData | TableFile, columns: Sequence[str]) -> dict[str, tuple[int, int]]:
    """How many values of columns of numbers are missing or infinite, and how many there are."""
    num_unknown, num_rows = dict.fromkeys(columns, 0), 0
    for block in table.blocks(columns, SURVEY_ROWS) if columns else ():
        num_rows += len(block)
        for column in columns:
            num_unknown[column] += int((~np.isfinite(numbers_of(block, column))).sum())
    return {column: (number, num_rows) for column, number in num_unknown.items()}


def _as_is_number(
    table: TableData | TableFile, column: str, num_unknown: int, num_rows: int, messages: list[str]
) -> NumberColumn:
    """A column of numbers as they are; what is missing is the mean, the same to the bit for every order of the rows."""
    fill, has_missing = None, num_unknown > _MANY_MISSING * num_rows
    if num_unknown:
        messages += infinite_messages(table, column)
        if num_unknown == num_rows:
            raise _all_missing(table, column, "missing or infinite")
        fill = math.fsum(_finite(table, column)) / (num_rows - num_unknown)
        messages.append(_missing_message(column, num_unknown, has_missing))
    return NumberColumn(name=column, kind="as is", shift=0.0, scale=1.0, fill=fill, has_missing=has_missing)


def _finite(table: TableData | TableFile, column: str) -> Iterator[float]:
    """The finite numbers of a column; one that is too large for a feature is an error before it is part of a sum."""
    for block in table.blocks([column]):
        numbers = numbers_of(block, column)
        is_finite = np.isfinite(numbers)
        block.refuse(column, is_finite & (np.abs(numbers) > np.finfo(np.float32).max), "the number is too large.")
        yield from numbers[is_finite].tolist()


def _missing_message(column: str, num_missing: int, has_missing: bool) -> str:
    where = "; a feature says where" if has_missing else ""
    return f"Column '{column}' has {pluralize(num_missing, 'missing value')}, taken as the mean{where}."


def _known_kind(table: TableData | TableFile, column: str) -> Kind:
    """What a column holds; one that holds nothing, or mixes numbers and words, is an error."""
    kind = table.kind(column)
    if kind == "missing":
        raise _all_missing(table, column, "missing")
    if kind == "text" and table.is_text:
        count = table.number_count(column)
        if count.word is not None and MEANT_NUMBERS * count.num_known < count.num_numbers < count.num_known:
            raise InputError(
                f"{table.where(column)}, row {count.word[0]}: {quoted(count.word[1])} is not a number, but "
                f"{count.num_numbers} of the column's {count.num_known} values are."
            )
    return kind


def _checked_kind(table: TableData, column: str, asked: bool) -> _Kind:
    """What to make of a column."""
    kind = _known_kind(table, column)
    if kind == "other" or kind == "boolean" or kind == "date":
        return kind
    is_number = kind in ("whole", "real") and column not in table.categorical
    return "number" if is_number else _text_or_category(table, column)


def _all_missing(table: TableData | TableFile, column: str, what: str) -> InputError:
    return InputError(
        f"{table.where(column)}: every value is {what}; remove the column, or name those to use as features."
    )


def _nothing_made(table: TableData | TableFile, column: str, reason: str) -> InputError:
    if reason:
        return InputError(f"{table.where(column)}, {reason}.")
    return InputError(f"{table.where(column)}: no feature can be made of {_type(table, column)}.")


def _shortened(messages: Sequence[str]) -> list[str]:
    more = len(messages) - _MOST_MESSAGES
    return [*messages[:_MOST_MESSAGES], *([f"There are {more} more sentences like these."] if more > 0 else [])]


def _nothing_left(table: TableData | TableFile, messages: Sequence[str]) -> InputError:
    reasons = " ".join(_shortened(messages)) or "There are none beside ids and labels."
    return InputError(f"{table.name}: no column is left to make features of. {reasons}")


def _type(table: TableData | TableFile, column: str) -> str:
    return "texts" if table.kind(column) == "text" else f"values of the type {table.type_of(column)}"


def _text_or_category(table: TableData, column: str) -> Literal["category", "text"]:
    """Few values that return are categories, all else is text."""
    values = table.values(column)
    num_known, num_values = len(values) - values.null_count, pc.count_distinct(values).as_py()
    if column in table.categorical and num_values <= MAX_DECLARED_CATEGORIES:
        return "category"
    if num_values > MAX_CATEGORIES:
        return "text"
    if 2 * num_values <= num_known:
        return "category"
    return "text" if pc.mean(pc.count_substring(table.texts(column), " ")).as_py() >= 1 else "category"


def _number(table: TableData, column: str, kind: Literal["number", "date", "boolean"], messages: list[str]) -> _Found:
    numbers = numbers_of(table, column)
    known = numbers[np.isfinite(numbers)]
    messages += infinite_messages(table, column)
    if len(known) == 0:
        raise _all_missing(table, column, "missing or infinite")
    num_missing = len(numbers) - len(known)
    has_missing = num_missing > _MANY_MISSING * len(numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(known.mean()), float(known.std())
    if not (np.isfinite(mean) and np.isfinite(deviation)):
        table.refuse(column, np.abs(numbers) == np.abs(known).max(), "the number is too large to be scaled.")
    if num_missing:
        messages.append(_missing_message(column, num_missing, has_missing))
    if known.min() == known.max() or deviation == 0:
        if not has_missing:
            return "it is the same on every row"
        deviation = 1.0
    shift, scale = (0.0, 1.0) if kind == "boolean" else (mean, deviation)
    entry = NumberColumn(name=column, kind=kind, shift=shift, scale=scale, fill=mean, has_missing=has_missing)
    return entry, entry.block(table)


def _lists(table: TableData, column: str, asked: bool) -> _Found:
    size, reason = list_size(table, column)
    if size == 0 and asked:
        raise _nothing_made(table, column, reason)
    if size == 0:
        return reason or f"nothing is made of {_type(table, column)}"
    entry = ScaledVectorColumn.fitted(table, column, size)
    x = entry.block(table)
    return (entry, x) if x.any() else "it is the same on every row"


def _category(table: TableData, column: str, messages: list[str]) -> _Found:
    values = table.texts(column)
    found = pc.value_counts(values.drop_null()).to_pylist()
    categories = sorted(item["values"] for item in found if item["counts"] > 1)
    rare = sorted(item["values"] for item in found if item["counts"] == 1)
    num_missing = values.null_count
    entry = CategoryColumn(name=column, categories=tuple(categories), rare=tuple(rare), has_missing=bool(num_missing))
    if len(entry.feature_names) < 2:
        return "every value differs" if rare else "it is the same on every row"
    if num_missing:
        messages.append(f"Column '{column}' has {pluralize(num_missing, 'missing value')}, taken as a category.")
    if rare:
        values_once = pluralize(len(rare), "value")
        messages.append(f"Column '{column}' has {values_once} of one row only, counted as one category.")
    return entry, entry.block(table)


def _text(table: TableData, column: str, max_words: int, messages: list[str]) -> _Found:
    values = table.texts(column)
    tokens = tokenise(values)
    words, idf, num_left = choose_words(tokens, max_words)
    if not words:
        return "it is a text in which no word is in two rows"
    if values.null_count:
        messages.append(f"Column '{column}' has {pluralize(values.null_count, 'missing text')}, taken as empty.")
    if num_left:
        messages.append(f"Of column '{column}' the {len(words)} words of most rows are used and {num_left} are not.")
    return TextColumn(name=column, words=tuple(words), idf=tuple(idf)), tfidf(tokens, words, idf)


_NOUNS = {
    "number": "numbers, scaled",
    "as is": "numbers as they are",
    "vector": "lists of numbers as they are",
    "scaled vector": "lists of numbers, scaled",
    "date": "dates as days, scaled",
    "boolean": "truth values",
    "category": "categories, a feature each",
    "text": "texts as words",
}


def _summary(columns: Sequence[Any]) -> str:
    """One sentence on what the features are."""
    parts = []
    for kind, noun in _NOUNS.items():
        own = [column for column in columns if column.kind == kind]
        if own:
            names = ", ".join(column.name for column in own[:_NUM_NAMES])
            more = f" and {len(own) - _NUM_NAMES} more" if len(own) > _NUM_NAMES else ""
            parts.append(f"{noun} ({names}{more})")
    num_features = sum(len(column.feature_names) for column in columns)
    return f"{pluralize(num_features, 'feature')} from {pluralize(len(columns), 'column')}: {'; '.join(parts)}."
