"""`explain` and `bounds` of trained runs with signed hops, on undirected and on directed edges."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.data import load
from adagpr.errors import InputError
from adagpr.graph import Graph, Split, from_scipy
from adagpr.insight import bounds, compare, explain
from adagpr.insight.explain import Explanation
from adagpr.nn import AdaGPRSigned
from adagpr.ops import features, normalised
from adagpr.training import Run, fit

SIZES: dict[str, Any] = {"num_layers": 2, "num_coeffs": 3, "hidden_channels": 8}
OPTIONS: dict[str, Any] = {**SIZES, "norm": "batch", "lr": 0.05, "max_epochs": 20}
DATA: dict[str, Any] = {"num_nodes": 90, "num_classes": 3, "num_features": 10, "average_degree": 5.0, "homophily": 0.8}
COEFFS = torch.tensor([[0.5, 0.25, -0.75], [0.25, 0.0, 1.0]])


def signed_of(run: Run) -> AdaGPRSigned:
    assert isinstance(run.model, AdaGPRSigned)
    return run.model


@pytest.fixture(scope="module")
def data() -> tuple[Graph, Split]:
    graph, splits = load("csbm", "random/1", **DATA)
    return graph, splits[0]


@pytest.fixture(scope="module")
def run(data: tuple[Graph, Split]) -> Run:
    """Trained, but with coefficients set by hand."""
    done = fit(*data, "adagpr-signed", **OPTIONS)
    for conv, row in zip(signed_of(done).layers(), COEFFS, strict=True):
        conv.scores.data.copy_(row)
    return done


@pytest.fixture(scope="module")
def directed(data: tuple[Graph, Split]) -> tuple[Graph, Split, Run]:
    adj = sp.random_array((90, 90), density=0.04, rng=np.random.default_rng(0), format="csr")
    graph = from_scipy(adj, data[0].x, data[0].y)
    return graph, data[1], fit(graph, data[1], "adagpr-signed", **OPTIONS)


@pytest.fixture(scope="module")
def found(run: Run, data: tuple[Graph, Split]) -> Explanation:
    return explain(run, graph=data[0], split=data[1], node=7)


def logits_of(run: Run, graph: Graph, coeffs: torch.Tensor | None = None) -> torch.Tensor:
    model = signed_of(run) if coeffs is None else signed_of(run).with_coefficients(coeffs)
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(features(graph.x), model.structure(graph, self_loops=False))
    return logits


def test_layers_show_hops_and_filters_of_either_sign(found: Explanation) -> None:
    assert (found.signed, found.directions, found.hop_names) == (True, ("",), ("hop 0", "hop 1", "hop 2"))
    assert [part.coefficients for part in found.layers] == [tuple(row) for row in COEFFS.tolist()]
    assert [part.mean_hop for part in found.layers] == pytest.approx([(0.25 + 2 * 0.75) / 1.5, 2 / 1.25])
    for part, mu in zip(found.layers, COEFFS.tolist(), strict=True):
        assert part.response == pytest.approx([sum(m * x**k for k, m in enumerate(mu)) for x in found.lambdas])
    assert min(found.layers[0].response) == pytest.approx(-0.5)
    assert found.network_response is None
    assert any("negative weight is subtracted" in remark for remark in found.remarks)
    assert any("whole network is left out" in remark for remark in found.remarks)


def test_reach_is_that_of_edges_without_self_loops(data: tuple[Graph, Split], found: Explanation) -> None:
    near = np.linalg.matrix_power(data[0].adj.toarray() + np.eye(90), 4) > 0
    assert found.reach.total_hops == 4
    assert found.reach.mean_nodes == pytest.approx(near.sum(1).mean())


def test_without_the_graph_keeps_hop_0_as_it_is(run: Run, data: tuple[Graph, Split], found: Explanation) -> None:
    graph, split = data
    names = ["without the graph", "without hop 0", "without hop 1", "without hop 2"]
    assert [item.name for item in found.ablations] == names
    edgeless = logits_of(run, replace(graph, adj=sp.csr_array((90, 90))))
    right = edgeless[split.val].argmax(1) == graph.y[split.val]
    assert found.ablations[0].accuracy == pytest.approx(100 * right.double().mean())
    for number, item in enumerate(found.ablations[1:]):
        changed = COEFFS.clone()
        changed[:, number] = 0.0
        expected = (logits_of(run, graph) - logits_of(run, graph, changed)).abs().max()
        assert item.max_change == pytest.approx(float(expected), rel=1e-5)


def test_directed_edges_have_a_filter_each_way_and_count_each_way(directed: tuple[Graph, Split, Run]) -> None:
    graph, split, run = directed
    found = explain(run, graph=graph, split=split)
    assert found.directions == ("forwards", "backwards")
    assert found.hop_names == tuple(f"hop {hop} {way}" for way in ("forward", "backward") for hop in range(3))
    coeffs = signed_of(run).coefficients()
    for part, row in zip(found.layers, coeffs.view(2, 2, 3).tolist(), strict=True):
        assert list(part.coefficients) == [*row[0], *row[1]]
        for mu, response in zip(row, found.filters(part).values(), strict=True):
            assert response == pytest.approx([sum(m * x**k for k, m in enumerate(mu)) for x in found.lambdas])
    changed = {item.name: item for item in found.ablations}
    forward = coeffs.clone()
    forward[:, 1:3] = 0.0
    lost = (logits_of(run, graph) - logits_of(run, graph, forward)).abs().max()
    assert changed["without the edges forwards"].max_change == pytest.approx(float(lost), rel=1e-5)
    assert changed["without the edges backwards"].max_change > 0
    both = (graph.adj.toarray() + graph.adj.toarray().T > 0).astype(int)
    near = np.linalg.matrix_power(both + np.eye(90, dtype=int), 4) > 0
    assert found.reach.mean_nodes == pytest.approx(near.sum(1).mean())
    degrees = both[split.val].sum(1)
    (group,) = (item for item in found.groups if (item.by, item.name) == ("degree", "4 to 7"))
    assert group.num_nodes == ((degrees >= 4) & (degrees <= 7)).sum()


def test_layer_normalisation_of_a_nodes_parts_is_said_to_be_frozen(data: tuple[Graph, Split]) -> None:
    run = fit(*data, "adagpr-signed", **OPTIONS | {"norm": "layer", "max_epochs": 2})
    said = explain(run, graph=data[0], split=data[1], node=3).remarks
    assert any(remark.startswith("Layer normalisation divides each node's row") for remark in said)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_bounds_add_the_own_map_as_a_layer_at_hop_0(norm: str, data: tuple[Graph, Split]) -> None:
    run = fit(*data, "adagpr-signed", **OPTIONS | {"norm": norm, "max_epochs": 2})
    for conv, row in zip(signed_of(run).layers(), COEFFS, strict=True):
        conv.scores.data.copy_(row)
    found = bounds(run, graph=data[0])
    eigenvalues = np.abs(np.linalg.eigvalsh(normalised(data[0], "symmetric", False).toarray()))
    for item, mu, view in zip(found.layers, COEFFS.tolist(), signed_of(run).layer_views(), strict=True):
        spectrum = sum(abs(m) * (eigenvalues**k).sum() for k, m in enumerate(mu))
        assert item.spectrum.value == pytest.approx(spectrum, rel=1e-5)
        assert view.own is not None
        p, e = (float(weight.abs().sum(0).max()) for weight in (view.operator_maps()["edges"], view.own))
        assert item.log10_factor == pytest.approx(math.log10(2 * (p * spectrum + e * 90)), abs=1e-5)
    topics = [sentence.split(":")[0] for sentence in found.assumptions]
    assert topics[-2:] == ["Alpha", "Coefficients"]
    assert ("Batch normalisation" in topics) == (norm == "batch")
    assert "Own map" in topics
    total = found.total("run", "spectrum").log10_printed
    assert total == pytest.approx(math.log10(sum(10**item.log10_term for item in found.layers)))


def test_bounds_refuse_layer_normalisation_and_two_operators(
    data: tuple[Graph, Split], directed: tuple[Graph, Split, Run]
) -> None:
    with pytest.raises(InputError, match="not one with several operators or weight maps per layer, PairNorm or layer"):
        bounds(directed[2], graph=directed[0])
    run = fit(*data, "adagpr-signed", **OPTIONS | {"norm": "layer", "max_epochs": 1})
    with pytest.raises(InputError, match="or layer normalisation"):
        bounds(run, graph=data[0])


def test_a_run_of_signed_hops_predicts_compares_and_shows_itself(
    run: Run, data: tuple[Graph, Split], directed: tuple[Graph, Split, Run]
) -> None:
    expected = logits_of(run, data[0]).argmax(1).tolist()
    assert run.predict(data[0])["prediction"].to_pylist() == [data[0].class_names[code] for code in expected]
    other = fit(*data, "adagpr", **SIZES, max_epochs=2)
    assert compare([run], [other]).pairs[0].a == pytest.approx(100 * run.test_acc)
    assert "<th>hop 2</th>" in run._repr_html_()
    assert "<th>hop 0 backward</th>" in directed[2]._repr_html_()
