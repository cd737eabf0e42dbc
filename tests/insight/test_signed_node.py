"""One node's contributions in a network of signed hops, against a dense frozen network that is written out here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from adagpr.graph import Graph
from adagpr.insight.node import explain_node
from adagpr.nn import AdaGPRSigned
from adagpr.ops import features

NODE = 4
KINDS = [("one", "batch"), ("one", "none"), ("one", "layer"), ("both", "batch"), ("both", "none"), ("both", "layer")]


def network(directions: str, norm: str, **changes: Any) -> AdaGPRSigned:
    """Random parameters and moments; one coefficient is 0."""
    arguments: dict[str, Any] = {"num_layers": 3, "num_coeffs": 3, "directions": directions, "norm": norm} | changes
    model = AdaGPRSigned(12, 6, 3, **arguments).double().eval()
    model.seed(3)
    generator = torch.Generator().manual_seed(5)
    for conv in model.layers():
        for item in (conv.scores, conv.scale, conv.shift):
            if item is not None:
                item.data = torch.randn(item.shape, generator=generator, dtype=torch.float64)
        if norm == "batch":
            conv.running_moments.copy_(torch.rand(2, 6, generator=generator, dtype=torch.float64) + 0.3)
    model.layers()[1].scores.data[0, 1] = 0.0
    return model


@dataclass(frozen=True)
class Dense:
    """The network as arrays; what it computes is linear in most of them, with ReLUs and deviations given."""

    adjacency: list[np.ndarray]
    x: np.ndarray
    b_in: np.ndarray
    b_out: np.ndarray
    coeffs: np.ndarray  # [layers, operators, hops]
    own: list[np.ndarray]
    means: list[np.ndarray]
    shifts: list[np.ndarray]
    model: AdaGPRSigned

    def run(
        self, frozen: list[tuple[np.ndarray, Any]] | None = None
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, Any]]]:
        """The logits, and of each layer where it was positive and what its rows were divided by."""
        w_in, w_out = (outer.weight.detach().numpy().T for outer in self.model.outer_maps())
        z = self.x @ w_in + self.b_in
        found: list[tuple[np.ndarray, Any]] = [(z > 0, 1.0)]
        h = z * (found if frozen is None else frozen)[0][0]
        for i, conv in enumerate(self.model.layers()):
            *maps, _ = np.split(conv.weights().detach().numpy(), len(self.adjacency) + 1)
            z = h @ self.own[i]
            for a, mu, weight in zip(self.adjacency, self.coeffs[i], maps, strict=True):
                z = z + sum(c * np.linalg.matrix_power(a, k) @ h for k, c in enumerate(mu)) @ weight
            deviation = self.deviation(conv, z) if frozen is None else frozen[i + 1][1]
            scale = 1.0 if conv.scale is None else conv.scale.detach().numpy()
            mean = z.mean(1, keepdims=True) if self.model.norm == "layer" else self.means[i]
            u = (z - mean) / deviation * scale + self.shifts[i]
            found.append((u > 0, deviation))
            h = u * (found if frozen is None else frozen)[i + 1][0]
        return h @ w_out + self.b_out, found

    def deviation(self, conv: Any, z: np.ndarray) -> Any:
        if self.model.norm == "layer":
            return np.sqrt(z.var(1, keepdims=True) + 1e-5)
        return np.sqrt(conv.running_moments[1].numpy() + 1e-5) if self.model.norm == "batch" else 1.0

    def without_biases(self) -> Dense:
        none = [np.zeros(6)] * 3
        return replace(self, b_in=np.zeros(6), b_out=np.zeros(3), means=none, shifts=none)


def dense(model: AdaGPRSigned, graph: Graph) -> Dense:
    operators = model.operators(graph, "directed", False, torch.float64).values()
    convs, (b_in, b_out) = model.layers(), (outer.bias.detach().numpy() for outer in model.outer_maps())
    assert isinstance(graph.x, torch.Tensor)
    return Dense(
        [item.matrix.to_dense().numpy() for item in operators],
        graph.x.double().numpy(),
        b_in,
        b_out,
        np.stack([conv.coeffs().detach().numpy() for conv in convs]),
        [conv.weights().detach().numpy()[-6:] for conv in convs],
        [conv.running_moments[0].numpy() if model.norm == "batch" else np.zeros(6) for conv in convs],
        [conv.shift.detach().numpy() for conv in convs],
        model,
    )


@pytest.fixture
def graph(make_graph: Callable[..., Graph]) -> Graph:
    return make_graph(num_nodes=20)


def zeroed(items: list[np.ndarray], i: int) -> list[np.ndarray]:
    return [item * (j != i) for j, item in enumerate(items)]


@pytest.mark.parametrize(("directions", "norm"), KINDS)
def test_every_cut_adds_up_to_the_logit(directions: str, norm: str, graph: Graph) -> None:
    model = network(directions, norm)
    found = explain_node(model, graph, NODE, self_loops=False, num_sources=3)
    with torch.no_grad():
        structure = model.structure(graph, self_loops=False, dtype=torch.float64)
        logits = model(features(graph.x, torch.float64), structure)
    assert found.logit == pytest.approx(float(logits[NODE].max()), abs=1e-10)
    biases = found.bias_out + found.bias_in + found.bias_layers
    assert biases + sum(found.by_hops) == pytest.approx(found.logit, abs=1e-10)
    sources = found.own + sum(item.contribution for item in found.sources) + found.others
    assert biases + sources == pytest.approx(found.logit, abs=1e-10)
    for flow in found.layers:
        shifts = sum(item.shift for item in found.layers if item.layer >= flow.layer)
        assert found.bias_out + shifts + flow.own_map + sum(flow.hops) == pytest.approx(found.logit, abs=1e-10)


@pytest.mark.parametrize(("directions", "norm"), KINDS)
def test_a_part_is_what_the_frozen_logit_loses_without_it(directions: str, norm: str, graph: Graph) -> None:
    model = network(directions, norm)
    found, arrays = explain_node(model, graph, NODE, self_loops=False), dense(model, graph)
    logits, frozen = arrays.run()
    target = int(found.prediction)
    whole = logits[NODE, target]

    def lost(**changes: Any) -> float:
        return float(whole - replace(arrays, **changes).run(frozen)[0][NODE, target])

    assert whole == pytest.approx(found.logit, abs=1e-9)
    for i, flow in enumerate(found.layers):
        for column, part in enumerate(flow.hops):
            coeffs = arrays.coeffs.copy()
            coeffs.reshape(3, -1)[i, column] = 0.0
            assert part == pytest.approx(lost(coeffs=coeffs), abs=1e-9)
        assert flow.own_map == pytest.approx(lost(own=zeroed(arrays.own, i)), abs=1e-9)
        cut = lost(shifts=zeroed(arrays.shifts, i), means=zeroed(arrays.means, i))
        assert flow.shift == pytest.approx(cut, abs=1e-9)
    assert min(abs(found.layers[0].own_map), abs(found.layers[0].shift)) > 1e-6
    assert len(found.hop_names) == len(found.layers[0].hops) == 3 * len(arrays.adjacency)


@pytest.mark.parametrize(("directions", "norm"), [("one", "batch"), ("both", "layer")])
def test_parts_are_by_hops_of_either_operator_and_by_source(directions: str, norm: str, graph: Graph) -> None:
    model = network(directions, norm)
    found, arrays = explain_node(model, graph, NODE, self_loops=False, num_sources=19), dense(model, graph)
    frozen, linear, target = arrays.run()[1], arrays.without_biases(), int(found.prediction)
    scales = np.linspace(-1, 1, 7)
    scaled = [replace(linear, adjacency=[s * a for a in linear.adjacency]).run(frozen)[0] for s in scales]
    values = [logits[NODE, target] for logits in scaled]
    assert found.by_hops == pytest.approx(np.linalg.solve(np.vander(scales, increasing=True), values), abs=1e-9)
    alone = [
        replace(linear, x=linear.x * (np.arange(20) == u)[:, None]).run(frozen)[0][NODE, target] for u in range(20)
    ]
    assert found.own == pytest.approx(alone[NODE], abs=1e-9)
    assert len(found.sources) == found.num_sources >= 5
    assert [item.contribution for item in found.sources] == pytest.approx(
        [alone[int(item.node)] for item in found.sources], abs=1e-9
    )


def test_without_any_hop_a_node_reads_itself_through_its_own_map(graph: Graph) -> None:
    model = network("one", "batch")
    model.layers()[1].scores.data.zero_()
    through = explain_node(model, graph, NODE, self_loops=False)
    assert through.num_sources > 0
    assert len(through.by_hops) <= 5
    cut = network("one", "batch", own_map=False)
    cut.layers()[1].scores.data.zero_()
    found = explain_node(cut, graph, NODE, self_loops=False)
    assert (found.num_sources, found.own, found.bias_in) == (0, 0.0, 0.0)
    assert found.bias_out + found.bias_layers == pytest.approx(found.logit, abs=1e-10)
