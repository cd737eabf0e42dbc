"""The first and the last map of a network against the operations that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr import seeding
from adagpr.ops import Features, SparseFeatures, drop_features, dropout, features, first_maps, kernels, last_map, linear
from tests.ops import keep_mask

NUM_NODES, NUM_FEATURES, WIDTH = 40, 30, 16


def sparse_features(dtype: torch.dtype = torch.float32) -> SparseFeatures:
    x = features(sp.random_array((NUM_NODES, NUM_FEATURES), density=0.2, rng=np.random.default_rng(0)).tocsr(), dtype)
    assert isinstance(x, SparseFeatures)
    return x


def dense_features(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(NUM_NODES, NUM_FEATURES, dtype=dtype, generator=torch.Generator().manual_seed(0))


def networks(count: int, dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(NUM_FEATURES, WIDTH, dtype=dtype, generator=generator).t() for _ in range(count)]
    biases = [torch.randn(WIDTH, dtype=dtype, generator=generator) for _ in range(count)]
    return [item.requires_grad_() for item in weights], [item.requires_grad_() for item in biases]


@pytest.mark.parametrize("make", [sparse_features, dense_features])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("rate", [0.0, 0.6])
def test_first_maps_are_dropout_map_and_relu_of_each_network_to_the_bit(
    make: Callable[[], Features], count: int, rate: float
) -> None:
    x, outcomes = make(), []
    for together in (True, False):
        weights, biases = networks(count)
        streams = [seeding.stream(seed, "dropout") for seed in range(count)]
        if together:
            h = first_maps(x, rate, streams, weights, biases)
        else:
            triples = zip(streams, weights, biases, strict=True)
            h = torch.cat([linear(drop_features(x, rate, own), *maps).relu() for own, *maps in triples])
        (h * h.detach().cos()).sum().backward()
        drawn = [stream.bit_generator.random_raw() for stream in streams]
        gradients = [item.grad for item in (*weights, *biases) if item.grad is not None]
        outcomes.append((drawn, [h.detach(), *gradients]))
    (drawn, ours), (words, theirs) = outcomes
    assert drawn == words
    assert len(ours) == 1 + 2 * count
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("make", [sparse_features, dense_features])
def test_gradients_of_the_first_map(make: Callable[[torch.dtype], Features]) -> None:
    x = make(torch.float64)

    def run(*parameters: Tensor) -> Tensor:
        streams = [seeding.stream(seed, "dropout") for seed in range(2)]
        return first_maps(x, 0.5, streams, parameters[:2], parameters[2:])

    weights, biases = networks(2, torch.float64)
    assert torch.autograd.gradcheck(run, (*weights, *biases))


def test_features_that_are_not_constant_get_their_gradient() -> None:
    x = dense_features(torch.float64).requires_grad_()
    weights, biases = networks(1, torch.float64)

    def run(x: Tensor) -> Tensor:
        return first_maps(x, 0.5, [seeding.stream(0, "dropout")], weights, biases)

    assert torch.autograd.gradcheck(run, (x,))


@pytest.mark.parametrize("num_rows", [1, 7, 9000])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_dropout_of_what_needs_no_gradient_is_the_mask_times_its_scale(num_rows: int, num_threads: int) -> None:
    x = torch.randn(num_rows, 33)
    mask, scale = keep_mask((num_rows, 33), 0.3, seeding.stream(5, "dropout"))
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        ours = dropout(x, 0.3, seeding.stream(5, "dropout"))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(ours, x * torch.from_numpy(mask) * scale, rtol=1e-6, atol=0)
    assert torch.equal(dropout(x.requires_grad_(), 0.3, seeding.stream(5, "dropout")), ours)


def test_the_last_map_is_the_linear_map_of_the_rows_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(2)
    rows = torch.randperm(NUM_NODES, generator=generator)[:25]
    outcomes = []
    for ours in (True, False):
        generator.manual_seed(3)
        leaves = [torch.randn(shape, generator=generator) for shape in ((NUM_NODES, WIDTH), (5, WIDTH), (5,))]
        h, weight, bias = (leaf.requires_grad_() for leaf in leaves)
        logits = last_map(h, rows, weight, bias) if ours else linear(h.index_select(0, rows), weight, bias)
        torch.nn.functional.cross_entropy(logits, rows % 5).backward()
        outcomes.append([logits.detach(), h.grad, weight.grad, bias.grad])
    assert all(torch.equal(one, other) for one, other in zip(*outcomes, strict=True))


def test_gradients_of_the_last_map() -> None:
    h, weight, bias = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((9, 4), (3, 4), (3,)))
    rows = torch.tensor([5, 0, 8])
    assert torch.autograd.gradcheck(lambda *leaves: last_map(leaves[0], rows, *leaves[1:]), (h, weight, bias))


def test_while_somebody_watches_every_product_of_the_first_maps_is_seen() -> None:
    seen: list[str] = []
    weights, biases = networks(2)

    def around(name: str, arguments: dict[str, Any], run: Callable[[], None]) -> None:
        seen.append(name)
        run()

    with kernels.watch_kernels(around):
        first_maps(sparse_features(), 0.0, [seeding.stream(0, "a"), seeding.stream(0, "b")], weights, biases)
    assert seen == (["weighted_hops", "weighted_hops"] if kernels.library() is not None else [])
