"""A user's table in memory, whatever it comes in: a file, an Arrow table, a data frame or a dictionary.

All become a `TableData`: columns by name, and for each row the number that it has in its source, so that an error can
name it. Rows are counted from 1, in a text file from the first below the header.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from adagpr.data.tables.values import (
    Kind,
    as_texts,
    flags,
    is_number_text,
    kind_of_type,
    plain,
    quoted,
    typed,
    with_points,
    without_missing_words,
    without_views,
)
from adagpr.errors import InputError, reason_of, unknown_name

_NUM_SHOWN = 20
# What pandas calls the column of an index without a name.
_NAMELESS = ("", "__index_level_0__")


class Named:
    """What tables in memory and in files share: a name, and columns with names."""

    name: str
    names: Any
    type_of: Callable[[str], Any]
    # How a text file was read, if that is not what its ending says.
    look: Any

    def kind(self, column: str) -> Kind:
        """What a column holds."""
        return kind_of_type(self.type_of(column))

    def require(self, *columns: str | None) -> None:
        """Raises an `InputError` that offers the nearest name if one of the columns is missing; ``None`` is ignored."""
        for column in columns:
            if column is None or column in self.names:
                continue
            error = str(unknown_name("column", column, self.names))
            if len(self.names) > _NUM_SHOWN and "Did you mean" not in error:
                shown = ", ".join(self.names[:_NUM_SHOWN])
                error = f"Unknown column '{column}'. Known: {shown} and {len(self.names) - _NUM_SHOWN} more."
            raise InputError(f"{self.name}: {error}")


@dataclass(frozen=True, eq=False)
class TableData(Named):
    """A table, or some rows of one, whose columns get their type when they are first looked at."""

    name: str
    columns: Mapping[str, Any]
    # Number of each row in the source, from 1.
    rows: np.ndarray
    # Whether the columns are texts whose type is still to be found.
    is_text: bool = False
    # Columns that have no name in the source, such as the index of a data frame, and those that it calls categories.
    nameless: frozenset[str] = frozenset()
    categorical: frozenset[str] = frozenset()
    # Types of the columns of a text file, as far as they are known from all of its rows.
    types: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # How a text file was read, and its columns with decimal commas.
    look: str = ""
    commas: frozenset[str] = frozenset()
    # Whether there are more rows than these.
    is_part: bool = False
    _typed: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> list[str]:
        """Names of the columns in the order of the source."""
        return list(self.columns)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self)

    def blocks(self, columns: Iterable[str] = (), rows: int = 0) -> Iterator[TableData]:
        """The table in one piece; see `adagpr.data.tables.file.TableFile.blocks`."""
        yield self

    def values(self, column: str) -> Any:
        """A column as an Arrow array in one of the forms of `adagpr.data.tables.values`, missing values as nulls."""
        if column not in self._typed:
            raw = with_points(self.columns[column]) if column in self.commas else self.columns[column]
            self._typed[column] = typed(raw, self.types.get(column)) if self.is_text else self._plain(column)
        return self._typed[column]

    def texts(self, column: str) -> Any:
        """A column as texts: as they are in a text file, else written out."""
        is_as_written = not self.is_text or self.kind(column) == "text"
        return as_texts(self.values(column)) if is_as_written else without_missing_words(self.columns[column])

    def type_of(self, column: str) -> Any:
        """The Arrow type of a column, the null type for one without a value."""
        values = self.values(column)
        return pa.null() if values.null_count == len(values) else values.type

    def number_count(self, column: str) -> NumberCount:
        """How many values of a column of a text file are numbers."""
        count = NumberCount()
        count.add(self, column)
        return count

    def missing(self, column: str) -> np.ndarray:
        """Which rows of a column have no value."""
        return flags(self.values(column).is_null())

    def where(self, column: str, position: int | None = None) -> str:
        """A place for errors, such as ``nodes.csv, column 'age', row 17``."""
        row = "" if position is None else f", row {self.rows[position]}"
        return f"{self.name}, column '{column}'{row}"

    def first(self, is_odd: np.ndarray) -> int:
        """Position of the marked row that comes first in the source."""
        positions = np.flatnonzero(is_odd)
        return int(positions[np.argmin(self.rows[positions])])

    def refuse(self, column: str, is_odd: np.ndarray, reason: str, shown: Any = None) -> None:
        """Raises an `InputError` if a row is odd; ``{}`` in the reason becomes the first such value of ``shown``."""
        if is_odd.any():
            position = self.first(is_odd)
            value = None if shown is None else shown[position]
            got = f"{value:g}" if isinstance(value, float) else quoted(value)
            raise InputError(f"{self.where(column, position)}: {reason.format(got)}")

    def take(self, order: np.ndarray) -> TableData:
        """The same table with its rows in another order."""
        index = pa.array(order)
        columns = {name: values.take(index) for name, values in self.columns.items()}
        known = {name: values.take(index) for name, values in self._typed.items()}
        return replace(self, columns=columns, rows=self.rows[order], _typed=known)

    def _plain(self, column: str) -> Any:
        try:
            return plain(self.columns[column])
        except (pa.ArrowException, ValueError) as error:
            values = self.columns[column]
            is_bytes = "UTF8" in str(error) or "UTF-8" in str(error)
            reason = "bytes that are not UTF-8" if is_bytes else f"values of the type {values.type} that cannot be used"
            position = _first_failing(values)
            raise InputError(f"{self.where(column, position)}: there are {reason}.") from error


@dataclass
class NumberCount:
    """How many known values of a text file's column are numbers, and row and text of the first that is not."""

    num_known: int = 0
    num_numbers: int = 0
    word: tuple[int, str] | None = None

    def add(self, block: TableData, column: str) -> None:
        """Counts the values of a block."""
        kind, is_known = block.kind(column), ~block.missing(column)
        is_number = is_number_text(block.values(column)) if kind == "text" else is_known & (kind in ("whole", "real"))
        self.num_known += int(is_known.sum())
        self.num_numbers += int(is_number.sum())
        if (is_known & ~is_number).any():
            first = block.first(is_known & ~is_number)
            if self.word is None or block.rows[first] < self.word[0]:
                self.word = int(block.rows[first]), block.texts(column)[first].as_py()


def _first_failing(values: Any) -> int | None:
    """Position of the first value that `plain` fails on."""

    def fails(end: int) -> bool:
        try:
            plain(values.slice(0, end))
        except (pa.ArrowException, ValueError):
            return True
        return False

    return bisect_left(range(1, len(values)), True, key=fails) if len(values) else None


def read_table(source: Any, what: str, may_be_empty: bool = False) -> TableData:
    """Reads a file, an Arrow table, a data frame, anything that gives Arrow's data, or a dictionary of columns.

    In errors it is called ``what`` unless it is a file; a header without rows is refused unless it ``may_be_empty``.
    """
    if isinstance(source, TableData):
        return source
    if isinstance(source, (str, os.PathLike)):
        from adagpr.data.tables.file import TableFile

        return TableFile(source).read(may_be_empty)
    try:
        columns = _from_object(source, what)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what}: cannot be read as a table ({reason_of(error)}).") from error
    names, nameless = checked_names([name for name, _ in columns], what)
    return table_of(what, dict(zip(names, (values for _, values in columns), strict=True)), nameless, may_be_empty)


def checked_names(names: Sequence[str], table: str) -> tuple[list[str], frozenset[str]]:
    """The names of a table's columns on one line each, and those of columns that have none in the source."""
    found: dict[str, None] = {}  # in order, and quick to look up
    nameless = set()
    for number, column in enumerate(names, start=1):
        column = "".join(letter if letter.isprintable() else " " for letter in column)
        if column in _NAMELESS:
            column = f"column {number}"
            nameless.add(column)
        if column in found:
            raise InputError(f"{table}: two columns are called '{column}'; give each its own name.")
        found[column] = None
    if not found:
        raise InputError(f"{table}: there are no columns.")
    return list(found), frozenset(nameless)


def table_of(
    name: str, columns: Mapping[str, Any], nameless: frozenset[str], may_be_empty: bool, is_text: bool = False
) -> TableData:
    """The table of some arrays, once they are known to be equally long."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"{name}: the columns have {min(lengths)} to {max(lengths)} rows; they must be equally long.")
    (num_rows,) = lengths
    if num_rows == 0 and not may_be_empty:
        raise InputError(f"{name}: there are columns but no rows.")
    named = {column: without_views(values) for column, values in columns.items()}
    categorical = frozenset(column for column, values in named.items() if pa.types.is_dictionary(values.type))
    return TableData(name, named, np.arange(1, num_rows + 1), is_text, nameless, categorical)


def checked_arrays(table: Any) -> list[Any]:
    """The columns of an Arrow table, once its offsets are known to stay within its buffers."""
    table.validate()
    columns = []
    for values in table.columns:
        # Bytes that are no text are left for the column that uses them, where the row can be named.
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            values = values.cast(pa.large_binary())
        for chunk in values.chunks:
            chunk.validate(full=True)
        columns.append(values.combine_chunks() if values.num_chunks != 1 else values.chunk(0))
    return columns


def _from_object(source: Any, what: str) -> list[tuple[str, Any]]:
    """The columns of a table in memory."""
    if isinstance(source, Mapping):
        return [(str(name), _array(values, f"{what}, column '{name}'")) for name, values in source.items()]
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    elif type(source).__module__.partition(".")[0] == "pandas":
        source = pa.Table.from_pandas(source)
    elif hasattr(source, "__arrow_c_stream__"):
        source = pa.table(source)
    elif hasattr(source, "to_arrow"):
        source = source.to_arrow()
    if not isinstance(source, pa.Table):
        raise InputError(
            f"{what}: must be the path of a file, an Arrow table, a data frame or a dictionary of columns, "
            f"got {type(source).__name__}."
        )
    return list(zip(source.column_names, checked_arrays(source), strict=True))


def _array(values: Any, where: str) -> Any:
    """A column of a dictionary as an Arrow array; values of different types are an error that names the first."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise InputError(f"{where}: must be a list of values, got {type(values).__name__}.")
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError) as error:
        known = [(row, value) for row, value in enumerate(values, start=1) if value is not None]
        row, value = next(((r, v) for r, v in known if type(v) is not type(known[0][1])), known[0])
        raise InputError(
            f"{where}, row {row}: a value of the type {type(value).__name__} among values of the type "
            f"{type(known[0][1]).__name__}."
        ) from error
