"""Tables in files, read whole or in batches: text with commas or tabs, Parquet, Feather or Arrow, compressed or not.

Every value of a text file is read as a text; what a column holds is found afterwards by `adagpr.data.tables.values`,
which can then say which row is the odd one.
"""

from __future__ import annotations

import csv
import io
import mmap
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from adagpr.data.tables.look import ENCODINGS, SEPARATORS, find_comma_columns, find_encoding, find_separator
from adagpr.data.tables.table import Named, NumberCount, TableData, checked_arrays, checked_names, table_of
from adagpr.data.tables.values import plain, wider
from adagpr.errors import InputError, StorageError, reason_of
from adagpr.files import require_file
from adagpr.system import memory_guard

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PARQUET = (".parquet", ".pq")
_ARROW = (".feather", ".arrow", ".ipc")
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_ENDINGS = (*_SEPARATORS, *_PARQUET, *_ARROW)
# Bytes of a text file at a time, when it is read whole and in batches.
_WHOLE_BYTES, _BLOCK_BYTES = 1 << 24, 1 << 22
# Rows of a batch unless the caller says another number, and where only their types are looked at.
BLOCK_ROWS, SURVEY_ROWS = 1 << 17, 1 << 13
# Arrow's own words; its callback would be simpler, but cannot take rows that are not UTF-8.
_RAGGED = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+)")
# What bytes that are not UTF-8 become in the header.
_ESCAPED = re.compile("[\udc80-\udcff]")
_NOT_UTF8 = re.compile(r"CSV column #(\d+): Row #(\d+): .*UTF8")
# Bytes of a short row of a text file, and how much larger a compressed table may become.
_SHORT_ROW, _PACKED = 12, 4


class _Header(NamedTuple):
    """Names of a text file's columns, lines that they take with empty ones above, and whether rows are below."""

    names: list[str]
    num_lines: int
    has_rows: bool


class TableFile(Named):
    """A file that holds a table; it is read when something is asked for.

    A compressed Parquet, Feather or Arrow file is unpacked on the disk of the folder ``scratch``; else in memory.
    """

    def __init__(self, path: Path | str | os.PathLike[str], scratch: Path | None = None) -> None:
        self.path, self.name, self._scratch = Path(path), os.fspath(path), scratch
        self._compression = _COMPRESSIONS.get(self.path.suffix.lower())
        self._ending = (self.path.with_suffix("") if self._compression else self.path).suffix.lower()
        self.is_text = self._ending in _SEPARATORS
        self._types: dict[str, Any] = {}
        self._counts: dict[str, NumberCount] = {}
        if self._ending not in _ENDINGS:
            raise InputError(
                f"{self.name}: unknown ending '{self._ending or self.path.suffix}'. Known: {', '.join(_ENDINGS)}, each "
                f"also with {', '.join(_COMPRESSIONS)}."
            )
        require_file(self.path)
        if not self.path.exists():
            raise InputError(f"{self.name}: there is no such file.")
        if self.path.stat().st_size == 0:
            raise InputError(f"{self.name}: the file is empty.")

    @property
    def names(self) -> list[str]:
        """Names of the columns in the order of the file."""
        return self._names[0]

    @property
    def nameless(self) -> frozenset[str]:
        """Columns that have no name in the file."""
        return self._names[1]

    @cached_property
    def _names(self) -> tuple[list[str], frozenset[str]]:
        return checked_names(self._guarded(lambda: (self._header if self.is_text else self._schema).names), self.name)

    @property
    def stamp(self) -> list[int]:
        """What changes when the file does: size and time."""
        status = self.path.stat()
        return [status.st_size, status.st_mtime_ns]

    @property
    def most_bytes(self) -> int:
        """Size of the table in memory, or a little more."""
        is_packed = self._compression is not None or self._ending in _PARQUET
        return self.path.stat().st_size * (_PACKED if is_packed else 1)

    @property
    def most_rows(self) -> int:
        """Number of rows; where it takes reading the file to know, as if they were very short."""
        return self.most_bytes // _SHORT_ROW if self.is_text or self._compression else self.num_rows

    @cached_property
    def num_rows(self) -> int:
        """Number of rows."""
        if self._ending in _PARQUET:
            return int(self._guarded(lambda: pq.ParquetFile(self._open()).metadata.num_rows))
        return sum(len(block) for block in self.blocks(self.names[:1], 1 << 22))

    def where(self, column: str) -> str:
        """A place for errors, such as ``nodes.csv, column 'age'``."""
        return f"{self.name}, column '{column}'"

    def type_of(self, column: str) -> Any:
        """The Arrow type of a column; of a text file the narrowest that fits all rows."""
        if self.is_text:
            self.survey([column])
            return self._types[column]
        return plain(pa.array([], self._schema.field(self.names.index(column)).type)).type

    def number_count(self, column: str) -> NumberCount:
        """How many values of a column of a text file are numbers."""
        self.survey([column])
        return self._counts[column]

    def survey(self, columns: Iterable[str]) -> None:
        """Finds the types of columns of a text file and counts their numbers, in one reading of all rows."""
        wanted = [column for column in columns if column not in self._types]
        if not self.is_text or not wanted:
            return
        types, num_rows = dict.fromkeys(wanted, pa.null()), 0
        counts = {column: NumberCount() for column in wanted}
        for block in self.blocks(wanted, SURVEY_ROWS):
            num_rows += len(block)
            for column in wanted:
                types[column] = wider(types[column], block.type_of(column))
                counts[column].add(block, column)
        self._types |= types
        self._counts |= counts
        self.num_rows = num_rows

    def read(self, may_be_empty: bool = False) -> TableData:
        """The whole table; a header without rows is one only if it ``may_be_empty``."""
        with memory_guard(self.name):
            names = self.names
        if self.is_text and names and not self._header.has_rows and not may_be_empty:
            raise InputError(f"{self.name}: there is a header but no row below it.")
        with memory_guard(self.name):
            found: TableData = self._guarded(lambda: self._table(self.names, self._read(), may_be_empty))
        return found

    def blocks(self, columns: Iterable[str], rows: int = BLOCK_ROWS) -> Iterator[TableData]:
        """Some columns in tables of at least so many rows, and less than twice as many; the last one may be shorter."""
        wanted = [column for column in self.names if column in set(columns)]
        first, count, held = 1, 0, []
        for batch in self._batches([self.names.index(column) for column in wanted], rows):
            for start in range(0, batch.num_rows, rows):
                held.append(batch.slice(start, rows))
                count += held[-1].num_rows
                if count >= rows:
                    yield self._block(wanted, held, first)
                    first, count, held = first + count, 0, []
        if held:
            yield self._block(wanted, held, first)

    def _block(self, columns: list[str], batches: list[Any], first: int) -> TableData:
        table = self._table(columns, pa.Table.from_batches(batches), may_be_empty=True)
        return replace(table, rows=table.rows + (first - 1), types=self._types, is_part=True)

    def _table(self, columns: list[str], found: Any, may_be_empty: bool) -> TableData:
        """The table of what Arrow found in the file."""
        arrays = [column.combine_chunks() for column in found.columns] if self.is_text else checked_arrays(found)
        named = dict(zip(columns, arrays, strict=True))
        table = table_of(self.name, named, self.nameless, may_be_empty, self.is_text)
        return replace(table, look=self.look, commas=self._commas)

    def _guarded(self, read: Callable[[], Any]) -> Any:
        """What ``read`` gives; a file that cannot be read is an `InputError`."""
        try:
            return read()
        except (InputError, StorageError, MemoryError):
            raise
        except FileNotFoundError as error:
            raise InputError(f"{self.name}: there is no such file.") from error
        except Exception as error:
            reason = f"the file is broken, cut short or of another kind ({reason_of(error)})"
            odd_row = self._odd_row(str(error)) if self.is_text else None
            raise odd_row or InputError(f"{self.name}: {reason}.") from error

    def _odd_row(self, reason: str) -> InputError | None:
        """The error for a row of a text file that Arrow stopped at."""
        ragged, not_utf8 = _RAGGED.search(reason), _NOT_UTF8.search(reason)
        if ragged:
            row, count = int(ragged[1]) - self._header.num_lines, ragged[2]
            values = "is 1 value" if count == "1" else f"are {count} values"
            return InputError(f"{self.name}, row {row}: there {values}, but the header names {len(self.names)}.")
        if not_utf8:
            place = f"{self.where(self.names[int(not_utf8[1])])}, row {int(not_utf8[2]) - self._header.num_lines}"
            return InputError(f"{place}: the bytes are not UTF-8. Save the file as UTF-8.")
        if "straddling" in reason:
            return InputError(
                f"{self.name}: a quotation mark is opened and not closed, or a row is longer than "
                f"{_BLOCK_BYTES >> 20} MB."
            )
        return None

    @cached_property
    def look(self) -> str:
        """How a text file is read, such as ``read as Windows-1252, separated by tabs``; empty where as it should be."""
        if not self.is_text or (self._encoding == "utf-8" and self._separator == _SEPARATORS[self._ending]):
            return ""
        by = f", separated by {SEPARATORS[self._separator]}" if self._separator != _SEPARATORS[self._ending] else ""
        return f"read as {ENCODINGS[self._encoding]}{by}{', with decimal commas' if self._commas else ''}"

    @cached_property
    def _encoding(self) -> str:
        return find_encoding(self._stream)

    @cached_property
    def _separator(self) -> str:
        def rows(separator: str) -> Iterator[list[str]]:
            with self._stream() as stream:
                yield from csv.reader(self._text(stream), delimiter=separator)

        return find_separator(rows, _SEPARATORS[self._ending], self.name)

    @cached_property
    def _commas(self) -> frozenset[str]:
        """Columns with decimal commas; there are none where values are separated as the ending says, or by commas."""
        if not self.is_text or self._separator in (",", _SEPARATORS[self._ending]):
            return frozenset()
        return find_comma_columns(self.name, self.names, self._batches(list(range(len(self.names))), BLOCK_ROWS))

    @cached_property
    def _header(self) -> _Header:
        separator = self._separator
        with self._stream() as stream:
            text = self._text(stream)
            rows = csv.reader(text, delimiter=separator)
            try:
                names = next((row for row in rows if row), None)
                num_lines = rows.line_num
                has_rows = any(line.strip() for line in text)
            except csv.Error as error:
                raise InputError(f"{self.name}: its header cannot be read ({reason_of(error)}).") from error
            finally:
                text.detach()
        if names is None:
            raise InputError(f"{self.name}: the file is empty.")
        for number, column in enumerate(names, start=1):
            if _ESCAPED.search(column):
                raise InputError(
                    f"{self.name}, column {number}: its name in the header is not UTF-8. Save the file as UTF-8."
                )
        return _Header([column.strip() for column in names], num_lines, has_rows)

    @cached_property
    def _schema(self) -> Any:
        """Names and types of the columns of a file that is no text."""
        if self._ending in _PARQUET:
            return pq.ParquetFile(self._open()).schema_arrow
        return self._arrow(None).schema

    def _read(self) -> Any:
        """The whole table as Arrow gives it."""
        if self.is_text:
            columns = range(len(self.names))
            if not self._header.has_rows:
                return pa.schema([(str(number), pa.large_string()) for number in columns]).empty_table()
            return self._csv(columns, _WHOLE_BYTES).read_all()
        if self._ending in _PARQUET:
            return pq.ParquetFile(self._open(False)).read()
        return self._arrow(None, False).read_all()

    def _batches(self, columns: list[int], rows: int) -> Iterator[Any]:
        """Batches of some columns as they are in the file."""
        batches = self._guarded(lambda: self._open_batches(columns, rows))
        while (batch := self._guarded(lambda: next(batches, None))) is not None:
            yield batch

    def _open_batches(self, columns: list[int], rows: int) -> Iterator[Any]:
        if self.is_text:
            return iter(self._csv(columns, _BLOCK_BYTES)) if self._header.has_rows else iter(())
        if self._ending in _PARQUET:
            file = pq.ParquetFile(self._open(), memory_map=True, pre_buffer=False)
            names = [self._schema.names[number] for number in columns]
            return iter(file.iter_batches(min(rows, BLOCK_ROWS), columns=names, use_threads=False))
        reader = self._arrow(columns)
        if isinstance(reader, pa.RecordBatchFileReader):
            return (reader.get_batch(number) for number in range(reader.num_record_batches))
        return iter(reader)

    def _csv(self, columns: Sequence[int], block_bytes: int) -> Any:
        """The reader of a text file; its columns are named by their number."""
        names = [str(number) for number in range(len(self.names))]
        return arrow_csv.open_csv(
            self._stream() if self._encoding == "utf-8" else pa.BufferReader(self._utf8),
            arrow_csv.ReadOptions(
                use_threads=False, block_size=block_bytes, skip_rows=self._header.num_lines, column_names=names
            ),
            arrow_csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                include_columns=[names[number] for number in columns],
                column_types=dict.fromkeys(names, pa.large_string()),
                strings_can_be_null=False,
                check_utf8=True,
            ),
        )

    def _arrow(self, columns: list[int] | None, is_mapped: bool = True) -> Any:
        """The reader of a Feather or Arrow file, or of an Arrow stream."""
        options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
        try:
            return pa.ipc.open_file(self._open(is_mapped), options=options)
        except pa.ArrowInvalid as error:
            try:
                return pa.ipc.open_stream(self._open(is_mapped), options=options)
            except pa.ArrowException:
                raise error from None

    def _open(self, is_mapped: bool = True) -> Any:
        """The bytes of a Parquet, Feather or Arrow file, unpacked where needed."""
        if self._compression is None:
            # A file that is mapped into memory must not change as long as rows are used.
            return pa.memory_map(str(self.path)) if is_mapped else pa.OSFile(str(self.path))
        return pa.BufferReader(self._unpacked) if self._scratch is None else pa.PythonFile(self._unpacked)

    def _stream(self) -> Any:
        """The bytes of the file, unpacked."""
        return pa.input_stream(str(self.path), compression=self._compression)

    def _text(self, stream: Any) -> io.TextIOWrapper:
        """A text file as text; bytes that are not UTF-8 in a file that is are kept, for an error that names them."""
        is_utf8 = self._encoding == "utf-8"
        codec, errors = ("utf-8-sig", "surrogateescape") if is_utf8 else (self._encoding, "strict")
        return io.TextIOWrapper(stream, encoding=codec, errors=errors, newline="")

    @cached_property
    def _utf8(self) -> Any:
        """The text of a file of another encoding as UTF-8; Arrow's own way hangs when it meets an error."""
        with self._stream() as stream:
            text = self._text(stream)
            file = io.BytesIO() if self._scratch is None else _temporary(self._scratch)
            _copy(file, (piece.encode() for piece in iter(lambda: text.read(_BLOCK_BYTES), "")), self._scratch)
            text.detach()
        if isinstance(file, io.BytesIO):
            return pa.py_buffer(file.getbuffer())
        with file:
            return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    @cached_property
    def _unpacked(self) -> Any:
        with self._stream() as stream:
            if self._scratch is None:
                return pa.py_buffer(stream.read())
            file = _temporary(self._scratch)
            weakref.finalize(self, file.close)
            _copy(file, iter(lambda: stream.read(_BLOCK_BYTES), b""), self._scratch)
            return file


def _temporary(folder: Path) -> IO[bytes]:
    """A file without a name, for what is unpacked as long as a table is used."""
    with _writing(folder):
        return tempfile.TemporaryFile(dir=folder)


def _copy(file: IO[bytes], pieces: Iterable[bytes], folder: Path | None) -> None:
    """Writes what is unpacked; only what is wrong with the writing is an error of the folder."""
    try:
        for piece in pieces:
            with _writing(folder):
                file.write(piece)
        with _writing(folder):
            file.flush()
    except BaseException:
        with suppress(OSError):
            file.close()
        raise


@contextmanager
def _writing(folder: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"Cannot write to the folder {folder}: {reason_of(error)}.") from error
