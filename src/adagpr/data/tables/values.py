"""What a column of a table holds: numbers, truth values, dates or texts, with missing values told from the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Kind = Literal["missing", "whole", "real", "boolean", "date", "text", "other"]

# What means a missing value in a text file, as in pandas and Arrow.
_MISSING_WORDS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
    *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
# Whole numbers are exact in float64 up to here.
_EXACT = 2.0**53
_MAX_SHOWN = 60
# Older versions of Arrow have none.
_VIEWS = [getattr(pa.types, name) for name in ("is_string_view", "is_binary_view") if hasattr(pa.types, name)]
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
_KINDS: dict[Kind, tuple[Callable[[Any], bool], ...]] = {
    "missing": (pa.types.is_null,),
    "whole": (pa.types.is_integer,),
    "real": (pa.types.is_floating,),
    "boolean": (pa.types.is_boolean,),
    "date": (pa.types.is_date, pa.types.is_timestamp),
    "text": (pa.types.is_large_string,),
}
_DECIMAL_COMMA = r"^(\s*[+-]?\d*),(\d*([eE][+-]?\d+)?\s*)$"
# A column of which more than this share are numbers was meant to be one.
MEANT_NUMBERS = 0.95
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def pluralize(number: int, noun: str) -> str:
    """A number with its noun, such as ``1 edge`` or ``3 edges``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def quoted(value: Any) -> str:
    """A value for a sentence: between quotation marks, on one line, not too long."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    text = "".join(letter if letter.isprintable() else " " for letter in text[: _MAX_SHOWN + 1])
    return f"'{text}'" if len(text) <= _MAX_SHOWN else f"'{text[:_MAX_SHOWN]}...'"


def kind_of_type(kind: Any) -> Kind:
    """What values of an Arrow type that `plain` or `typed` gives are."""
    return next((name for name, tests in _KINDS.items() if _is_any(kind, tests)), "other")


def _is_any(kind: Any, tests: Iterable[Callable[[Any], bool]]) -> bool:
    return any(test(kind) for test in tests)


def plain(values: Any) -> Any:
    """A column of any source in one of the few forms; NaN and the empty text become missing."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        values, kind = values.cast(kind.storage_type), kind.storage_type
    if pa.types.is_run_end_encoded(kind):
        values, kind = pc.run_end_decode(values), kind.value_type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    values = _missing_where_nan(_narrow(values, kind))
    if pa.types.is_large_string(values.type):
        return pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    return values


def without_views(values: Any) -> Any:
    """Texts as all of Arrow's functions take them; polars and others hand them over as views, which few do."""
    kind = values.type
    if pa.types.is_dictionary(kind) and _is_any(kind.value_type, _VIEWS):
        return values.cast(pa.dictionary(kind.index_type, pa.large_string(), kind.ordered))
    # As bytes: what is no text is found where the column is used.
    return values.cast(pa.large_binary()) if _is_any(kind, _VIEWS) else values


def _narrow(values: Any, kind: Any) -> Any:
    """Values in the widest type of their sort."""
    if _is_any(kind, (*_TEXTS, pa.types.is_fixed_size_binary, *_VIEWS)):
        return values.cast(pa.large_string())
    if pa.types.is_decimal(kind):
        return values.cast(pa.int64() if kind.scale <= 0 else pa.float64())
    if pa.types.is_integer(kind):
        return values.cast(pa.uint64() if pa.types.is_uint64(kind) else pa.int64())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64())
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return values.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64()).cast(pa.int64())
    return values


def with_points(texts: Any) -> Any:
    """Texts whose numbers have decimal points in place of commas."""
    return pc.replace_substring_regex(texts, _DECIMAL_COMMA, r"\1.\2")


def without_missing_words(texts: Any) -> Any:
    """Texts without the white space around them, and missing where they say so."""
    texts = pc.ascii_trim_whitespace(texts)
    words = pa.array(_MISSING_WORDS, texts.type)
    return pc.if_else(pc.is_in(texts, value_set=words), pa.scalar(None, texts.type), texts)


def typed(texts: Any, kind: Any = None) -> Any:
    """Texts of a file in the narrowest type that fits all of them: whole, real, boolean, date, else as they are.

    Numbers that are filled up with zeros, such as 007, are codes and stay texts. Of a part of a column, ``kind`` is the
    type of the whole if that is known already.
    """
    # Most columns of numbers miss nothing, and need not be searched for the words that say so.
    found = _numbers(texts, kind) if texts.null_count == 0 else None
    if found is not None:
        return found
    texts = without_missing_words(texts)
    known = texts.drop_null()
    if len(known) == 0 or (kind is not None and pa.types.is_large_string(kind)):
        return texts
    found = _numbers(texts, kind)
    if found is not None:
        return found
    first = known[0].as_py()
    for date in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        dates = _cast(texts, date) if len(first) >= 10 and first[0] in "+-0123456789" else None
        if dates is not None:
            return dates
    if first.lower() in ("true", "false"):
        lower = pc.utf8_lower(texts)
        if pc.all(pc.is_in(lower.drop_null(), value_set=pa.array(["true", "false"], texts.type))).as_py():
            return pc.equal(lower, "true")
    return texts


def _numbers(texts: Any, kind: Any) -> Any:
    """Texts as numbers; nothing where one is none."""
    if kind is not None:
        return _missing_where_nan(_cast(texts, kind)) if kind_of_type(kind) in ("whole", "real") else None
    for number in (pa.int64(), pa.float64()):
        found = _cast(texts, number)
        if found is not None:
            # Numbers that begin with a zero that they do not need are codes, and hexadecimal ones no numbers here.
            starts = pc.match_substring_regex(pc.unique(pc.utf8_slice_codeunits(texts, 0, 3)), r"^[+-]?0[0-9xX]")
            return None if pc.any(starts).as_py() else _missing_where_nan(found)
    return None


def _cast(texts: Any, kind: Any) -> Any:
    try:
        # A cast that fails goes through all values; most that fail do so on the first few.
        texts.slice(0, 64).cast(kind)
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return None


def _missing_where_nan(numbers: Any) -> Any:
    if numbers is not None and pa.types.is_floating(numbers.type):
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, numbers.type), numbers)
    return numbers


def wider(one: Any, other: Any) -> Any:
    """The type that `typed` gives a column of two parts with these types; a part without a value has the null type."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    return pa.float64() if {one, other} == {pa.int64(), pa.float64()} else pa.large_string()


def is_number_text(texts: Any) -> np.ndarray:
    """Which texts are numbers; missing ones are not."""
    return flags(pc.fill_null(pc.match_substring_regex(texts, _NUMBER), False))


def flags(values: Any) -> np.ndarray:
    """Truth values as an array of NumPy."""
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)


def places_in(known: Any, values: Any) -> np.ndarray:
    """The place of each value among those that are known, -1 where it is missing or none of them."""
    found = pc.fill_null(pc.index_in(values, value_set=known), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)


def as_whole(values: Any) -> Any:
    """Numbers as int64 where that changes none of them, else nothing."""
    if pa.types.is_floating(values.type):
        numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
        if not (np.isfinite(numbers) & (np.abs(numbers) <= _EXACT)).all() or (numbers != np.floor(numbers)).any():
            return None
    elif not pa.types.is_integer(values.type):
        return None
    return _cast(values, pa.int64())


def as_texts(values: Any) -> Any:
    """Values of an array from `plain` or `typed` as texts: whole numbers without a point, dates as in ISO 8601."""
    if values.null_count == len(values):
        return pa.nulls(len(values), pa.large_string())
    if pa.types.is_floating(values.type):
        whole = as_whole(values)
        values = values if whole is None else whole
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        values = values.cast(pa.timestamp(values.type.unit))
    return values.cast(pa.large_string())
