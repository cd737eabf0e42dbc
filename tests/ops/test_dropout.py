from __future__ import annotations

import numpy as np
import pytest
import torch

from adagpr.ops.dropout import MaskSource, dropout, relu_dropout_
from adagpr.seeding import stream
from tests.ops import keep_mask


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.6, 0.9])
def test_the_share_of_dropped_elements_is_the_rate(rate: float) -> None:
    size = 400_000
    mask, _ = keep_mask((size,), rate, stream(0, "test"))
    error = abs(1 - mask.mean() - rate)
    assert error < 4 * np.sqrt(rate * (1 - rate) / size)


@pytest.mark.parametrize("rate", [0.1, 0.37, 0.6])
def test_the_scale_undoes_the_exact_probability(rate: float) -> None:
    _, scale = keep_mask((4,), rate, stream(0, "test"))
    assert scale == 65536 / (65536 - round(rate * 65536))


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 5, 32, 64])
def test_elements_are_independent_of_their_neighbours(lag: int) -> None:
    mask = keep_mask((400_000,), 0.5, stream(1, "test"))[0].astype(float) - 0.5
    correlation = 4 * (mask[lag:] * mask[:-lag]).mean()
    assert abs(correlation) < 4 / np.sqrt(len(mask))


def test_masks_of_successive_calls_are_independent() -> None:
    generator = stream(2, "test")
    first, second = (keep_mask((400_000,), 0.5, generator)[0].astype(float) - 0.5 for _ in range(2))
    assert abs(4 * (first * second).mean()) < 4 / np.sqrt(len(first))


def test_the_backward_pass_uses_the_mask_of_the_forward_pass() -> None:
    x = torch.randn(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    out = dropout(x, 0.5, stream(3, "test"))
    out.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(out.detach(), x.detach() * x.grad)
    assert set(x.grad.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("rate", [0.0, 0.6])
def test_relu_and_dropout_in_one_equal_both_in_turn_to_the_bit(rate: float) -> None:
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    x[0] = 0
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    # The result of a product may be written over; a leaf may not.
    together = relu_dropout_(inputs[0] * 1, rate, stream(3, "test"))
    in_turn = dropout(inputs[1].relu(), rate, stream(3, "test"))
    assert torch.equal(together, in_turn)
    for out in (together, in_turn):
        (out * x.cos()).sum().backward()
    assert inputs[0].grad is not None
    assert inputs[1].grad is not None
    assert torch.equal(inputs[0].grad, inputs[1].grad)


def test_equal_streams_give_equal_masks() -> None:
    x = torch.ones(33, 5)
    assert torch.equal(dropout(x, 0.3, stream(4, "a")), dropout(x, 0.3, stream(4, "a")))
    assert not torch.equal(dropout(x, 0.3, stream(4, "a")), dropout(x, 0.3, stream(4, "b")))


def test_the_words_are_those_of_every_recorded_number() -> None:
    mask, _ = keep_mask((12,), 0.5, stream(0, "dropout"))
    assert mask.tolist() == [0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0]


def test_rate_zero_draws_nothing() -> None:
    generator = stream(5, "test")
    x = torch.ones(3)
    assert dropout(x, 0.0, generator) is x
    assert generator.random() == stream(5, "test").random()


def test_a_mask_is_the_same_whether_drawn_at_once_or_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    mask, _ = keep_mask((1002,), 0.4, stream(0, "test"))
    monkeypatch.setattr(MaskSource, "step", 100)
    kept = MaskSource(0.4, [stream(0, "test")]).drop_(torch.ones(334, 3))
    assert kept.view(-1).tolist() == mask.tolist()
