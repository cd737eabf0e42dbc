"""How a text file is written: its encoding, what separates its values, and which columns have decimal commas."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow.compute as pc

from adagpr.data.tables.values import MEANT_NUMBERS, flags, quoted, without_missing_words
from adagpr.errors import InputError

ENCODINGS = {"utf-8": "UTF-8", "cp1252": "Windows-1252"}
ENCODINGS |= {"utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "utf-32": "UTF-32"}
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "upright strokes"}
# The mark of UTF-16 is the start of that of UTF-32.
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_SAMPLE_BYTES, _CHUNK_BYTES, _SAMPLE_ROWS = 1 << 12, 1 << 20, 100
_ASCII = bytes(range(128))
# Letters of UTF-8 that are not ASCII, and bytes that mean nothing in Windows-1252.
_LETTER = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_HOLE = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
# In a text of Windows-1252 such letters come about by chance, but there are this many times more of other bytes.
_CHANCE = 3
_WHOLE = r"^[+-]?\d+([eE][+-]?\d+)?$"
_WITH_MARK = r"^[+-]?(\d+[{0}]\d*|[{0}]\d+)([eE][+-]?\d+)?$"
_GROUPED = r"^[+-]?[1-9]\d{{0,2}}[{0}]\d{{3}}$"


def find_encoding(open_stream: Callable[[], Any]) -> str:
    """The encoding of a file: by its mark, else UTF-16 where every other byte is zero, else UTF-8 or Windows-1252.

    A file that is UTF-8 but for some bytes counts as UTF-8, so that reading it names them.
    """
    with open_stream() as stream:
        sample = stream.read(_SAMPLE_BYTES)
    for mark, encoding in _MARKS.items():
        if sample.startswith(mark):
            return encoding
    first, second = sample[::2].count(0), sample[1::2].count(0)
    if 4 * max(first, second) >= len(sample) and min(first, second) == 0:
        return "utf-16-be" if first else "utf-16-le"
    with open_stream() as stream:
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for chunk in _chunks(stream):
                if not chunk.isascii() or decoder.getstate()[0]:
                    decoder.decode(chunk)
            return "utf-8"
        except UnicodeDecodeError:
            pass
    num_letters = num_others = num_holes = 0
    with open_stream() as stream:
        for chunk in _chunks(stream):
            letters = _LETTER.findall(chunk)
            num_letters += len(letters)
            num_others += len(chunk.translate(None, _ASCII)) - sum(map(len, letters))
            num_holes += len(_HOLE.findall(chunk))
    return "cp1252" if num_others > _CHANCE * num_letters and not num_holes else "utf-8"


def _chunks(stream: Any) -> Iterator[bytes]:
    return iter(lambda: stream.read(_CHUNK_BYTES), b"")


def find_separator(read_rows: Callable[[str], Iterable[list[str]]], own: str, name: str) -> str:
    """What separates the values of a file: what its ending says, unless only another divides the first rows evenly.

    Where another divides them evenly into more columns, nobody can tell, and that is an error.
    """

    def first_rows(separator: str, number: int) -> list[list[str]]:
        return list(islice((row for row in read_rows(separator) if row), number))

    try:
        header = "".join(name for row in first_rows(own, 1) for name in row)
        found = {one: first_rows(one, _SAMPLE_ROWS) for one in SEPARATORS if one == own or one in header}
    except csv.Error:
        return own
    found = {one: rows for one, rows in found.items() if rows and len(rows[0]) > 1}
    even = {one: rows for one, rows in found.items() if len({len(row) for row in rows}) == 1} or found
    most = max((len(rows[0]) for rows in even.values()), default=0)
    best = [one for one, rows in even.items() if len(rows[0]) == most]
    if own in best or not best:
        return own
    if len(best) == 1 and own not in even:
        return best[0]
    choices = " or by ".join(SEPARATORS[one] for one in even)
    raise InputError(
        f"{name}: its values are separated by {choices}, either would do; save it with tabs and the ending .tsv."
    )


def find_comma_columns(name: str, columns: Sequence[str], batches: Iterable[Any]) -> frozenset[str]:
    """The columns of a file that hold numbers with decimal commas.

    A comma or point before three digits may part thousands; unless commas elsewhere in the file are surely decimal, and
    no points are like that, it is an error.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    examples: dict[tuple[str, str], tuple[int, str]] = {}
    first = 1
    for batch in batches:
        for column, raw in zip(columns, batch.columns, strict=True):
            count = counts[column]
            if 2 * count["number"] < count["known"]:
                continue
            texts = without_missing_words(raw)
            count["known"] += len(texts) - texts.null_count
            count["number"] += int(_matching(texts, _WHOLE).sum())
            for mark in (",", "."):
                if pc.any(pc.match_substring(texts, mark)).as_py():
                    num_marked = int(_matching(texts, _WITH_MARK.format(mark)).sum())
                    grouped = np.flatnonzero(_matching(texts, _GROUPED.format(mark)))
                    count["number"] += num_marked
                    count[mark] += num_marked
                    count[f"sure {mark}"] += num_marked - len(grouped)
                    if len(grouped):
                        examples.setdefault((column, mark), (first + int(grouped[0]), texts[grouped[0]].as_py()))
        first += batch.num_rows
    counts = defaultdict(Counter, {one: n for one, n in counts.items() if n["number"] > MEANT_NUMBERS * n["known"]})
    found = frozenset(column for column in counts if counts[column][","])
    is_sure = any(counts[column]["sure ,"] for column in found)
    for (column, mark), (row, text) in examples.items():
        if found and column in counts and not (is_sure if mark == "," else counts[column]["sure ."]):
            what = "comma" if mark == "," else "point"
            raise InputError(
                f"{name}, column '{column}', row {row}: {quoted(text)} may have a decimal {what} or thousands apart; "
                "save the file with decimal points, and with nothing between thousands."
            )
    return found


def _matching(texts: Any, pattern: str) -> np.ndarray:
    return flags(pc.fill_null(pc.match_substring_regex(texts, pattern), False))
