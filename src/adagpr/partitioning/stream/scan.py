"""One reading of the table of nodes: ids, classes and what it says of the split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from adagpr.errors import InputError
from adagpr.partitioning.parts import ROLES
from adagpr.partitioning.stream import sizes
from adagpr.partitioning.stream.job import Job
from adagpr.partitioning.stream.values import cleaned, first_true, is_number, is_text, nulls, whole

__all__ = ["NodeScan"]

MAX_CLASSES = 10_000
_PART_OF = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val"}
_PART_OF |= {"test": "test", "testing": "test"}


class NodeScan:
    """What is kept of each row of the table of nodes, batch by batch."""

    def __init__(self, job: Job, num_nodes: int) -> None:
        self._job, self._table, self._columns, self._num_nodes = job, job.nodes, job.columns, num_nodes
        self._labels = _Labels(self._table.where(self._columns.label), self._table.is_text)
        self._ids: list[Any] = []
        self._roles: list[np.ndarray] = []

    def read(self, as_whole: bool) -> bool:
        """Reads the table; false where ids were to be whole numbers and are not."""
        names = self._columns
        for first, table in self._table.batches(dict.fromkeys(names.of_nodes, pa.large_string()), sizes.MAX_ROWS):
            ids = self._checked_ids(cleaned(table, names.id), first, as_whole)
            if ids is None:
                return False
            self._ids.append(ids)
            self._labels.add(cleaned(table, names.label))
            if names.split is not None:
                self._roles.append(self._named_roles(cleaned(table, names.split), first))
            self._job.tell("reading the nodes", first + table.num_rows, self._num_nodes)
        return True

    @property
    def role(self) -> np.ndarray:
        """The part of the split that each row names, 0 for none."""
        return np.concatenate(self._roles) if self._roles else np.zeros(self._num_nodes, dtype=np.int8)

    def ordered(self) -> tuple[Any, np.ndarray | None]:
        """The ids in order, and the row of each unless that is the order of the table."""
        ids = pa.concat_arrays(self._ids)
        self._ids = []
        if pc.all(pc.less(ids[:-1], ids[1:]), min_count=0).as_py():
            return ids, None
        order = pc.array_sort_indices(ids)
        ids = ids.take(order)
        twice = first_true(pc.equal(ids[:-1], ids[1:]).to_numpy(zero_copy_only=False))
        if twice is not None:
            rows = sorted(order[twice : twice + 2].to_pylist())
            raise InputError(
                f"{self._table.where(self._columns.id)}: the id '{ids[twice]}' stands in more than one row: rows "
                f"{rows[0] + 1} and {rows[1] + 1}."
            )
        return ids, order.to_numpy().astype(np.int64)

    def classes(self) -> tuple[np.ndarray, list[str]]:
        """The class of each row, -1 where it is unknown, and the names of the classes in order."""
        return self._labels.classes()

    def _checked_ids(self, ids: Any, first: int, as_whole: bool) -> Any:
        """The ids of a batch; nothing where they were to be whole numbers and are not."""
        missing = first_true(nulls(ids))
        if missing is not None:
            raise InputError(f"{self._table.where(self._columns.id, first + missing)}: the id is missing.")
        if as_whole:
            return whole(ids)
        if not is_text(ids.type):
            where = self._table.where(self._columns.id)
            raise InputError(f"{where}: ids must be whole numbers or texts, not {ids.type}.")
        return ids

    def _named_roles(self, values: Any, first: int) -> np.ndarray:
        texts = pc.utf8_lower(values.cast(pa.large_string()))
        found = pc.fill_null(pc.index_in(texts, value_set=pa.array(list(_PART_OF), pa.large_string())), -1)
        codes = found.to_numpy(zero_copy_only=False)
        odd = first_true((codes < 0) & ~nulls(texts))
        if odd is not None:
            raise InputError(
                f"{self._table.where(str(self._columns.split), first + odd)}: '{values[odd]}' is no part of a split; "
                "expected train, val or test."
            )
        roles: np.ndarray = np.array([*(ROLES[name] for name in _PART_OF.values()), 0], dtype=np.int8)[codes]
        return roles


class _Labels:
    """The labels of all rows, as numbers in the order in which they first appear."""

    def __init__(self, where: str, is_text: bool) -> None:
        self._where, self._is_text = where, is_text
        self._code_of: dict[Any, int] = {}
        self._codes: list[np.ndarray] = []

    def add(self, values: Any) -> None:
        """Adds the labels of a batch."""
        encoded = self._checked(values).dictionary_encode()
        known = [self._code_of.setdefault(label, len(self._code_of)) for label in encoded.dictionary.to_pylist()]
        if len(self._code_of) > MAX_CLASSES:
            raise InputError(
                f"{self._where}: there are more than {MAX_CLASSES} different values; labels must be classes."
            )
        places = pc.fill_null(encoded.indices, len(known)).to_numpy(zero_copy_only=False)
        self._codes.append(np.array([*known, -1], dtype=np.int32)[places])

    def classes(self) -> tuple[np.ndarray, list[str]]:
        """The class of each row, -1 where it is unknown, and the names of the classes in order."""
        labels = _canonical(list(self._code_of)) if self._is_text else list(self._code_of)
        ordered = sorted(set(labels))
        if len(ordered) < 2:
            raise InputError(
                f"{self._where}: there are {len(ordered)} different labels; at least two classes are needed to learn."
            )
        place = {label: number for number, label in enumerate(ordered)}
        class_of = np.array([*(place[label] for label in labels), -1], dtype=np.int32)
        texts = [str(label).lower() if isinstance(label, bool) else str(label) for label in ordered]
        return class_of[np.concatenate(self._codes)], texts

    def _checked(self, values: Any) -> Any:
        """Labels of a kind that can be counted; whole numbers as such."""
        if pa.types.is_floating(values.type):
            values = whole(values)
            if values is None:
                raise InputError(f"{self._where}: labels must be classes, not a measure.")
        elif pa.types.is_temporal(values.type):
            values = values.cast(pa.large_string())
        if not (is_text(values.type) or is_number(values.type) or pa.types.is_null(values.type)):
            raise InputError(f"{self._where}: values of the type {values.type} cannot be labels.")
        return values


def _canonical(labels: list[str]) -> list[Any]:
    """Labels of a text file as truth values or whole numbers where all are."""
    lower = [label.lower() for label in labels]
    if set(lower) <= {"true", "false"}:
        return [label == "true" for label in lower]
    numbers = whole(pa.array(labels, pa.large_string()))
    return labels if numbers is None else list(numbers.to_pylist())
