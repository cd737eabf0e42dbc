from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.nn.label_propagation import LabelPropagation, propagate_labels
from adagpr.ops import features, operator


def logits(graph: Graph, **arguments: Any) -> Tensor:
    model = LabelPropagation(12, 3, **arguments)
    out: Tensor = model(features(graph.x), model.structure(graph, dtype=torch.float64))
    return out


@pytest.fixture
def half_known(make_graph: Callable[..., Graph]) -> Graph:
    graph = make_graph()
    return replace(graph, y=torch.where(torch.arange(30) < 15, graph.y, -1))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0])
def test_shares_equal_the_iteration(alpha: float, half_known: Graph) -> None:
    matrix = operator(half_known, dtype=torch.float64).matrix.to_dense()
    y_0 = torch.zeros(30, 3, dtype=torch.float64)
    y_0[torch.arange(15), half_known.y[:15]] = 1.0
    y = y_0
    for _ in range(7):
        y = alpha * matrix @ y + (1 - alpha) * y_0
    reached = y.sum(1) > 0
    shares = (y / y.sum(1, keepdim=True))[reached].clamp(min=1e-6)
    out = logits(half_known, num_hops=7, alpha=alpha)[reached]
    torch.testing.assert_close(out.exp(), shares, rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_equals_torch_geometric_where_nothing_is_clipped(make_graph: Callable[..., Graph]) -> None:
    from torch_geometric.nn.models import LabelPropagation as Theirs

    op = operator(make_graph(directed=True), self_loops=False, dtype=torch.float64)
    y_0 = F.one_hot(torch.arange(30) % 3, 3).double() * (torch.arange(30) < 12)[:, None]
    coo = op.matrix.to_dense().to_sparse_coo().coalesce()
    theirs = Theirs(20, 0.8)(y_0, coo.indices().flip(0), edge_weight=coo.values())
    assert theirs.max() < 1
    reached = theirs.sum(1) > 0
    shares = (theirs / theirs.sum(1, keepdim=True)).clamp(min=1e-6)
    ours = propagate_labels(y_0, op, 20, 0.8)
    torch.testing.assert_close(ours.exp()[reached], shares[reached], rtol=1e-10, atol=1e-12)


def test_nodes_that_nothing_reaches_have_equal_finite_logits() -> None:
    adj = sp.csr_array(([1.0, 1.0], ([0, 1], [1, 0])), shape=(4, 4))
    out = logits(from_scipy(adj, torch.ones(4, 12), [0, -1, 1, -1], class_names="abc"))
    assert torch.isfinite(out).all()
    assert out[3].exp().tolist() == pytest.approx([1 / 3] * 3)
    assert out[:3].argmax(1).tolist() == [0, 0, 1]


def test_works_without_any_edge() -> None:
    out = logits(from_scipy(sp.csr_array((3, 3)), torch.ones(3, 12), [0, 1, -1], class_names="abc"))
    assert out[:2].argmax(1).tolist() == [0, 1]
    assert len(out[2].unique()) == 1


def test_has_nothing_to_learn_and_no_randomness(half_known: Graph) -> None:
    model = LabelPropagation(12, 3)
    structure = model.structure(half_known)
    runs = []
    for seed in (1, 2):
        model.seed(seed)
        runs.append(model(features(half_known.x), structure))
    assert torch.equal(*runs)
    assert model.parameter_groups() == {}
    assert model.state_dict() == {}
    assert not runs[0].requires_grad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": -0.1}, r"LabelPropagation: alpha must be greater than or equal to 0, got -0\.1"),
        ({"num_hops": 0}, "LabelPropagation: num_hops must be greater than or equal to 1, got 0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelPropagation(12, 3, **arguments)
