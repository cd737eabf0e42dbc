"""A user's table, whatever it comes in: a text file, Parquet, Feather, Arrow, a data frame or a dictionary.

All become a `TableData`: columns by name, and for each row the number that it has in its source, so that an error can
name it. Rows are counted from 1, in a text file from the first below the header.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from adagpr.data.tables.delimited import read_delimited
from adagpr.data.tables.values import Kind, as_texts, kind_of, plain, typed, without_missing_words, without_views
from adagpr.errors import InputError, unknown_name

__all__ = ["TableData", "read_sheet"]

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PARQUET = (".parquet", ".pq")
_ARROW = (".feather", ".arrow", ".ipc")
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_ENDINGS = (*_DELIMITERS, *_PARQUET, *_ARROW)
_NUM_SHOWN = 20
# What pandas calls the column of an index without a name.
_NAMELESS = ("", "__index_level_0__")


@dataclass(frozen=True, eq=False)
class TableData:
    """A table whose columns get their type when they are first looked at.

    Attributes:
        name: What to call the table in errors.
        rows: Number of each row in the source, from 1.
        is_text: Whether the columns are texts whose type is still to be found.
        nameless: Columns that have no name in the source, such as the index of a data frame.
        categorical: Columns that the source itself calls categories.
    """

    name: str
    columns: Mapping[str, Any]
    rows: np.ndarray
    is_text: bool = False
    nameless: frozenset[str] = frozenset()
    categorical: frozenset[str] = frozenset()
    _typed: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> list[str]:
        """Names of the columns in the order of the source."""
        return list(self.columns)

    def values(self, column: str) -> Any:
        """A column as an Arrow array in one of the forms of `adagpr.data.tables.values`, missing values as nulls."""
        if column not in self._typed:
            self._typed[column] = typed(self._cleaned(column)) if self.is_text else self._plain(column)
        return self._typed[column]

    def texts(self, column: str) -> Any:
        """A column as texts: as they stand in a text file, else written out."""
        is_as_written = not self.is_text or self.kind(column) == "text"
        return as_texts(self.values(column)) if is_as_written else self._cleaned(column)

    def kind(self, column: str) -> Kind:
        """What a column holds."""
        return kind_of(self.values(column))

    def missing(self, column: str) -> np.ndarray:
        """Which rows of a column have no value."""
        return np.asarray(self.values(column).is_null().to_numpy(zero_copy_only=False), dtype=bool)

    def require(self, column: str) -> None:
        """Raises an `InputError` that offers the nearest name unless there is such a column."""
        if column in self.columns:
            return
        error = str(unknown_name("column", column, self.columns))
        if len(self.columns) > _NUM_SHOWN and "Did you mean" not in error:
            shown = ", ".join(self.names[:_NUM_SHOWN])
            error = f"Unknown column '{column}'. Known: {shown} and {len(self.columns) - _NUM_SHOWN} more."
        raise InputError(f"{self.name}: {error}")

    def where(self, column: str, position: int | None = None) -> str:
        """A place for errors, such as ``nodes.csv, column 'age', row 17``."""
        row = "" if position is None else f", row {self.rows[position]}"
        return f"{self.name}, column '{column}'{row}"

    def first(self, is_odd: np.ndarray) -> int:
        """Position of the marked row that comes first in the source."""
        positions = np.flatnonzero(is_odd)
        return int(positions[np.argmin(self.rows[positions])])

    def take(self, order: np.ndarray) -> TableData:
        """The same table with its rows in another order."""
        if np.array_equal(order, np.arange(len(self))):
            return self
        index = pa.array(order)
        columns = {name: values.take(index) for name, values in self.columns.items()}
        known = {name: values.take(index) for name, values in self._typed.items()}
        return TableData(self.name, columns, self.rows[order], self.is_text, self.nameless, self.categorical, known)

    def _cleaned(self, column: str) -> Any:
        return without_missing_words(self.columns[column])

    def _plain(self, column: str) -> Any:
        try:
            return plain(self.columns[column])
        except (pa.ArrowException, ValueError) as error:
            values = self.columns[column]
            is_bytes = "UTF8" in str(error) or "UTF-8" in str(error)
            reason = "bytes that are not UTF-8" if is_bytes else f"values of the type {values.type} that cannot be used"
            position = _first_failing(values)
            raise InputError(f"{self.where(column, position)}: there are {reason}.") from error


def _first_failing(values: Any) -> int | None:
    """Position of the first value that `plain` fails on, by halving."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            plain(values.slice(low, middle - low))
            low = middle
        except (pa.ArrowException, ValueError):
            high = middle
    return low if high > low else None


def read_sheet(source: Any, what: str, may_be_empty: bool = False) -> TableData:
    """Reads a table.

    Args:
        source: The path of a file (.csv, .tsv, .parquet, .feather or .arrow, each also with .gz, .bz2 or .zst behind),
            an Arrow table, a pandas or polars data frame, anything with ``__arrow_c_stream__`` or ``to_arrow``, or a
            dictionary of columns.
        what: What to call it in errors unless it is a file: ``nodes`` or ``edges``.
        may_be_empty: Whether a header without rows is a table too.

    Raises:
        InputError: The file is missing, broken, empty or of an unknown kind; names the file and, where there is one,
            the column and the row.

    Example:
        >>> sheet = read_sheet({"id": [3, 1], "topic": ["a", None]}, "nodes")
        >>> sheet.names, sheet.kind("topic"), len(sheet)
        (['id', 'topic'], 'text', 2)
    """
    if isinstance(source, TableData):
        return source
    is_file = isinstance(source, (str, os.PathLike))
    name = os.fspath(source) if is_file else what
    try:
        columns, is_text = (
            _read_file(Path(source), str(name), may_be_empty) if is_file else (_from_object(source, what), False)
        )
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{name}: there is no such file.") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        if is_file:
            raise InputError(f"{name}: the file is broken, cut short or of another kind ({reason}).") from error
        raise InputError(f"{what}: cannot be read as a table ({reason}).") from error
    return _sheet(str(name), columns, is_text, may_be_empty)


def _sheet(name: str, columns: Sequence[tuple[str, Any]], is_text: bool, may_be_empty: bool) -> TableData:
    """Checks names and lengths."""
    named: dict[str, Any] = {}
    nameless = set()
    for number, (column, values) in enumerate(columns, start=1):
        column = "".join(letter if letter.isprintable() else " " for letter in column)
        if column in _NAMELESS:
            column = f"column {number}"
            nameless.add(column)
        if column in named:
            raise InputError(f"{name}: two columns are called '{column}'; give each its own name.")
        named[column] = without_views(values)
    if not named:
        raise InputError(f"{name}: there are no columns.")
    lengths = {len(values) for values in named.values()}
    if len(lengths) > 1:
        raise InputError(f"{name}: the columns have {min(lengths)} to {max(lengths)} rows; they must be equally long.")
    (num_rows,) = lengths
    if num_rows == 0 and not may_be_empty:
        raise InputError(f"{name}: there are columns but no rows.")
    categorical = frozenset(column for column, values in named.items() if pa.types.is_dictionary(values.type))
    return TableData(name, named, np.arange(1, num_rows + 1), is_text, frozenset(nameless), categorical)


def _read_file(path: Path, name: str, may_be_empty: bool) -> tuple[list[tuple[str, Any]], bool]:
    """The columns of a file, and whether they are texts whose type is still to be found."""
    compression = _COMPRESSIONS.get(path.suffix.lower())
    ending = (path.with_suffix("") if compression else path).suffix.lower()
    if ending not in _ENDINGS:
        raise InputError(
            f"{name}: unknown ending '{ending or path.suffix}'. Known: {', '.join(_ENDINGS)}, each also with "
            f"{', '.join(_COMPRESSIONS)}."
        )
    if path.is_dir():
        raise InputError(f"{name}: this is a folder, not a file.")
    if not path.exists():
        raise InputError(f"{name}: there is no such file.")
    if path.stat().st_size == 0:
        raise InputError(f"{name}: the file is empty.")
    if ending in _DELIMITERS:
        return read_delimited(path, name, _DELIMITERS[ending], compression, may_be_empty), True
    with pa.input_stream(str(path), compression=compression) if compression else pa.OSFile(str(path)) as stream:
        file = pa.BufferReader(stream.read()) if compression else stream
        table = pq.ParquetFile(file).read() if ending in _PARQUET else _read_arrow(file)
    return _checked(table), False


def _read_arrow(file: Any) -> Any:
    """The table of a Feather or Arrow file, or of an Arrow stream."""
    try:
        return pa.ipc.open_file(file).read_all()
    except pa.ArrowInvalid as error:
        file.seek(0)
        try:
            return pa.ipc.open_stream(file).read_all()
        except pa.ArrowException:
            raise error from None


def _checked(table: Any) -> list[tuple[str, Any]]:
    """The columns of an Arrow table, once its offsets are known to stay within its buffers."""
    table.validate()
    columns = []
    for name, values in zip(table.column_names, table.columns, strict=True):
        # Bytes that are no text are left for the column that uses them, where the row can be named.
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            values = values.cast(pa.large_binary())
        for chunk in values.chunks:
            chunk.validate(full=True)
        columns.append((name, values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)))
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
    return _checked(source)


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
