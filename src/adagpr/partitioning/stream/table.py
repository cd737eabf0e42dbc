"""A table that is read in batches: a text file, Parquet, Feather or Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from adagpr.errors import InputError, unknown_name
from adagpr.partitioning.stream import sizes

__all__ = ["Table"]

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PARQUET = (".parquet", ".pq")
_ARROW = (".feather", ".arrow", ".ipc")
_ENDINGS = (*_DELIMITERS, *_PARQUET, *_ARROW)
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_MISSING_WORDS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
    *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
# Bytes of a short row of a text file, and how much larger a compressed table may become.
_SHORT_ROW, _PACKED = 12, 4


class Table:
    """A file that is read in batches.

    Attributes:
        path: The file.
        schema: Names and types of its columns; those of a text file as its beginning suggests them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._compression = _COMPRESSIONS.get(path.suffix.lower())
        self._ending = (path.with_suffix("") if self._compression else path).suffix.lower()
        if self._ending not in _ENDINGS:
            raise InputError(f"{path}: unknown ending '{path.suffix}'. Known: {', '.join(_ENDINGS)}.")
        if not path.is_file():
            raise InputError(f"{path}: there is no such file.")
        if self._compression and not self.is_text:
            raise InputError(f"{path}: a compressed table of this kind cannot be read in batches. Unpack it first.")
        self.schema: pa.Schema = self._guarded(self._read_schema)

    @property
    def is_text(self) -> bool:
        """Whether values are written as texts."""
        return self._ending in _DELIMITERS

    @property
    def stamp(self) -> list[int]:
        """What changes when the file does: size and time."""
        status = self.path.stat()
        return [status.st_size, status.st_mtime_ns]

    def require(self, column: str) -> None:
        """Raises an `InputError` unless there is such a column."""
        if column not in self.schema.names:
            raise InputError(f"{self.path}: {unknown_name('column', column, self.schema.names)}")

    def where(self, column: str, row: int | None = None) -> str:
        """A place for errors; rows count from 1."""
        return f"{self.path}, column '{column}'" + ("" if row is None else f", row {row + 1}")

    def count(self, column: str) -> int:
        """Number of rows.

        Args:
            column: The one to read where the file does not say.
        """
        if self._ending in _PARQUET:
            return int(pq.ParquetFile(self.path).metadata.num_rows)
        return sum(table.num_rows for _, table in self.batches({column: None}, sizes.MAX_EDGES))

    def most_rows(self) -> int:
        """Number of rows; of a text file as if they were very short."""
        return self.most_bytes() // _SHORT_ROW if self.is_text else self.count(self.schema.names[0])

    def most_bytes(self) -> int:
        """Size of the table in memory, or a little more."""
        is_packed = self._compression is not None or self._ending in _PARQUET
        return self.path.stat().st_size * (_PACKED if is_packed else 1)

    def head(self, rows: int) -> Any:
        """The first rows."""
        found = next(self.batches(dict.fromkeys(self.schema.names), rows), None)
        return self.schema.empty_table() if found is None else found[1].slice(0, rows)

    def batches(self, wanted: Mapping[str, Any], rows: int) -> Iterator[tuple[int, Any]]:
        """Tables of at least so many rows and less than twice as many, each with the number of its first row.

        Args:
            wanted: The columns, each with the type to read it as from a text file.
            rows: How many rows at a time.
        """
        first, count, held = 0, 0, []
        for batch in self._raw(wanted, rows):
            for start in range(0, batch.num_rows, rows):
                held.append(batch.slice(start, rows))
                count += held[-1].num_rows
                if count >= rows:
                    yield first, pa.Table.from_batches(held)
                    first, count, held = first + count, 0, []
        if held:
            yield first, pa.Table.from_batches(held)

    def _raw(self, wanted: Mapping[str, Any], rows: int) -> Iterator[Any]:
        """Batches as they stand in the file."""
        batches = self._guarded(lambda: self._read(wanted, rows))
        while (batch := self._guarded(lambda: next(batches, None))) is not None:
            yield batch.select(list(wanted))

    def _guarded(self, read: Callable[[], Any]) -> Any:
        """What ``read`` gives; a file that cannot be read is an `InputError`."""
        try:
            return read()
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200].rstrip(".")
            raise InputError(f"{self.path}: the file is broken, cut short or of another kind ({reason}).") from error

    def _read_schema(self) -> Any:
        if self.is_text:
            return self._csv({}).schema
        if self._ending in _PARQUET:
            return pq.ParquetFile(self.path).schema_arrow
        return self._arrow(None).schema

    def _read(self, wanted: Mapping[str, Any], rows: int) -> Iterator[Any]:
        if self.is_text:
            return iter(self._csv(wanted))
        if self._ending in _PARQUET:
            file = pq.ParquetFile(self.path, memory_map=True, pre_buffer=False)
            found: Iterator[Any] = file.iter_batches(min(rows, sizes.MAX_ROWS), columns=list(wanted), use_threads=False)
            return found
        reader = self._arrow([self.schema.get_field_index(name) for name in wanted])
        if isinstance(reader, pa.RecordBatchFileReader):
            return (reader.get_batch(number) for number in range(reader.num_record_batches))
        return iter(reader)

    def _csv(self, wanted: Mapping[str, Any]) -> Any:
        return arrow_csv.open_csv(
            pa.input_stream(str(self.path), compression=self._compression),
            arrow_csv.ReadOptions(use_threads=False, block_size=sizes.CSV_BLOCK),
            arrow_csv.ParseOptions(delimiter=_DELIMITERS[self._ending], newlines_in_values=True),
            arrow_csv.ConvertOptions(
                include_columns=list(wanted),
                column_types={name: kind for name, kind in wanted.items() if kind is not None},
                null_values=list(_MISSING_WORDS),
                strings_can_be_null=True,
            ),
        )

    def _arrow(self, fields: list[int] | None) -> Any:
        """The reader of a Feather or Arrow file, mapped into memory, or of an Arrow stream."""
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        try:
            return pa.ipc.open_file(pa.memory_map(str(self.path)), options=options)
        except pa.ArrowInvalid as error:
            try:
                return pa.ipc.open_stream(pa.memory_map(str(self.path)), options=options)
            except pa.ArrowException:
                raise error from None
