from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adagpr.data import random_split, random_splits
from adagpr.data.splits import labelled_split, parse_split
from adagpr.errors import InputError

labels = st.lists(st.integers(-1, 4), min_size=1, max_size=80).map(lambda some: torch.tensor([*some, 0, 0, 0, 1, 1, 1]))
fractions = st.tuples(*[st.floats(0.01, 1.0)] * 3).map(lambda some: tuple(share / sum(some) for share in some))


@given(y=labels, seed=st.integers(0, 2**40), shares=fractions)
def test_a_random_split_uses_each_labelled_node_at_most_once_and_no_other(
    y: torch.Tensor, seed: int, shares: tuple[float, float, float]
) -> None:
    split = random_split(y, seed, shares)
    used = torch.cat([split.train, split.val, split.test])
    assert len(used.unique()) == len(used) == int((y >= 0).sum())
    assert bool((y[used] >= 0).all())


@given(y=labels, seed=st.integers(0, 100), shares=fractions)
def test_every_class_of_three_nodes_or_more_is_in_each_part(
    y: torch.Tensor, seed: int, shares: tuple[float, float, float]
) -> None:
    split = random_split(y, seed, (shares[0] / 2, shares[1] / 2, shares[2] / 2))
    large = {label for label in range(5) if int((y == label).sum()) >= 3}
    assert all(large <= set(y[part].tolist()) for part in (split.train, split.val, split.test))


def test_fractions_hold_in_every_class() -> None:
    y = torch.tensor([0] * 100 + [1] * 50)
    split = random_split(y, 0, (0.6, 0.2, 0.2))
    assert [int((y[part] == 1).sum()) for part in (split.train, split.val, split.test)] == [30, 10, 10]
    assert len(random_split(y, 0, (0.2, 0.2, 0.2)).test) == 30


def test_a_seed_gives_one_split_and_another_seed_another() -> None:
    y = torch.arange(200) % 3
    assert torch.equal(random_split(y, 7).train, random_split(y, 7).train)
    assert not torch.equal(random_split(y, 7).train, random_split(y, 8).train)
    assert [split.name for split in random_splits(y, 3, seed=5)] == ["random/5", "random/6", "random/7"]


def test_a_split_by_labels_has_that_many_training_nodes_a_class() -> None:
    y = torch.cat([torch.arange(90) % 3, torch.tensor([-1] * 5)])
    split = labelled_split(y, num_per_class=4, num_val=20)
    assert y[split.train].bincount().tolist() == [4, 4, 4]
    assert (len(split.val), len(split.test)) == (20, 58)


@pytest.mark.parametrize(
    "shares", [(0.6, 0.2), (0.6, 0.2, 0.0), (0.6, 0.3, 0.2), (0.6, float("nan"), 0.2), "all", None]
)
def test_wrong_fractions_are_refused(shares: Any) -> None:
    with pytest.raises(InputError, match="fractions must be three numbers above 0 that sum to at most 1"):
        random_split(torch.arange(9) % 3, 0, shares)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
def test_wrong_seeds_are_refused(seed: Any) -> None:
    with pytest.raises(InputError, match="seed must be a whole number from 0 up"):
        random_split(torch.arange(9) % 3, seed)


def test_without_any_label_there_is_nothing_to_split() -> None:
    with pytest.raises(InputError, match="every label is missing"):
        random_split(torch.tensor([-1, -1]))


@pytest.mark.parametrize(
    ("spec", "kind", "number"),
    [
        ("public", "public", None),
        ("geom-gcn", "geom-gcn", None),
        ("geom-gcn/3", "geom-gcn", 3),
        ("random/70", "random", 70),
    ],
)
def test_a_split_text_is_a_kind_and_perhaps_a_number(spec: str, kind: str, number: int | None) -> None:
    assert parse_split(spec, ["public", "geom-gcn", "random"], 10, "x") == (kind, number)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("publik", r"Unknown split 'publik'\. Did you mean 'public'\? See: adagpr data info cora"),
        ("public/1", "Unknown split 'public/1'"),
        ("geom-gcn/10", "the data set's splits are geom-gcn/0 to geom-gcn/9"),
        ("geom-gcn/-1", "must be a whole number, got '-1'"),
        ("random/", "must be a whole number, got ''"),
        ("given", "Unknown split 'given'"),
    ],
)
def test_wrong_split_texts_are_refused(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_split(spec, ["public", "geom-gcn", "random"], 10, "adagpr data info cora")
