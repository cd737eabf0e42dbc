"""Tables in text files: commas or tabs between values, a header on top, compressed or not.

Every value is read as a text; what a column holds is found afterwards by `adagpr.data.tables.values`, which can then
say which row is the odd one. Rows are counted from 1, the first below the header.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv

from adagpr.data.tables.values import quoted
from adagpr.errors import InputError

__all__ = ["read_delimited"]

_BLOCK_BYTES = 1 << 24
# Arrow's own words; its callback would be simpler, but cannot take rows that are not UTF-8.
_RAGGED = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+)")
_WORDS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "upright strokes"}


def read_delimited(
    path: Path, name: str, delimiter: str, compression: str | None, may_be_empty: bool = False
) -> list[tuple[str, Any]]:
    """The names of a text file's columns, each with its values as an array of texts.

    Args:
        path: Where the file is.
        name: What to call it in errors.
        delimiter: What stands between two values of a row.
        compression: Arrow's name of the compression, if there is one.
        may_be_empty: Whether a header without rows is a table too.

    Raises:
        InputError: The file is empty, has another delimiter, rows of another length, or is not UTF-8.
    """
    header, num_lines, has_rows = _header(path, name, delimiter, compression)
    if not has_rows and not may_be_empty:
        raise InputError(f"{name}: there is a header but no row below it.")
    if not has_rows:
        return [(column, pa.array([], pa.large_string())) for column in header]
    try:
        arrays = _texts(path, name, delimiter, compression, len(header), num_lines, pa.large_string())
    except InputError:
        raise
    except Exception as error:
        if "UTF8" not in str(error) and not isinstance(error, UnicodeError):
            raise
        arrays = _texts(path, name, delimiter, compression, len(header), num_lines, pa.large_binary())
        raise _not_utf8(arrays, header, name) from error
    return list(zip(header, arrays, strict=True))


def _header(path: Path, name: str, delimiter: str, compression: str | None) -> tuple[list[str], int, bool]:
    """The names of the columns, and how many lines they take with the empty ones above them."""
    with pa.input_stream(str(path), compression=compression) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        rows = csv.reader(text, delimiter=delimiter)
        try:
            names = next((row for row in rows if row), None)
            num_lines = rows.line_num
            has_rows = any(line.strip() for line in text)
        except csv.Error as error:
            raise InputError(f"{name}: its header cannot be read ({error}).") from error
        finally:
            text.detach()
    if names is None:
        raise InputError(f"{name}: the file is empty.")
    _check_names(names, name, delimiter)
    return [column.strip() for column in names], num_lines, has_rows


def _check_names(names: list[str], name: str, delimiter: str) -> None:
    for number, column in enumerate(names, start=1):
        try:
            column.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{name}, column {number}: its name in the header is not UTF-8. Save the file as UTF-8."
            ) from error
    others = [other for other in _WORDS if other != delimiter and other in names[0]] if len(names) == 1 else []
    if others:
        hint = "give it the ending .tsv" if others[0] == "\t" else f"save it with {_WORDS[delimiter]}"
        raise InputError(
            f"{name}: there is a single column, {quoted(names[0])}; its values look as if they were separated "
            f"by {_WORDS[others[0]]}, not by {_WORDS[delimiter]}: {hint}."
        )


def _texts(
    path: Path, name: str, delimiter: str, compression: str | None, width: int, num_lines: int, kind: Any
) -> list[Any]:
    """All columns as arrays of one type, text or bytes."""
    columns = [str(number) for number in range(width)]
    with pa.input_stream(str(path), compression=compression) as stream:
        try:
            table = arrow_csv.read_csv(
                stream,
                arrow_csv.ReadOptions(
                    use_threads=False, block_size=_BLOCK_BYTES, skip_rows=num_lines, column_names=columns
                ),
                arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, kind), strings_can_be_null=False, check_utf8=True
                ),
            )
        except pa.ArrowInvalid as error:
            ragged = _RAGGED.search(str(error))
            if ragged:
                row, count = int(ragged[1]) - num_lines, ragged[2]
                values = "is 1 value" if count == "1" else f"are {count} values"
                raise InputError(f"{name}, row {row}: there {values}, but the header names {width}.") from error
            if "straddling" in str(error):
                raise InputError(
                    f"{name}: a quotation mark is opened and not closed, or a row is longer than "
                    f"{_BLOCK_BYTES >> 20} MB."
                ) from error
            raise
    return [column.combine_chunks() for column in table.columns]


def _not_utf8(arrays: list[Any], header: list[str], name: str) -> InputError:
    """The error for the first row with bytes that are no text."""
    found: list[tuple[int, str]] = []
    for column, values in zip(header, arrays, strict=True):
        try:
            values.cast(pa.large_string())
        except pa.ArrowInvalid:
            row = next(row for row, value in enumerate(values.to_pylist(), start=1) if not _is_text(value))
            found.append((row, column))
    row, column = min(found, default=(0, ""))
    where = f", column {quoted(column)}, row {row}" if found else ""
    return InputError(f"{name}{where}: the bytes are not UTF-8. Save the file as UTF-8.")


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
