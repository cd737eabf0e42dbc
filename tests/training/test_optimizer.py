"""Our Adam against torch's, by kernels and by torch's operations."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from adagpr.ops import supports_kernels
from adagpr.training import optimizer as module
from adagpr.training.optimizer import Adam, step_together

SHAPES = [(5, 3), (7,), (130, 64), ()]


def parameters(dtype: torch.dtype = torch.float64, seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, dtype=dtype, generator=generator) for shape in SHAPES]
    # One is laid out along its columns, as the first map's weight is.
    return [nn.Parameter(made[0].t().contiguous().t()), *map(nn.Parameter, made[1:])]


def set_gradients(found: Sequence[nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in found:
        parameter.grad = torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)


@pytest.mark.parametrize("by_kernels", [True, False])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=str)
def test_steps_are_those_of_torch(
    by_kernels: bool, dtype: torch.dtype, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = parameters(dtype), parameters(dtype)
    optimizer = Adam({0.1: ours[:2], 0.0: ours[2:]}, lr=0.01)
    groups = [{"params": theirs[:2], "weight_decay": 0.1}, {"params": theirs[2:], "weight_decay": 0.0}]
    oracle = torch.optim.Adam(groups, lr=0.01)
    monkeypatch.setattr(module, "supports_kernels", supports_kernels if by_kernels else lambda tensor: False)
    for seed in range(30):
        for found in (ours, theirs):
            set_gradients(found, seed)
        optimizer.step()
        oracle.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=error, atol=error)


def test_a_parameter_without_a_gradient_stays_as_it_is() -> None:
    found = parameters()
    before = [parameter.detach().clone() for parameter in found]
    optimizer = Adam({0.1: found}, lr=0.01)
    set_gradients(found[:1], 0)
    optimizer.step()
    optimizer.zero_grad()
    optimizer.step()
    assert [torch.equal(one, two) for one, two in zip(found, before, strict=True)] == [False, True, True, True]
    assert optimizer.steps.tolist() == [1, 0, 0, 0]


def test_trainings_at_different_steps_go_on_together_as_alone() -> None:
    alone, together = [parameters(seed=seed) for seed in (1, 2)], [parameters(seed=seed) for seed in (1, 2)]
    ones, others = [Adam({0.1: found}, 0.01) for found in alone], [Adam({0.1: found}, 0.01) for found in together]
    for optimizer, found in ((ones[0], alone[0]), (others[0], together[0])):
        set_gradients(found, 3)
        optimizer.step()
    for found in (*alone, *together):
        set_gradients(found, 4)
    step_together(others)
    for optimizer in ones:
        optimizer.step()
    pairs = zip(
        (item for found in alone for item in found), (item for found in together for item in found), strict=True
    )
    assert all(torch.equal(one, two) for one, two in pairs)
