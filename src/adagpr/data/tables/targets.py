"""Classes and splits from the columns of a node table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from adagpr.data.splits import mask_split, random_split
from adagpr.data.tables.sheet import TableData
from adagpr.data.tables.values import as_texts, as_whole, counted, quoted
from adagpr.errors import InputError
from adagpr.graph import SPLIT_NAMES, Split

__all__ = ["classes", "given_split", "named_classes", "rare_classes", "split_column_of", "stratified_split"]

# More different values than this, on more than half of the rows, are measurements or texts and not classes.
_MAX_CLASSES = 100
# A class needs this many nodes to be in each of the three parts.
_MIN_NODES = 3
_PART_OF = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}
_NUM_SHOWN = 5


def classes(nodes: TableData, column: str) -> tuple[Tensor, tuple[str, ...]]:
    """The class of each node, -1 where the label is missing, and the names of the classes.

    Names are in the order of size for numbers, of the alphabet for texts.

    Raises:
        InputError: The column is not there, all missing, of one class only, or no classes but measurements or texts.
    """
    nodes.require(column)
    kind = nodes.kind(column)
    if kind == "missing":
        raise InputError(f"{nodes.where(column)}: every label is missing; at least two classes are needed to learn.")
    if kind == "other":
        raise InputError(f"{nodes.where(column)}: values of the type {nodes.values(column).type} cannot be labels.")
    values = nodes.values(column)
    if kind in ("whole", "real"):
        whole = as_whole(values)
        if whole is None:
            raise _continuous(nodes, column)
        values = whole
    elif kind != "boolean":
        values = nodes.texts(column)
    known = values.drop_null()
    distinct = pc.unique(known)
    if len(distinct) > _MAX_CLASSES and 2 * len(distinct) > len(known):
        raise InputError(
            f"{nodes.where(column)}: there are {len(distinct)} different values on {len(known)} rows; labels must be "
            "classes that return, not measurements or texts."
        )
    if len(distinct) == 1:
        raise InputError(
            f"{nodes.where(column)}: every known label is {quoted(as_texts(distinct)[0])}; at least two classes are "
            "needed to learn."
        )
    # Truth values cannot be sorted by Arrow; as whole numbers they can.
    is_boolean = pa.types.is_boolean(distinct.type)
    order = pc.array_sort_indices(distinct.cast(pa.int8()) if is_boolean else distinct)
    distinct = distinct.take(order)
    y = pc.fill_null(pc.index_in(values, value_set=distinct), -1).to_numpy(zero_copy_only=False)
    y = np.where(nodes.missing(column), -1, y).astype(np.int64)
    return torch.from_numpy(y), tuple(as_texts(distinct).to_pylist())


def named_classes(nodes: TableData, column: str, names: Sequence[str]) -> Tensor:
    """The class of each node among classes that are known already; another label is an error that names the row."""
    nodes.require(column)
    texts = as_texts(nodes.values(column)) if nodes.kind(column) != "text" else nodes.texts(column)
    found = pc.fill_null(pc.index_in(texts, value_set=pa.array(names, pa.large_string())), -1)
    y = found.to_numpy(zero_copy_only=False).astype(np.int64)
    odd = (y < 0) & ~nodes.missing(column)
    if odd.any():
        position = nodes.first(odd)
        raise InputError(
            f"{nodes.where(column, position)}: {quoted(texts[position])} is none of the classes of the model."
        )
    return torch.from_numpy(y)


def _continuous(nodes: TableData, column: str) -> InputError:
    numbers = pc.fill_null(nodes.values(column), 0).to_numpy(zero_copy_only=False).astype(np.float64)
    odd = ~np.isfinite(numbers) | (numbers != np.floor(numbers)) | (np.abs(numbers) > 2.0**53)
    position = nodes.first(odd) if odd.any() else 0
    return InputError(
        f"{nodes.where(column, position)}: the label is {numbers[position]:g}; labels must be classes, not a measure."
    )


def rare_classes(y: Tensor, names: Sequence[str]) -> list[str]:
    """Sentences on classes with too few labelled nodes to be in every part of a split."""
    counts = np.bincount(y.numpy()[y.numpy() >= 0], minlength=len(names))
    rare = [f"{quoted(name)} ({count})" for name, count in zip(names, counts, strict=True) if 0 < count < _MIN_NODES]
    if not rare:
        return []
    shown = ", ".join(rare[:_NUM_SHOWN]) + (f" and {len(rare) - _NUM_SHOWN} more" if len(rare) > _NUM_SHOWN else "")
    return [
        f"With fewer than {_MIN_NODES} labelled nodes, so that validation and test cannot show how well they are "
        f"learnt: {len(rare)} of {len(names)} classes, {shown}."
    ]


def stratified_split(y: Tensor, seed: int = 0, fractions: Sequence[float] = (0.6, 0.2, 0.2)) -> Split | None:
    """Draws one split class by class; every node of a class of one or two is for training.

    Args:
        y: Class of each node, -1 where unknown.
        seed: Chooses the split; not negative.
        fractions: Shares of train, val and test, each above 0, together at most 1.

    Returns:
        A split named ``stratified/<seed>``, or none if every class has fewer than three labelled nodes.

    Example:
        >>> split = stratified_split(torch.tensor([0] * 5 + [1] * 5 + [2, 2]))
        >>> split.name, split.train.tolist()[-2:]
        ('stratified/0', [10, 11])
    """
    labels = y.numpy()
    counts = np.bincount(labels[labels >= 0], minlength=1)
    rare = (labels >= 0) & (counts[labels] < _MIN_NODES)
    common = np.where(rare, -1, labels)
    if (common < 0).all():
        return None
    split = random_split(torch.from_numpy(common), seed, fractions)
    train = torch.cat([split.train, torch.from_numpy(np.flatnonzero(rare))]).sort().values
    return replace(split, train=train, name=f"stratified/{seed}")


def split_column_of(nodes: TableData, given: str | None) -> str | None:
    """The column that says which part a node is in: the one named, or one called split with nothing but parts in it."""
    if given is not None:
        nodes.require(given)
        return given
    for column in nodes.names:
        if column.strip().casefold() in ("split", "part", "set") and nodes.kind(column) == "text":
            found = pc.utf8_lower(pc.unique(nodes.texts(column).drop_null())).to_pylist()
            if set(found) <= set(_PART_OF):
                return column
    return None


def given_split(nodes: TableData, column: str, y: Tensor) -> tuple[Split, list[str]]:
    """The split of a column with train, val and test in it, and sentences on what was left out.

    A node with no value is in no part, nor is one without a label.
    """
    texts = pc.utf8_lower(nodes.texts(column))
    found = pc.index_in(texts, value_set=pa.array(list(_PART_OF), pa.large_string()))
    codes = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    odd = (codes < 0) & ~nodes.missing(column)
    if odd.any():
        position = nodes.first(odd)
        raise InputError(
            f"{nodes.where(column, position)}: {quoted(texts[position])} is no part of a split; expected train, val or "
            "test."
        )
    part_of = np.array([*_PART_OF.values(), ""])[codes]
    has_label = y.numpy() >= 0
    masks = {part: (part_of == part) & has_label for part in SPLIT_NAMES}
    messages = []
    for part in SPLIT_NAMES:
        num_unlabelled = int(((part_of == part) & ~has_label).sum())
        if num_unlabelled:
            messages.append(f"Left out of {part} for want of a label: {counted(num_unlabelled, 'node')}.")
        if not masks[part].any():
            raise InputError(f"{nodes.where(column)}: there are no {part} nodes with a label.")
    return mask_split(masks["train"], masks["val"], masks["test"], "given"), messages
