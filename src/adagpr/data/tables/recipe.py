"""How the columns of a table become features: plain data that is saved with a model and applied again at prediction.

================  =====================================================================================================
number, date      scaled to mean 0 and deviation 1 (dates as days); a missing value is the mean
boolean           0 or 1; a missing value is the share of ones
as is             a number as it is; a missing value is the mean, or an error where no value was missing in training
vector            a list of numbers of one length, one column for each, as they are; a missing value is an error
scaled vector     the same, each position scaled as a number is
category          one column for each value that two nodes or more have, one for the others, one for missing values
text              a bag of words, weighted by how rare each word is; see `adagpr.data.tables.words`
================  =====================================================================================================

Numbers, dates and truth values have one more column that says where the value is missing, if that is often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from pydantic import Field
from torch import Tensor

from adagpr.arguments import Finite, Positive, Strict, check
from adagpr.data.tables.file import TableFile
from adagpr.data.tables.table import TableData, read_table
from adagpr.data.tables.values import flags, is_number_text, kind_of_type, places_in, pluralize
from adagpr.data.tables.words import tfidf, tokenise
from adagpr.errors import InputError
from adagpr.graph import compact_features

_DAYS_OF_UNIT = {"s": 86400.0, "ms": 86400e3, "us": 86400e6, "ns": 86400e9}
# What each kind of column can be made of, and how to call that.
_FITTING = {
    "number": (("whole", "real"), "numbers"),
    "as is": (("whole", "real", "boolean"), "numbers"),
    "date": (("date",), "dates"),
    "boolean": (("boolean",), "true and false"),
    "category": (("text",), "texts"),
    "text": (("text",), "texts"),
    "vector": (("other",), "lists of numbers"),
    "scaled vector": (("other",), "lists of numbers"),
}


class NumberColumn(Strict):
    """A column of numbers, dates or truth values: ``(value - shift) / scale``.

    A missing value counts as ``fill`` before scaling, or is an error where that is none; a second feature says where
    values are missing if ``has_missing``.
    """

    name: str
    kind: Literal["number", "date", "boolean", "as is"]
    shift: Finite
    scale: Positive
    fill: Finite | None
    has_missing: bool

    @property
    def feature_names(self) -> list[str]:
        """Names of the features made of the column."""
        return [self.name, f"{self.name} is missing"] if self.has_missing else [self.name]

    def block(self, table: TableData) -> np.ndarray:
        """The features of a table's rows."""
        numbers = numbers_of(table, self.name)
        missing = ~np.isfinite(numbers)
        if self.fill is None:
            table.refuse(self.name, np.isinf(numbers), "the number is infinite.")
            table.refuse(self.name, missing, "the value is missing.")
        with np.errstate(over="ignore"):
            known = numbers if self.fill is None else np.where(missing, self.fill, numbers)
            is_scaled = (self.shift, self.scale) != (0.0, 1.0)
            scaled = ((known - self.shift) / self.scale if is_scaled else known).astype(np.float32)
        table.refuse(self.name, ~np.isfinite(scaled), "the number is too large.")
        return np.stack([scaled, missing.astype(np.float32)], axis=1) if self.has_missing else scaled[:, None]


class CategoryColumn(Strict):
    """A column with few different values: one feature each, but one for all that are rare or were never seen."""

    name: str
    kind: Literal["category"] = "category"
    categories: tuple[str, ...]
    rare: tuple[str, ...]
    has_missing: bool

    @property
    def feature_names(self) -> list[str]:
        """Names of the features made of the column."""
        names = [f"{self.name} = {value}" for value in self.categories]
        names += [f"{self.name} = other"] if self.rare else []
        return names + ([f"{self.name} is missing"] if self.has_missing else [])

    def codes(self, table: TableData) -> np.ndarray:
        """The place of each row's value among those of training, -1 where it was never seen, -2 where it is missing."""
        known, texts = pa.array([*self.categories, *self.rare], pa.large_string()), table.texts(self.name)
        return np.where(flags(texts.is_null()), -2, places_in(known, texts))

    def block(self, table: TableData) -> sp.csr_array:
        """The features of a table's rows."""
        codes, num_categories = self.codes(table), len(self.categories)
        other = num_categories if self.rare else -1
        columns = np.where((codes == -1) | (codes >= num_categories), other, codes)
        columns[codes == -2] = len(self.feature_names) - 1 if self.has_missing else -1
        rows = np.flatnonzero(columns >= 0)
        entries = (np.ones(len(rows), dtype=np.float32), (rows, columns[rows]))
        return sp.csr_array(entries, shape=(len(table), len(self.feature_names)))


class TextColumn(Strict):
    """A column of texts as a bag of words; ``idf`` is the weight of each word of the vocabulary."""

    name: str
    kind: Literal["text"] = "text"
    words: tuple[str, ...]
    idf: tuple[Finite, ...]

    @property
    def feature_names(self) -> list[str]:
        """Names of the features made of the column."""
        return [f"{self.name}: {word}" for word in self.words]

    def block(self, table: TableData) -> sp.csr_array:
        """The features of a table's rows."""
        return tfidf(tokenise(table.texts(self.name)), self.words, self.idf)


class VectorColumn(Strict):
    """A column of lists of ``size`` numbers, as they are."""

    name: str
    kind: Literal["vector"] = "vector"
    size: Annotated[int, Field(ge=1)]

    @property
    def feature_names(self) -> list[str]:
        """Names of the features made of the column."""
        return [f"{self.name}[{number}]" for number in range(self.size)]

    def block(self, table: TableData) -> np.ndarray:
        """The features of a table's rows."""
        return self._numbers(table).astype(np.float32)

    def _numbers(self, table: TableData) -> np.ndarray:
        """The numbers of a table's rows, all of them finite in float32."""
        _, reason = lists_in_block(table, self.name, self.size)
        if reason:
            raise InputError(f"{table.where(self.name)}, {reason}.")
        return _flat_numbers(table.values(self.name)).reshape(-1, self.size)


class ScaledVectorColumn(VectorColumn):
    """A column of lists of numbers of which each position is ``(value - shift) / scale``."""

    kind: Literal["scaled vector"] = "scaled vector"  # type: ignore[assignment]
    shift: tuple[Finite, ...]
    scale: tuple[Positive, ...]

    @classmethod
    def fitted(cls, table: TableData, name: str, size: int) -> ScaledVectorColumn:
        """The column with the mean and deviation of each position; one that never changes becomes 0."""
        numbers = VectorColumn(name=name, size=size)._numbers(table)
        shift, scale = [], []
        for position in range(size):
            known = numbers[:, position].astype(np.float64)
            is_same = known.min() == known.max() or known.std() == 0
            shift.append(float(known[0] if is_same else known.mean()))
            scale.append(1.0 if is_same else float(known.std()))
        return cls(name=name, size=size, shift=tuple(shift), scale=tuple(scale))

    def block(self, table: TableData) -> np.ndarray:
        """The features of a table's rows."""
        numbers = self._numbers(table)
        x = np.empty(numbers.shape, dtype=np.float32)
        with np.errstate(over="ignore"):
            for position, (shift, scale) in enumerate(zip(self.shift, self.scale, strict=True)):
                x[:, position] = (numbers[:, position].astype(np.float64) - shift) / scale
        table.refuse(self.name, np.asarray(~np.isfinite(x).all(axis=1)), "a number of the list is too large.")
        return x


Column = Annotated[
    NumberColumn | CategoryColumn | TextColumn | VectorColumn | ScaledVectorColumn, Field(discriminator="kind")
]


class Recipe(Strict):
    """How features were made of a table's columns, one entry for each that is used, in the order of the features."""

    version: Literal[1] = 1
    columns: tuple[Column, ...]

    @property
    def feature_names(self) -> list[str]:
        """Names of all features."""
        return [name for column in self.columns for name in column.feature_names]

    def to_plain(self) -> dict[str, Any]:
        """The recipe as plain data for JSON."""
        return self.model_dump(mode="json")

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Recipe:
        """The recipe that `to_plain` gave; anything else is an `InputError`."""
        recipe = check("recipe", cls, content)
        for column in recipe.columns:
            if isinstance(column, TextColumn) and len(column.words) != len(column.idf):
                raise InputError(f"recipe: the words and weights of column '{column.name}' are not equally many.")
            if isinstance(column, ScaledVectorColumn) and {len(column.shift), len(column.scale)} != {column.size}:
                raise InputError(
                    f"recipe: column '{column.name}' is not scaled for each of its {column.size} positions."
                )
        return recipe

    def apply(self, table: Any) -> tuple[Tensor | sp.csr_array, np.ndarray]:
        """The features of other rows, and for each row in how many columns it has a category that was never seen.

        The table is anything that `read_table` reads; columns beyond those of the recipe are not used.
        """
        table = read_table(table, "nodes")
        blocks: list[np.ndarray | sp.csr_array] = []
        num_unseen = np.zeros(len(table), dtype=np.int64)
        for column in self.columns:
            _check_column(column, table)
            blocks.append(column.block(table))
            if isinstance(column, CategoryColumn):
                num_unseen += column.codes(table) == -1
        return join_blocks(blocks), num_unseen


def is_list(kind: Any) -> bool:
    """Whether values of an Arrow type are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def list_size(table: TableData | TableFile, column: str) -> tuple[int, str]:
    """How many numbers each list of a column holds, or 0 and the row that says otherwise; 0 for what are no lists."""
    size, reason = 0, ""
    if is_list(table.type_of(column)):
        for block in table.blocks([column]):
            size, reason = lists_in_block(block, column, size)
            if reason:
                return 0, reason
    return size, reason


def lists_in_block(table: TableData, column: str, size: int) -> tuple[int, str]:
    """The length of a block's lists, ``size`` if that is known, and what is odd in the first odd row, if one is."""
    lists = table.values(column)
    missing = flags(lists.is_null())
    first = table.first(~missing) if not missing.all() else 0
    if not is_list(lists.type) or kind_of_type(lists.type.value_type) not in ("whole", "real", "boolean"):
        return 0, f"row {table.rows[first]}: the list holds no numbers"
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    size = size or int(lengths[first])
    with np.errstate(over="ignore"):
        odd = ~np.isfinite(_flat_numbers(lists).astype(np.float32))
    has_odd = np.zeros(len(table), dtype=bool)
    if odd.any():
        has_odd[pc.list_parent_indices(lists).to_numpy()[odd]] = True
    is_odd = missing | (lengths != size) | (lengths == 0) | has_odd
    if not is_odd.any():
        return size, ""
    at = table.first(is_odd)
    reason = f"the list has {pluralize(int(lengths[at]), 'value')}, not {size}"
    if missing[at] or lengths[at] == 0:
        reason = "the list is missing" if missing[at] else "the list is empty"
    elif has_odd[at]:
        reason = "a number of the list is missing, infinite or too large"
    return size, f"row {table.rows[at]}: {reason}"


def _flat_numbers(lists: Any) -> np.ndarray:
    """The numbers of all lists in one row, NaN where they are missing."""
    values = lists.flatten()
    if not pa.types.is_float32(values.type):
        values = values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
        values = pc.cast(values, pa.float64(), safe=False)
    found: np.ndarray = values.to_numpy(zero_copy_only=False)
    return found


def numbers_of(table: TableData, column: str) -> np.ndarray:
    """A column of numbers, dates or truth values as float64, NaN where it is missing."""
    values = table.values(column)
    kind = values.type
    days = 1.0
    if table.kind(column) == "missing":
        return np.full(len(table), np.nan)
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        values, days = values.cast(pa.int64()), _DAYS_OF_UNIT[getattr(kind, "unit", "ms")]
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    numbers = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(numbers if days == 1.0 else numbers / days)


def infinite_messages(table: TableData | TableFile, column: str) -> list[str]:
    """A sentence on the infinite numbers of a column, if there are some."""
    firsts, count = [], 0
    for block in table.blocks([column]) if table.kind(column) == "real" else ():
        infinite = np.isinf(numbers_of(block, column))
        count += int(infinite.sum())
        firsts += [block.rows[block.first(infinite)]] if infinite.any() else []
    if not firsts:
        return []
    found = pluralize(count, "infinite number")
    return [f"Column '{column}' has {found}, taken as missing, the first in row {min(firsts)}."]


def join_blocks(blocks: Sequence[np.ndarray | sp.csr_array]) -> Tensor | sp.csr_array:
    """Features side by side as float32, sparse where that is smaller."""
    if all(isinstance(block, np.ndarray) for block in blocks):
        return compact_features(np.concatenate(blocks, axis=1))
    return compact_features(sp.hstack([sp.csr_array(block) for block in blocks], format="csr"))


def _check_column(column: Column, table: TableData) -> None:
    """Raises an `InputError` unless a column is there and holds what it held in training."""
    name = column.name
    if name not in table.columns:
        raise InputError(f"{table.name}: there is no column '{name}', from which the model was trained.")
    kinds, expected = _FITTING[column.kind]
    # A text file does not say whether 7 is a number or a code; what it was in training decides.
    is_open = kinds == ("text",) and (table.is_text or name in table.categorical)
    if table.kind(name) in (*kinds, "missing") or is_open:
        return
    odd = ~table.missing(name)
    if table.kind(name) == "text" and expected == "numbers":
        words = odd & ~is_number_text(table.values(name))
        odd = words if words.any() else odd
    table.refuse(name, odd, f"the value is {{}}, but the model was trained on {expected}.", table.values(name))
