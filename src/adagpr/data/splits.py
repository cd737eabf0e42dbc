"""Which nodes a model learns from, is chosen on, and is reported on.

Splits by class are drawn from their own random stream, so that the same seed gives the same split whatever else was
drawn before. See `adagpr.load` for the names by which a split is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from adagpr.data.catalogue import DEFAULT_FRACTIONS
from adagpr.errors import InputError, unknown_name
from adagpr.graph import Split
from adagpr.seeding import stream

# Kinds of split whose number is a seed.
_DRAWN = ("random", "stratified")


def random_split(y: Tensor, seed: int = 0, fractions: Sequence[float] = DEFAULT_FRACTIONS) -> Split:
    """Draws one split class by class.

    Every class gives each part its fraction, rounded; a class of three nodes or more gives each part at least one
    node. If a class has one node, it is a training node; if it has two, one is for training and one for the test.
    Nodes without a label (-1 in ``y``) are in no part, and neither is the rest if the ``fractions``, each above 0,
    sum to less than 1.
    """
    check_seed("random_split", seed)
    shares = _check_fractions(fractions)
    generator = stream(seed, "split")
    labels = y.numpy()
    chosen = []
    for label in np.unique(labels[labels >= 0]):
        members = generator.permutation(np.flatnonzero(labels == label))
        chosen.append(np.split(members, np.cumsum(_sizes(len(members), shares)))[:3])
    if not chosen:
        raise InputError("random_split: every label is missing; there is nothing to split.")
    train, val, test = (torch.from_numpy(np.sort(np.concatenate(part))) for part in zip(*chosen, strict=True))
    return Split(train, val, test, f"random/{seed}")


def random_splits(y: Tensor, num: int, seed: int = 0, fractions: Sequence[float] = DEFAULT_FRACTIONS) -> list[Split]:
    """Draws ``num`` splits with the seeds ``seed``, ``seed + 1`` and so on; see `random_split`."""
    if num < 1:
        raise InputError(f"random_splits: num must be at least 1, got {num}.")
    return [random_split(y, seed + i, fractions) for i in range(num)]


def labelled_split(y: Tensor, num_per_class: int, num_val: int, seed: int = 0) -> Split:
    """Draws ``num_per_class`` training nodes per class and ``num_val`` validation nodes; the rest is for the test."""
    check_seed("labelled_split", seed)
    generator = stream(seed, "labelled split")
    labels = y.numpy()
    order = generator.permutation(np.flatnonzero(labels >= 0))
    is_train = np.zeros(len(order), dtype=bool)
    for label in np.unique(labels[order]):
        is_train[np.flatnonzero(labels[order] == label)[:num_per_class]] = True
    rest = order[~is_train]
    train, val, test = (torch.from_numpy(np.sort(part)) for part in (order[is_train], rest[:num_val], rest[num_val:]))
    return Split(train, val, test, f"labelled-{num_per_class}")


def mask_split(train: np.ndarray, val: np.ndarray, test: np.ndarray, name: str) -> Split:
    """Makes a split of three masks over the nodes."""
    parts = [torch.from_numpy(np.flatnonzero(mask).astype(np.int64)) for mask in (train, val, test)]
    return Split(parts[0], parts[1], parts[2], name)


def parse_split(spec: str, offered: Iterable[str], count: int, see: str) -> tuple[str, int | None]:
    """The kind of a split that is asked for, and the number after the slash if there is one.

    The kind must be one of those ``offered``; ``count`` is how many numbered splits there are of kinds that are not
    drawn by a seed, and ``see`` the command that lists the kinds.
    """
    kinds = list(offered)
    kind, slash, number = spec.partition("/")
    if kind not in kinds or (slash and kind not in (*_DRAWN, "geom-gcn", "given")):
        raise unknown_name("split", spec, kinds, see=see)
    if not slash:
        return kind, None
    if not (number.isascii() and number.isdigit()):
        raise InputError(f"Split '{spec}': what follows the slash must be a whole number, got '{number}'.")
    if kind not in _DRAWN and int(number) >= count:
        raise InputError(f"Split '{spec}': the data set's splits are {kind}/0 to {kind}/{count - 1}.")
    return kind, int(number)


def check_seed(who: str, seed: int) -> None:
    """Raises an `InputError` unless ``seed`` is a whole number from 0 up."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InputError(f"{who}: seed must be a whole number from 0 up, got {seed!r}.")


def _check_fractions(fractions: Sequence[float]) -> np.ndarray:
    """The fractions as an array, checked."""
    try:
        shares = np.asarray(fractions, dtype=np.float64)
    except (TypeError, ValueError):
        shares = np.empty(0)
    if shares.shape != (3,) or not (shares > 0).all() or not shares.sum() <= 1 + 1e-9:
        raise InputError(
            "random_split: fractions must be three numbers above 0 that sum to at most 1 (train, val, test), "
            f"got {tuple(fractions) if isinstance(fractions, Sequence) else fractions!r}."
        )
    return shares


def _sizes(count: int, shares: np.ndarray) -> np.ndarray:
    """How many of a class's ``count`` nodes go to train, val and test."""
    if count < 3:
        return np.array([[0, 0, 0], [1, 0, 0], [1, 0, 1]][count])
    bounds = np.floor(np.cumsum(shares) * count + 0.5 + 1e-9).astype(np.int64)
    sizes = np.diff(bounds, prepend=0)
    for part in np.flatnonzero(sizes == 0):
        sizes[part] = 1
        if sizes.sum() > count:
            sizes[np.argmax(sizes)] -= 1
    return sizes
