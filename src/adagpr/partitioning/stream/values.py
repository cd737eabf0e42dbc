"""Columns of a batch as Arrow arrays: cleaned, tested for their kind, and turned into whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["cleaned", "first_true", "is_number", "is_text", "nulls", "whole", "whole_or_missing"]

_WHOLE = r"^-?(0|[1-9]\d{0,17})$"


def cleaned(table: Any, name: str) -> Any:
    """A column as one array: categories as what they stand for, texts trimmed, nothing for NaN and the empty text."""
    values = table[name].combine_chunks()
    if pa.types.is_dictionary(values.type):
        known = values.dictionary
        values = (known.cast(pa.large_string()) if is_text(known.type) else known).take(values.indices)
    if pa.types.is_floating(values.type):
        return _without(values, pc.is_nan(values))
    if is_text(values.type):
        values = pc.utf8_trim_whitespace(values.cast(pa.large_string()))
        return _without(values, pc.equal(values, ""))
    return values


def is_text(kind: Any) -> bool:
    """Whether values of an Arrow type are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: Any) -> bool:
    """Whether values of an Arrow type are numbers or truth values."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def whole(values: Any) -> Any:
    """Numbers, or texts of numbers, as int64; nothing where that would change one."""
    if is_text(values.type):
        values = _bare(values)
        if not pc.all(pc.match_substring_regex(values, _WHOLE), min_count=0).as_py():
            return None
    elif not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return None
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def whole_or_missing(values: Any) -> Any:
    """Each value as int64 where it is one."""
    if is_text(values.type):
        values = _bare(values)
        values = _without(values, pc.invert(pc.match_substring_regex(values, _WHOLE)))
    elif pa.types.is_floating(values.type):
        values = _without(values, pc.not_equal(values, pc.floor(values)))
    found = whole(values)
    return pa.nulls(len(values), pa.int64()) if found is None else found


def first_true(is_odd: Any) -> int | None:
    """Place of the first true value."""
    found = np.flatnonzero(np.asarray(is_odd))
    return int(found[0]) if len(found) else None


def nulls(values: Any) -> np.ndarray:
    """Which values are missing."""
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=bool)


def _without(values: Any, is_odd: Any) -> Any:
    """Nothing in place of the odd values."""
    return pc.if_else(is_odd, pa.scalar(None, values.type), values)


def _bare(texts: Any) -> Any:
    """Texts without what a whole number does not need: a plus before it, zeros behind a point."""
    return pc.replace_substring_regex(texts, r"^\+|\.0+$", "")
