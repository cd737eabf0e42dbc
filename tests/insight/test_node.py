"""One node's contributions against a dense frozen network that is written out here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.insight.node import MOST_HOPS, NodeExplanation, distances, explain_node, total_hops
from adagpr.nn import AdaGPR
from adagpr.ops import operator

FORMS = ["shared", "separate", "separate-scaled"]
COEFFS = [[0.3, 0.3, 0.4], [0.6, 0.0, 0.4], [0.2, 0.5, 0.3]]
NODE = 4


def network(weight_maps: str = "shared", **changes: object) -> AdaGPR:
    """Random weights and the coefficients above, one of which is 0."""
    arguments = {"num_layers": 3, "num_coeffs": 3, "alpha": [0.2, 0.3, 0.4], "theta": 1.5} | changes
    model = AdaGPR(12, 6, 3, weight_maps=weight_maps, **arguments).eval()  # type: ignore[arg-type]
    model.seed(3)
    if "num_layers" not in changes:
        for conv, mu in zip(model.layers(), COEFFS, strict=True):
            assert conv.scores is not None
            # Scores of log(mu + 0.5) are projected to mu, and lower ones where it is 0 change nothing.
            conv.scores.data = torch.tensor([np.log(value + 0.5 if value else 0.3) for value in mu]).float()
    return model


@dataclass(frozen=True)
class Dense:
    """The network as arrays; what it computes is linear in each of them, the ReLUs being given."""

    a: np.ndarray
    x: np.ndarray
    w_in: np.ndarray
    b_in: np.ndarray
    mu: np.ndarray
    own: list[np.ndarray]
    residual: list[np.ndarray]
    w_out: np.ndarray
    b_out: np.ndarray

    def logits(self, masks: list[np.ndarray]) -> np.ndarray:
        h_0 = (self.x @ self.w_in + self.b_in) * masks[0]
        h = h_0
        for i, mu in enumerate(self.mu):
            spread = sum(weight * np.linalg.matrix_power(self.a, k) @ h for k, weight in enumerate(mu))
            h = (spread @ self.own[i] + h_0 @ self.residual[i]) * masks[i + 1]
        return np.asarray(h @ self.w_out + self.b_out)

    def masks(self) -> list[np.ndarray]:
        h_0 = np.maximum(self.x @ self.w_in + self.b_in, 0)
        h, found = h_0, [h_0 > 0]
        for i, mu in enumerate(self.mu):
            spread = sum(weight * np.linalg.matrix_power(self.a, k) @ h for k, weight in enumerate(mu))
            h = np.maximum(spread @ self.own[i] + h_0 @ self.residual[i], 0)
            found.append(h > 0)
        return found


def dense(model: AdaGPR, graph: Graph) -> Dense:
    """The arrays of a model by the layer's equations, each form of the weight maps on its own."""
    own, residual = [], []
    for conv in model.layers():
        alpha, beta, eye = conv.alpha, conv.beta, np.eye(conv.channels)
        upper, lower = (item.double().detach().numpy() for item in (conv.weight[:6], conv.weight[-6:]))
        scale, scale_0 = (1.0, 1.0) if conv.weight_maps == "separate" else (1 - alpha, alpha)
        own.append((1 - alpha) * (1 - beta) * eye + beta * scale * upper)
        residual.append(alpha * (1 - beta) * eye + beta * scale_0 * lower)
    outer = (model.lin_in.weight.t(), model.lin_in.bias, model.lin_out.weight.t(), model.lin_out.bias)
    w_in, b_in, w_out, b_out = (item.double().detach().numpy() for item in outer)
    x = graph.x.toarray() if not isinstance(graph.x, torch.Tensor) else graph.x.numpy()
    a = operator(graph, dtype=torch.float64).matrix.to_dense().numpy()
    mu = model.coefficients().double().numpy()
    return Dense(a, x.astype(np.float64), w_in, b_in, mu, own, residual, w_out, b_out)


@pytest.fixture
def graph(make_graph: Callable[..., Graph]) -> Graph:
    return make_graph(num_nodes=20)


@pytest.mark.parametrize("form", FORMS)
def test_prediction_and_logit_are_those_of_the_network(form: str, graph: Graph) -> None:
    model = network(form)
    found = explain_node(model, graph, NODE)
    with torch.no_grad():
        logits = model(graph.x, operator(graph))[NODE]
    target = int(logits.argmax())
    assert found.prediction == str(target)
    assert found.label == str(NODE % 3)
    assert found.logit == pytest.approx(float(logits[target]), abs=1e-5)
    assert found.probability == pytest.approx(float(logits.softmax(-1)[target]), abs=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_every_cut_adds_up_to_the_logit(form: str, graph: Graph) -> None:
    found = explain_node(network(form), graph, NODE, num_sources=3)
    assert abs(found.bias_out + found.bias_in + sum(found.by_hops) - found.logit) < 1e-6
    sources = found.own + sum(item.contribution for item in found.sources) + found.others
    assert abs(found.bias_out + found.bias_in + sources - found.logit) < 1e-6
    for flow in found.layers:
        injected = sum(item.from_h0 for item in found.layers if item.layer >= flow.layer)
        assert abs(found.bias_out + injected + sum(flow.hops) - found.logit) < 1e-6


@pytest.mark.parametrize("form", FORMS)
def test_a_layers_hop_is_what_the_frozen_logit_loses_without_it(form: str, graph: Graph) -> None:
    model = network(form)
    found, arrays = explain_node(model, graph, NODE), dense(model, graph)
    masks, target = arrays.masks(), int(found.prediction)
    whole = arrays.logits(masks)[NODE, target]
    assert whole == pytest.approx(found.logit, abs=1e-9)
    for i, flow in enumerate(found.layers):
        for k, part in enumerate(flow.hops):
            mu = arrays.mu.copy()
            mu[i, k] = 0
            assert part == pytest.approx(whole - replace(arrays, mu=mu).logits(masks)[NODE, target], abs=1e-9)
        cut = [item * (j != i) for j, item in enumerate(arrays.residual)]
        lost = whole - replace(arrays, residual=cut).logits(masks)[NODE, target]
        assert flow.from_h0 == pytest.approx(lost, abs=1e-9)
    assert min(abs(part) for part in found.layers[-1].hops) > 1e-4


@pytest.mark.parametrize("form", FORMS)
def test_parts_by_hops_are_the_powers_of_the_operator(form: str, graph: Graph) -> None:
    # With the operator times s, a path of t hops gives s ** t of itself: the parts are a polynomial's coefficients.
    model = network(form)
    found, arrays = explain_node(model, graph, NODE), dense(model, graph)
    masks, target = arrays.masks(), int(found.prediction)
    linear = replace(arrays, b_in=0 * arrays.b_in, b_out=0 * arrays.b_out)
    scales = np.linspace(-1, 1, 7)
    values = [replace(linear, a=s * linear.a).logits(masks)[NODE, target] for s in scales]
    expected = np.linalg.solve(np.vander(scales, increasing=True), values)
    assert found.by_hops == pytest.approx(expected, abs=1e-9)
    assert found.bias_in == pytest.approx(found.logit - found.bias_out - values[-1], abs=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_a_sources_part_is_the_frozen_logit_of_its_features_alone(form: str, graph: Graph) -> None:
    model = network(form)
    found, arrays = explain_node(model, graph, NODE, num_sources=19), dense(model, graph)
    masks, target = arrays.masks(), int(found.prediction)
    linear = replace(arrays, b_in=0 * arrays.b_in, b_out=0 * arrays.b_out)

    def alone(u: int) -> float:
        return float(replace(linear, x=arrays.x * (np.arange(20) == u)[:, None]).logits(masks)[NODE, target])

    assert found.own == pytest.approx(alone(NODE), abs=1e-9)
    assert len(found.sources) == found.num_sources >= 5
    for source in found.sources:
        assert source.contribution == pytest.approx(alone(int(source.node)), abs=1e-9)
    sizes = [abs(source.contribution) for source in found.sources]
    assert sizes == sorted(sizes, reverse=True)
    assert found.others == pytest.approx(0, abs=1e-12)


def test_distances_follow_the_edges_that_a_row_reads() -> None:
    path = from_scipy(np.eye(5, k=1), np.eye(5), [0, 1, 0, 1, 0])
    matrix = path.adj
    assert distances(matrix, [1, 4], 2).T.tolist() == [[-1, 0, 1, 2, -1], [-1, -1, -1, -1, 0]]


def test_many_hops_share_the_last_part_and_still_add_up(graph: Graph) -> None:
    model = network(num_layers=12, alpha=0.1, projection="softmax")
    found = explain_node(model, graph, NODE)
    assert total_hops(model.coefficients().numpy(), [0.1] * 12) == 24 > MOST_HOPS
    assert len(found.by_hops) == MOST_HOPS + 1
    assert abs(found.by_hops[-1]) > 0
    assert abs(found.bias_out + found.bias_in + sum(found.by_hops) - found.logit) < 1e-6


def test_nothing_below_a_layer_of_residual_alone_is_reached() -> None:
    coeffs = np.array([[0.5, 0.5, 0], [0, 0, 1], [0.5, 0.5, 0]])
    assert total_hops(coeffs, [0.1, 0.1, 0.1]) == 4
    assert total_hops(coeffs, [0.1, 1.0, 0.1]) == 1


def test_sparse_features_and_named_nodes_give_the_same(make_graph: Callable[..., Graph]) -> None:
    plain = make_graph(num_nodes=12, sparse=True)
    named = replace(plain, node_ids=np.array([f"page {i}" for i in range(12)]))
    dense_graph = replace(plain, x=torch.from_numpy(plain.x.toarray()))  # type: ignore[union-attr]
    model = network()
    one, other = explain_node(model, named, "page 4"), explain_node(model, dense_graph, "4")
    assert one.by_hops == pytest.approx(other.by_hops, abs=1e-12)
    assert [item.node for item in one.sources] == [f"page {item.node}" for item in other.sources]


def test_a_node_without_edges_reads_itself_alone() -> None:
    lonely = from_scipy(np.zeros((3, 3)), np.arange(36.0).reshape(3, 12) / 36, [0, 1, 2])
    found: NodeExplanation = explain_node(network(), lonely, 1, self_loops=False)
    assert (found.sources, found.others, found.num_sources) == ((), 0, 0)
    assert abs(found.bias_out + found.bias_in + found.own - found.logit) < 1e-6


def test_an_unknown_node_and_pair_norm_are_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match=r"There is no node '20' in graph; its first is '0', its last '19'\."):
        explain_node(network(), graph, 20)
    with pytest.raises(InputError, match="PairNorm makes every node depend on all others"):
        explain_node(network(pair_norm=1.0), graph, 0)
