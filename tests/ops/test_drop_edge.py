from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.graph import Graph, from_scipy
from adagpr.ops import DroppableOperator, operator, pair_norm
from adagpr.ops.operator import Direction, normalise, replace_values
from adagpr.seeding import stream
from tests.ops import keep_mask


@pytest.mark.parametrize("direction", ["directed", "symmetric"])
@pytest.mark.parametrize("self_loops", [True, False])
def test_a_draw_is_the_operator_of_the_edges_that_are_left(
    direction: Direction, self_loops: bool, make_graph: Callable[..., Graph]
) -> None:
    graph = make_graph()
    droppable = DroppableOperator.from_graph(graph, operator(graph, direction, self_loops, torch.float64))
    drawn = droppable.draw(0.4, stream(0, "test"))
    mask, _ = keep_mask((len(droppable.weights),), 0.4, stream(0, "test"))
    kept = replace_values(droppable.full.matrix, droppable.weights * torch.from_numpy(mask))
    thinned = sp.csr_array(kept.to_dense().numpy())
    expected = normalise(thinned, "directed", self_loops).toarray()
    np.testing.assert_allclose(drawn.matrix.to_dense().numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(drawn.transpose.to_dense().numpy(), expected.T, atol=1e-12)


def test_nothing_dropped_is_the_full_operator(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    full = operator(graph, dtype=torch.float64)
    drawn = DroppableOperator.from_graph(graph, full).draw(0.0, stream(0, "test"))
    torch.testing.assert_close(drawn.matrix.to_dense(), full.matrix.to_dense())


def test_draws_differ_and_their_size_is_the_rate() -> None:
    rng = np.random.default_rng(0)
    graph = from_scipy(sp.random_array((400, 400), density=0.1, rng=rng), rng.normal(size=(400, 2)), [0, 1] * 200)
    droppable = DroppableOperator.from_graph(graph, operator(graph, self_loops=False))
    generator = stream(1, "test")
    counts = [int((droppable.draw(0.7, generator).matrix.values() != 0).sum()) for _ in range(2)]
    assert counts[0] != counts[1]
    assert counts[0] / graph.num_edges == pytest.approx(0.3, abs=0.02)


def test_pair_norm_centres_and_fixes_the_mean_squared_length() -> None:
    x = torch.randn(20, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 3
    out = pair_norm(x, 2.0)
    assert out.mean(0).abs().max() < 1e-12
    assert out.square().sum(1).mean().item() == pytest.approx(4.0, rel=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_pair_norm_equals_torch_geometric_s() -> None:
    from torch_geometric.nn import PairNorm

    x = torch.randn(20, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pair_norm(x, 1.5), PairNorm(scale=1.5)(x))
