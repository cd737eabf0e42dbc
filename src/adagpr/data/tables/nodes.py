"""What a table says of its nodes beside features: their ids, their classes, and their parts of the split.

Nodes are put in the order of their ids: whole numbers by size, all else as texts. Ids of two tables are compared as
whole numbers where both are, or where one side's texts are whole numbers too; else as texts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from adagpr.data.catalogue import DEFAULT_FRACTIONS
from adagpr.data.splits import random_split
from adagpr.data.tables.table import TableData
from adagpr.data.tables.values import as_texts, as_whole, flags, places_in, pluralize, quoted
from adagpr.errors import InputError
from adagpr.graph import SPLIT_NAMES, Split

# What a column of the split may say, in any case.
PART_OF = {"train": "train", "training": "train", "test": "test", "testing": "test"}
PART_OF |= dict.fromkeys(("val", "valid", "validation", "dev"), "val")
# More different values than this, on more than half of the rows, are measurements or texts and not classes.
_MAX_CLASSES = 100
# More than this are not kept, however many rows there are.
_MAX_DISTINCT = 1 << 20
# A class needs this many nodes to be in each of the three parts.
_MIN_NODES = 3
_WHOLE = r"^[+-]?\d{1,18}$"
# Texts that are as others but for blanks around them or zeros before them, and zeros that a number does not need.
_BLANKS = " \t\n\v\f\r"
_LOOSE, _ZEROS = r"^\s|\s$|^0\d+$", r"^0+(\d+)$"
_NUM_CLASSES_SHOWN, _NUM_IDS_SHOWN = 5, 3


def ids_of(table: TableData, column: str) -> Any:
    """A column of ids as int64 where all are whole numbers, else as texts; a missing id is an error."""
    if table.kind(column) == "other":
        raise InputError(f"{table.where(column)}: values of the type {table.values(column).type} cannot be ids.")
    missing = table.missing(column)
    count = int(missing.sum())
    more = f" ({count} such rows)" if count > 1 and not table.is_part else ""
    table.refuse(column, missing, f"the id is missing{more}.")
    whole = as_whole(table.values(column))
    return table.texts(column) if whole is None else whole


def ordered_ids(ids: Any, where: str) -> tuple[Any, np.ndarray | None]:
    """The ids in order, and the position that each had unless that is the order already; a repeated id is an error."""
    if pc.all(pc.less(ids[:-1], ids[1:]), min_count=0).as_py():
        return ids, None
    order = pc.array_sort_indices(ids)
    ordered = ids.take(order)
    repeats = np.flatnonzero(flags(pc.equal(ordered[:-1], ordered[1:])))
    if len(repeats):
        raise _repeated(ids, ordered.take(pa.array(repeats)).unique(), where)
    return ordered, order.to_numpy().astype(np.int64)


def id_messages(ids: Any, where: str) -> list[str]:
    """A sentence on ids that look alike and are those of different nodes; ids are in the order of the table."""
    if not pa.types.is_large_string(ids.type) or (pair := _alike(ids)) is None:
        return []
    shown = " and ".join(f"{quoted(ids[place])} (row {place + 1})" for place in pair)
    return [f"{where}: ids that differ only by blanks or leading zeros are kept apart: {shown}."]


def _alike(texts: Any) -> tuple[int, int] | None:
    """The places of two texts that differ only by blanks or leading zeros, if there are such."""
    loose = np.flatnonzero(_matches(texts, _LOOSE))
    if len(loose) == 0:
        return None
    keys = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts.take(pa.array(loose))), _ZEROS, r"\1")
    firsts, others = loose[places_in(keys, keys)], places_in(texts, keys)
    partners = np.where(others >= 0, others, firsts)
    found = np.flatnonzero(partners != loose)
    if len(found) == 0:
        return None
    one, other = sorted((int(loose[found[0]]), int(partners[found[0]])))
    return one, other


def _repeated(ids: Any, repeated: Any, where: str) -> InputError:
    """The error for ids of which some are repeated."""
    shown = []
    for repeat in repeated[:_NUM_IDS_SHOWN]:
        rows = np.flatnonzero(flags(pc.equal(ids, repeat))) + 1
        more = ", ..." if len(rows) > 2 else ""
        shown.append(f"{quoted(repeat)} (rows {rows[0]} and {rows[1]}{more})")
    what = "1 id is" if len(repeated) == 1 else f"{len(repeated)} ids are"
    first = "" if len(repeated) <= _NUM_IDS_SHOWN else "the first "
    return InputError(f"{where}: {what} in more than one row: {first}{', '.join(shown)}.")


class IdLookup:
    """Finds nodes by their id: whole numbers or texts in order, or a number where ids are those from 0 up to it."""

    def __init__(self, ids: Any) -> None:
        self._ids = ids
        self._is_text = not isinstance(ids, int) and pa.types.is_large_string(ids.type)
        # How many ids were found that are written with other zeros before them, and the first of them in order.
        self._num_joined, self._joined = 0, ""

    @property
    def is_coded(self) -> bool:
        """Whether ids are texts that are whole numbers too, so that it matters what all ends of edges are."""
        return self._is_text and self._numbers is not None

    def messages(self, edges: str, ids_at: str) -> list[str]:
        """A sentence on ids of the table called ``edges`` that were found under another spelling."""
        if not self._num_joined:
            return []
        ids = "1 id has" if self._num_joined == 1 else f"{self._num_joined} ids have"
        are = "was" if self._num_joined == 1 else "were"
        shown = quoted(self._joined)
        return [f"{edges}: {ids} other leading zeros than in {ids_at}, and {are} joined, such as {shown}."]

    def _note(self, values: Any, joined: np.ndarray) -> None:
        if joined.any():
            first = str(pc.min(values.filter(pa.array(joined))).as_py())
            self._joined = min(first, self._joined or first)
            self._num_joined += int(joined.sum())

    def places(self, values: Any) -> np.ndarray:
        """The place of each id from `ids_of` among those of the nodes, -1 for one that no node has."""
        is_text = pa.types.is_large_string(values.type)
        if self._is_text and not is_text and self._numbers is not None:
            order, numbers = self._numbers
            places = _places(numbers, values)
            places = np.where(places < 0, -1, order[places])
            self._note(values, (places >= 0) & self._has_zeros[places])
            return places
        if self._is_text:
            return places_in(self._ids, values if is_text else values.cast(pa.large_string()))
        ids = self._ids if isinstance(self._ids, int) else self._ids.to_numpy()
        places = _places(ids, _whole_texts(values) if is_text else values)
        if is_text:
            self._note(values, (places >= 0) & _matches(values, _ZEROS))
        return places

    @cached_property
    def _has_zeros(self) -> np.ndarray:
        """Which ids that are texts have zeros before them."""
        return _matches(self._ids, _ZEROS)

    @cached_property
    def _numbers(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Ids that are texts as whole numbers in order, behind their places; none where they are no such numbers."""
        whole = _whole_texts(self._ids)
        if whole.null_count or pc.count_distinct(whole).as_py() < len(whole):
            return None
        order = pc.array_sort_indices(whole)
        return order.to_numpy().astype(np.int64), whole.take(order).to_numpy()


def _places(ids: np.ndarray | int, values: Any) -> np.ndarray:
    """The place of each whole number among ids in order, -1 where it is missing or none of them."""
    known = flags(values.is_valid()) if values.null_count else True
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    if isinstance(ids, int):
        return np.where((numbers >= 0) & (numbers < ids) & known, numbers, -1)
    places = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
    return np.where((ids[places] == numbers) & known, places, -1)


def _matches(texts: Any, pattern: str) -> np.ndarray:
    return flags(pc.fill_null(pc.match_substring_regex(texts, pattern), False))


def _whole_texts(texts: Any) -> Any:
    """Texts as whole numbers, missing where they are none."""
    is_whole = pc.match_substring_regex(texts, _WHOLE)
    kept = pc.if_else(is_whole, pc.replace_substring_regex(texts, r"^\+", ""), pa.scalar(None, texts.type))
    return kept.cast(pa.int64())


class Labels:
    """The labels of a table's rows, collected block by block."""

    def __init__(self, where: str, column: str) -> None:
        self._where, self._column = where, column
        self._code_of: dict[Any, int] = {}
        self._codes: list[np.ndarray] = []
        self._num_known = 0
        # The labels of a text file as they are written.
        self._written: set[str] = set()

    def add(self, block: TableData) -> None:
        """Adds the labels of a block."""
        values = self._countable(block)
        encoded = values.dictionary_encode()
        if block.is_text and pa.types.is_large_string(values.type):
            self._written.update(pc.unique(block.columns[self._column]).to_pylist())
        known = [self._code_of.setdefault(label, len(self._code_of)) for label in encoded.dictionary.to_pylist()]
        self._num_known += len(values) - values.null_count
        if len(self._code_of) > _MAX_DISTINCT:
            raise self._too_many()
        places = pc.fill_null(encoded.indices, len(known)).to_numpy(zero_copy_only=False)
        self._codes.append(np.array([*known, -1], dtype=np.int32)[places])

    def classes(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The class of each row, -1 where the label is missing, and the names of the classes.

        Names are in the order of size for numbers, of the alphabet for texts.
        """
        if not self._code_of:
            raise InputError(f"{self._where}: every label is missing; at least two classes are needed to learn.")
        if len(self._code_of) > _MAX_CLASSES and 10 * len(self._code_of) > self._num_known:
            raise self._too_many()
        labels = sorted(self._code_of)
        names = tuple(str(label).lower() if isinstance(label, bool) else str(label) for label in labels)
        if len(labels) == 1:
            raise InputError(
                f"{self._where}: every known label is {quoted(names[0])}; at least two classes are needed to learn."
            )
        place = {label: number for number, label in enumerate(labels)}
        class_of = np.array([*(place[label] for label in self._code_of), -1], dtype=np.int32)
        return class_of[np.concatenate(self._codes)], names

    def messages(self) -> list[str]:
        """Sentences on labels that look alike: joined, as blanks of a text file do not count, or kept apart."""
        messages, spellings = [], defaultdict(list)
        for text in sorted(self._written):
            spellings[text.strip(_BLANKS)].append(text)
        about = f"Labels of column '{self._column}' that differ only by blanks"
        for label, written in spellings.items():
            if len(written) > 1 and label in self._code_of:
                messages.append(f"{about} are joined: {' and '.join(map(quoted, written))}.")
                break
        names = pa.array(sorted(label for label in self._code_of if isinstance(label, str)), pa.large_string())
        if (pair := _alike(names)) is not None:
            shown = " and ".join(quoted(names[place]) for place in pair)
            messages.append(f"{about} or leading zeros are kept apart: {shown}.")
        return messages

    def _countable(self, block: TableData) -> Any:
        """Labels as whole numbers, truth values or texts."""
        kind, values = block.kind(self._column), block.values(self._column)
        if kind == "other":
            raise InputError(f"{self._where}: values of the type {values.type} cannot be labels.")
        if kind in ("whole", "real"):
            whole = as_whole(values)
            if whole is None:
                numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.float64)
                odd = ~np.isfinite(numbers) | (numbers != np.floor(numbers)) | (np.abs(numbers) > 2.0**53)
                block.refuse(self._column, odd, "the label is {}; labels must be classes, not a measure.", numbers)
            return whole
        return values if kind == "boolean" else block.texts(self._column)

    def _too_many(self) -> InputError:
        return InputError(
            f"{self._where}: there are {len(self._code_of)} different values on {self._num_known} rows; labels must be "
            "classes that return, not measurements or texts."
        )


def named_classes(nodes: TableData, column: str, names: Sequence[str]) -> Tensor:
    """The class of each node among classes that are known already; another label is an error that names the row."""
    nodes.require(column)
    texts = as_texts(nodes.values(column))
    y = places_in(pa.array(names, pa.large_string()), texts)
    nodes.refuse(column, (y < 0) & ~nodes.missing(column), "{} is none of the classes of the model.", texts)
    return torch.from_numpy(y)


def label_messages(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Sentences on nodes without a label, and on classes with too few nodes to be in every part of a split."""
    num_missing = int((y < 0).sum())
    messages = [f"Without a label: {num_missing} of {len(y)} nodes."] if num_missing else []
    counts = np.bincount(y[y >= 0], minlength=len(names))
    rare = [f"{quoted(name)} ({count})" for name, count in zip(names, counts, strict=True) if 0 < count < _MIN_NODES]
    if rare:
        more = f" and {len(rare) - _NUM_CLASSES_SHOWN} more" if len(rare) > _NUM_CLASSES_SHOWN else ""
        messages.append(
            f"With fewer than {_MIN_NODES} labelled nodes, so that validation and test cannot show how well they are "
            f"learnt: {len(rare)} of {len(names)} classes, {', '.join(rare[:_NUM_CLASSES_SHOWN])}{more}."
        )
    return messages


def stratified_split(y: Tensor, seed: int = 0, fractions: Sequence[float] = DEFAULT_FRACTIONS) -> Split | None:
    """Draws one split class by class as `random_split` does; every node of a class of one or two is for training.

    There is none if every class has fewer than three labelled nodes.
    """
    labels = y.numpy()
    counts = np.bincount(labels[labels >= 0], minlength=1)
    rare = (labels >= 0) & (counts < _MIN_NODES)[labels]
    common = np.where(rare, -1, labels)
    if (common < 0).all():
        return None
    split = random_split(torch.from_numpy(common), seed, fractions)
    train = torch.cat([split.train, torch.from_numpy(np.flatnonzero(rare))]).sort().values
    return replace(split, train=train, name=f"stratified/{seed}")


def split_codes(nodes: TableData, column: str) -> np.ndarray:
    """The part of the split that each row names: 1, 2 or 3 for train, val or test, and 0 where there is no value."""
    texts = pc.utf8_lower(nodes.texts(column))
    places = places_in(pa.array(list(PART_OF), pa.large_string()), texts)
    odd = (places < 0) & ~nodes.missing(column)
    nodes.refuse(column, odd, "{} is no part of a split; expected train, val or test.", texts)
    numbers = np.array([*(1 + SPLIT_NAMES.index(part) for part in PART_OF.values()), 0], dtype=np.int8)
    return np.asarray(numbers[places])


def check_split_codes(codes: np.ndarray, y: np.ndarray, where: str) -> list[str]:
    """Sentences on nodes that are in a part of the split and have no label; raises where a part has no other."""
    messages, has_label = [], y >= 0
    for number, part in enumerate(SPLIT_NAMES, start=1):
        num_unlabelled = int(((codes == number) & ~has_label).sum())
        if num_unlabelled:
            reason = "it has" if num_unlabelled == 1 else "they have"
            messages.append(f"Left out of {part} because {reason} no label: {pluralize(num_unlabelled, 'node')}.")
        if not ((codes == number) & has_label).any():
            raise InputError(f"{where}: there are no {part} nodes with a label.")
    return messages
