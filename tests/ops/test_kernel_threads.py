"""The helpers of the kernels: whoever computes, in whatever process, gets the same bits."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import torch

from adagpr.data import csbm
from adagpr.ops import gpr_propagate, kernels, operator

pytestmark = pytest.mark.skipif(
    kernels.library() is None and "ADAGPR_REQUIRE_ALL" not in os.environ, reason="no kernels were compiled"
)

GRAPH = csbm(num_nodes=2000, average_degree=6.0, num_classes=3)


def propagated(num_threads: int) -> bytes:
    h = torch.rand(2000, 24, generator=torch.Generator().manual_seed(0))
    with kernels.compute_threads(num_threads):
        return gpr_propagate(h, torch.tensor([0.2, 0.3, 0.5]), operator(GRAPH)).numpy().tobytes()


@pytest.mark.parametrize("num_threads", [2, 7, 256])
def test_more_threads_than_processors_give_the_same_bits(num_threads: int) -> None:
    assert propagated(num_threads) == propagated(1)


def test_several_callers_compute_at_the_same_time() -> None:
    expected = propagated(1)
    found: list[bytes] = []
    callers = [threading.Thread(target=lambda: found.extend(propagated(3) for _ in range(20))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == 80 * [expected]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_helpers_of_its_own() -> None:
    expected = propagated(2)  # the helpers are there when it is forked
    for _ in range(5):
        child = os.fork()
        if child == 0:
            os._exit(0 if all(propagated(count) == expected for count in (2, 3)) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_loops_follow_one_another_as_fast_as_they_may() -> None:
    """Helpers that begin late find the next loop, or none, never items of a loop that is over."""
    rng = np.random.default_rng(0)
    s, m = torch.from_numpy(rng.normal(size=(700, 16))), torch.from_numpy(rng.normal(size=(16, 16)))
    outs = [torch.empty_like(s) for _ in range(2)]
    kernels.multiply_square(s, m, outs[0])
    with kernels.compute_threads(4):
        for _ in range(3000):
            outs[1].zero_()
            kernels.multiply_square(s, m, outs[1])
            assert torch.equal(*outs)
