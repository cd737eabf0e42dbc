from __future__ import annotations

import pytest
import torch

from adagpr.ops import buffers
from adagpr.ops.buffers import buffer_pool, matrix_like


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_LARGE", 1)


def test_memory_is_used_again_once_nothing_looks_at_it() -> None:
    like = torch.zeros(30, 40).t()
    with buffer_pool():
        first = matrix_like(like)
        view, place = first[3:], first.data_ptr()
        del first
        assert matrix_like(like).data_ptr() != place
        del view
        again = matrix_like(like)
        assert again.data_ptr() == place
    assert again.shape == (40, 30)
    assert again.is_contiguous()


def test_what_autograd_keeps_is_not_used_again() -> None:
    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            kept = matrix_like(x).copy_(x)
            ctx.save_for_backward(kept)
            return x * x

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            return 2 * ctx.saved_tensors[0] * grad

    x = torch.tensor([3.0, 4.0], requires_grad=True)
    with buffer_pool():
        y = Squared.apply(x)  # type: ignore[no-untyped-call]
        for _ in range(3):
            matrix_like(x).fill_(100.0)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12.0, 16.0]


def test_other_sizes_and_times_outside_get_memory_of_their_own() -> None:
    with buffer_pool():
        place = matrix_like(torch.zeros(10, 10)).data_ptr()
        assert matrix_like(torch.zeros(10, 11)).data_ptr() != place
        with buffer_pool():
            assert matrix_like(torch.zeros(10, 10)).data_ptr() == place
        assert matrix_like(torch.zeros(50, dtype=torch.float64)).dtype == torch.float64
    assert buffers._kept is None
