"""`explain` on runs that were really trained, each part against a slow and plain way of computing it."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.data import csbm, load
from adagpr.errors import InputError
from adagpr.graph import Graph, Split, from_scipy
from adagpr.insight.explain import Explanation, explain
from adagpr.nn import AdaGPR
from adagpr.ops import Operator, features, operator
from adagpr.ops.operator import csr_tensor
from adagpr.training import Run, fit

OPTIONS: dict[str, Any] = {"num_layers": 2, "num_coeffs": 3, "hidden_channels": 8, "max_epochs": 25, "lr": 0.05}
DATA: dict[str, Any] = {"num_nodes": 90, "num_classes": 3, "num_features": 10, "average_degree": 5.0, "homophily": 0.8}


@pytest.fixture(scope="module")
def data() -> tuple[Graph, Split]:
    graph, splits = load("csbm", "random/1", **DATA)
    return graph, splits[0]


@pytest.fixture(scope="module")
def run(data: tuple[Graph, Split], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(*data, out=tmp_path_factory.mktemp("run"), **OPTIONS)


@pytest.fixture(scope="module")
def found(run: Run) -> Explanation:
    assert run.folder is not None
    return explain(run.folder, node=7)


def logits_of(model: torch.nn.Module, graph: Graph) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model.eval()(features(graph.x), operator(graph))
        return logits


def adagpr_of(run: Run) -> AdaGPR:
    assert isinstance(run.model, AdaGPR)
    return run.model


def test_layers_show_the_coefficients_of_the_record(run: Run, found: Explanation) -> None:
    assert [list(part.coefficients) for part in found.layers] == run.record["coefficients"]
    for part, mu in zip(found.layers, run.record["coefficients"], strict=True):
        assert part.mean_hop == pytest.approx(sum(k * value for k, value in enumerate(mu)), abs=1e-6)
        assert part.max_hop == max(k for k, value in enumerate(mu) if value)
        assert part.response == pytest.approx([sum(m * x**k for k, m in enumerate(mu)) for x in found.lambdas])
    assert found.val_acc == pytest.approx(100 * run.val_acc)
    assert run.val_acc > 0.6


@pytest.mark.parametrize("form", ["shared", "separate", "separate-scaled"])
def test_the_networks_filter_is_what_its_layers_do_to_eigenvectors(form: str, data: tuple[Graph, Split]) -> None:
    run = fit(*data, weight_maps=form, alpha=[0.2, 0.4], **OPTIONS | {"max_epochs": 2})
    found, model = explain(run), deepcopy(adagpr_of(run)).double()
    # The unit vectors are the eigenvectors of a diagonal operator; each row follows one of them.
    diagonal = csr_tensor(sp.csr_array(sp.diags_array(np.array(found.lambdas))), torch.float64)
    h_0 = h = torch.eye(len(found.lambdas), dtype=torch.float64).sum(1, keepdim=True).repeat(1, 8)
    for conv, mu in zip(model.layers(), run.record["coefficients"], strict=True):
        conv.weight.data = torch.eye(8, dtype=torch.float64).repeat(len(conv.weight) // 8, 1)
        h = conv(h, h_0, Operator(diagonal, diagonal, "directed", True), coeffs=torch.tensor(mu, dtype=torch.float64))
    assert found.network_response == pytest.approx(h[:, 0].tolist(), abs=1e-12)


def test_reach_counts_the_nodes_within_all_hops(run: Run, data: tuple[Graph, Split], found: Explanation) -> None:
    hops = sum(max(k for k, value in enumerate(mu) if value) for mu in run.record["coefficients"])
    near = np.linalg.matrix_power(data[0].adj.toarray() + np.eye(90), hops) > 0
    assert hops > 0
    assert (found.reach.total_hops, found.reach.num_sampled) == (hops, 90)
    assert found.reach.mean_nodes == pytest.approx(near.sum(1).mean())
    assert found.reach.max_nodes == near.sum(1).max()


def test_smoothing_is_that_of_all_pairs(run: Run, data: tuple[Graph, Split], found: Explanation) -> None:
    model, graph = adagpr_of(run), data[0]
    a = graph.adj.toarray() + np.eye(90)
    degree = a.sum(1)
    with torch.no_grad():
        h_0 = h = model.lin_in(features(graph.x)).relu()
        for part, conv in zip(found.smoothing, [*model.layers(), None], strict=True):
            rows = h.double().numpy()
            scaled = rows / np.sqrt(degree)[:, None]
            energy = sum(a[i, j] * ((scaled[i] - scaled[j]) ** 2).sum() for i in range(90) for j in range(90)) / 2
            unit = rows[rows.any(1)] / np.linalg.norm(rows[rows.any(1)], axis=1)[:, None]
            cosines = (unit @ unit.T)[~np.eye(len(unit), dtype=bool)]
            assert part.dirichlet_energy == pytest.approx(energy / 90)
            assert part.relative_energy == pytest.approx(energy / (rows**2).sum())
            assert part.cosine_distance == pytest.approx(1 - cosines.mean())
            h = h if conv is None else conv(h, h_0, operator(graph)).relu()


def test_without_the_graph_is_the_network_on_no_edges(run: Run, data: tuple[Graph, Split], found: Explanation) -> None:
    graph, split = data
    edgeless = logits_of(run.model, replace(graph, adj=sp.csr_array((90, 90))))
    right, alone = (item[split.val].argmax(1) == graph.y[split.val] for item in (logits_of(run.model, graph), edgeless))
    first = found.ablations[0]
    assert first.name == "without the graph"
    assert first.accuracy == pytest.approx(100 * alone.double().mean())
    assert first.right_only_with == int((right & ~alone).sum()) > 0
    assert first.right_only_without == int((alone & ~right).sum())
    assert first.difference == pytest.approx((found.val_acc or 0.0) - first.accuracy)


@pytest.mark.parametrize(
    "changes",
    [{}, {"weight_maps": "separate"}, {"pair_norm": 1.0}, {"num_coeffs": [3, 4]}],
    ids=["shared", "separate", "pair-norm", "uneven"],
)
def test_removing_a_hop_of_coefficient_0_changes_no_bit(changes: dict[str, Any], data: tuple[Graph, Split]) -> None:
    run = fit(*data, **OPTIONS | {"max_epochs": 3} | changes)
    for conv in adagpr_of(run).layers():
        assert conv.scores is not None
        conv.scores.data = torch.tensor([0.3, -9.0, 0.4, -9.0])[: len(conv.scores)]
    coeffs = adagpr_of(run).coefficients()
    assert coeffs[:, 1].tolist() == [0, 0]
    before = logits_of(run.model, data[0])
    assert torch.equal(before, logits_of(adagpr_of(run).with_coefficients(coeffs), data[0]))
    changed = {item.name: item for item in explain(run, graph=data[0], split=data[1]).ablations}
    assert changed["without hop 1"].max_change == 0
    assert changed["without hop 1"].difference == 0
    assert changed["without hop 0"].max_change > 0
    assert changed["without hop 2"].max_change > 0
    assert changed["hop 0 alone"].max_change > 0
    assert adagpr_of(run).layers()[0].scores is not None


def test_groups_hold_each_validation_node_once(run: Run, data: tuple[Graph, Split], found: Explanation) -> None:
    graph, split = data
    right = (logits_of(run.model, graph).argmax(1) == graph.y).numpy()
    adj, y = graph.adj.toarray() > 0, graph.y.numpy()
    val = split.val.tolist()
    for by in ("degree", "homophily"):
        assert sum(group.num_nodes for group in found.groups if group.by == by) == len(val)
    wanted = [node for node in val if 4 <= adj[node].sum() <= 7]
    (group,) = (item for item in found.groups if (item.by, item.name) == ("degree", "4 to 7"))
    assert group.num_nodes == len(wanted) > 0
    assert group.accuracy == pytest.approx(100 * right[wanted].mean())
    share = {node: (y[adj[node]] == y[node]).mean() for node in val if adj[node].any()}
    wanted = [node for node, value in share.items() if value >= 0.8]
    (group,) = (item for item in found.groups if (item.by, item.name) == ("homophily", "0.8 to 1.0"))
    assert group.num_nodes == len(wanted) > 0
    assert group.accuracy == pytest.approx(100 * right[wanted].mean())


def test_a_nodes_probability_is_that_of_the_run(run: Run, found: Explanation) -> None:
    row = run.predictions.slice(7, 1).to_pylist()[0]
    assert found.node is not None
    assert found.node.prediction == row["prediction"]
    assert found.node.probability == pytest.approx(row[f"p_{row['prediction']}"], abs=1e-5)


def test_plain_data_goes_through_json_and_tables_through_parquet(found: Explanation, tmp_path: Path) -> None:
    plain = json.loads(json.dumps(found.to_plain(), allow_nan=False))
    assert plain["layers"][1]["coefficients"] == list(found.layers[1].coefficients)
    found.save(tmp_path / "tables")
    layers = pq.read_table(tmp_path / "tables" / "layers.parquet").to_pylist()
    assert [row["layer"] for row in layers] == [0, 1, 2]
    assert layers[0]["coefficients"] is None
    assert layers[2]["response"] == list(found.layers[1].response)
    assert layers[2]["cosine_distance"] == found.smoothing[2].cosine_distance
    groups = pq.read_table(tmp_path / "tables" / "groups.parquet").to_pylist()
    assert [row["accuracy"] for row in groups] == [group.accuracy for group in found.groups]
    assert pq.read_table(tmp_path / "tables" / "ablations.parquet").num_rows == len(found.ablations) == 5


def test_a_layer_at_hop_0_uses_no_graph(data: tuple[Graph, Split]) -> None:
    options = OPTIONS | {"projection": "fixed", "fixed_coeffs": [1.0], "num_coeffs": 1, "max_epochs": 2}
    found = explain(fit(*data, **options))
    assert [part.uses_graph for part in found.layers] == [False, False]
    assert (found.reach.total_hops, found.reach.mean_nodes) == (0, 1.0)
    assert {item.difference for item in found.ablations[:2]} == {0.0}


def test_pair_norm_leaves_out_what_it_makes_meaningless(data: tuple[Graph, Split]) -> None:
    found = explain(fit(*data, pair_norm=1.0, **OPTIONS | {"max_epochs": 2}), node=7)
    assert (found.network_response, found.node) == (None, None)
    assert "PairNorm" in found.remarks[0]
    assert len(found.smoothing) == 3


def test_gcnii_and_a_directed_graph_of_ones_own(data: tuple[Graph, Split]) -> None:
    rng = np.random.default_rng(0)
    adj = sp.random_array((90, 90), density=0.05, rng=rng, format="csr")
    own, split = from_scipy(adj, data[0].x, data[0].y), data[1]
    run = fit(own, split, "gcnii", num_layers=2, hidden_channels=8, max_epochs=2)
    found = explain(run, graph=own, split=split, node=3)
    assert [part.coefficients for part in found.layers] == [(0, 1), (0, 1)]
    assert "The graph is directed" in found.remarks[0]
    with pytest.raises(InputError, match=r"cannot be loaded again, so give them: Unknown data set 'graph'"):
        explain(run)
    with pytest.raises(InputError, match="graph and split must be given together"):
        explain(run, graph=own)


def test_other_data_than_the_runs_are_refused(run: Run, data: tuple[Graph, Split]) -> None:
    with pytest.raises(InputError, match="This is not the graph of the run"):
        explain(run, graph=csbm(**DATA, seed=5), split=data[1])
    with pytest.raises(InputError, match="This is not the split of the run"):
        explain(run, graph=data[0], split=Split(data[1].val, data[1].train, data[1].test))


@pytest.mark.parametrize("name", ["gcn", "mlp", "gprgnn"])
def test_a_model_without_such_layers_is_refused(name: str, data: tuple[Graph, Split]) -> None:
    run = fit(*data, name, max_epochs=1)
    with pytest.raises(InputError, match=f"The model '{name}' has no layers with coefficients to explain."):
        explain(run)
