"""Networks of signed hops: what is left of them computes what the whole network computes, in every kind of file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.exporting import FORMATS, Exported, edge_inputs, export, load_exported, prune
from adagpr.exporting.module import Directions
from adagpr.exporting.onnx import to_onnx
from adagpr.exporting.prune import cost_as_trained, cost_pruned
from adagpr.exporting.safetensors import to_safetensors
from adagpr.graph import Graph, Split
from adagpr.nn import AdaGPRSigned
from adagpr.ops import features, operator
from adagpr.training import fit
from tests.exporting import about

MakeGraph = Callable[..., Graph]

# Per layer and operator; what is at most the shrinkage in size becomes 0. Zeros at the end, all but hop 0, everywhere.
SCORES = [
    [[0.9, -0.6, 0.05], [0.3, 0.02, -0.05]],
    [[-0.7, 0.05, 0.0], [0.4, 0.05, 0.8]],
    [[0.05, 0.0, 0.05], [0.0, 0.05, 0.0]],
    [[0.0, 1.1, -0.9], [0.6, -0.5, 0.0]],
    [[0.8, 0.0, 0.0], [0.5, 0.05, 0.0]],
]


def network(
    directions: Directions = "both",
    dtype: torch.dtype = torch.float64,
    scores: list[list[list[float]]] = SCORES,
    **options: Any,
) -> AdaGPRSigned:
    """A network with these scores, random weights and moments as if it had been trained."""
    arguments: dict[str, Any] = {"num_layers": len(scores), "num_coeffs": 3, "shrinkage": 0.1, **options}
    model = AdaGPRSigned(12, 8, 3, directions=directions, **arguments)
    model.seed(3)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for conv, own in zip(model.layers(), scores, strict=True):
            conv.scores.copy_(torch.tensor(own[: conv.num_operators]))
            conv.shift.copy_(torch.randn(8, generator=generator))
            if conv.scale is not None:
                conv.scale.copy_(torch.rand(8, generator=generator) + 0.5)
            if conv.norm == "batch":
                conv.running_moments.copy_(torch.rand(2, 8, generator=generator) + 0.2)
    return model.to(dtype).eval()


def pruned(model: AdaGPRSigned) -> Exported:
    return prune(model, replace(about(self_loops=False), directions=model.directions))


def logits(model: AdaGPRSigned, graph: Graph) -> Tensor:
    """What the whole network says."""
    dtype = model.lin_in.weight.dtype
    with torch.no_grad():
        return model(features(graph.x, dtype), model.structure(graph, self_loops=False, dtype=dtype))


def in_onnxruntime(content: bytes, graph: Graph, **options: Any) -> np.ndarray:
    assert isinstance(graph.x, Tensor)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    edges = edge_inputs(graph, "directed", False, **options)
    inputs = {"x": graph.x.float().numpy(), **edges}
    (found,) = session.run(None, {item.name: inputs[item.name] for item in session.get_inputs()})
    return np.asarray(found)


@pytest.mark.parametrize("directions", ["one", "both"])
@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("own_map", [True, False])
def test_the_logits_are_those_of_the_network(
    directions: Any, norm: str, own_map: bool, make_graph: MakeGraph, tmp_path: Path
) -> None:
    graph, model = make_graph(), network(directions, norm=norm, own_map=own_map)
    exact = pruned(model)
    found = exact(features(graph.x, torch.float64), exact.operator_of(graph))
    torch.testing.assert_close(found, logits(model, graph), rtol=1e-10, atol=1e-10)

    rounded = pruned(model.float())
    (tmp_path / "one").write_bytes(to_safetensors(rounded))
    back, expected = load_exported(tmp_path / "one"), logits(model, graph)
    assert back.about == rounded.about
    assert to_safetensors(back) == (tmp_path / "one").read_bytes()
    torch.testing.assert_close(back(graph.x, back.operator_of(graph)), expected, rtol=1e-4, atol=1e-4)
    matrix = back.operator_of(graph).matrix
    torch.testing.assert_close(back(graph.x, matrix), back(graph.x, matrix.to_dense()), rtol=1e-4, atol=1e-4)
    in_onnx = in_onnxruntime(to_onnx(rounded), graph, directions=directions)
    np.testing.assert_allclose(in_onnx, expected.numpy(), rtol=1e-4, atol=1e-4)


def test_the_operator_of_one_way_is_refused_by_a_network_of_both(make_graph: MakeGraph) -> None:
    graph, exact = make_graph(), pruned(network())
    with pytest.raises(InputError, match="and both_ends True, got 'directed', False and False"):
        exact(features(graph.x, torch.float64), operator(graph, self_loops=False, dtype=torch.float64))


def test_hop_0_joins_the_nodes_own_map() -> None:
    layers = pruned(network()).layers
    assert [len(layer.hops) - 1 for layer in layers] == [1, 0, 0, 2, 0]
    assert [len(layer.backward_hops) for layer in layers] == [0, 3, 0, 2, 0]
    assert [layer.weight_own is not None for layer in layers] == [True, False, False, True, False]
    assert all(layer.hops[0] == 0 for layer in layers if len(layer.hops) > 1)


def test_without_an_own_map_hop_0_stays_unless_an_operator_has_no_other() -> None:
    first, second, fourth, last = pruned(network(own_map=False, scores=[*SCORES[:2], *SCORES[3:]])).layers
    # The backward operator of the first layer has hop 0 alone: it becomes a map that the forward one's hop 0 joins.
    assert (first.hops[0], first.weight_own is not None, first.backward_hops) == (0.0, True, ())
    assert (second.hops, second.backward_hops[0]) == ((1.0,), 0.0)
    assert (fourth.hops[0], fourth.backward_hops[0] != 0, fourth.weight_own) == (0.0, True, None)
    assert (last.hops, last.backward_hops) == ((1.0,), ())


def test_a_layer_that_reads_nothing_cuts_off_what_is_below() -> None:
    assert [layer.number for layer in pruned(network(own_map=False)).layers] == [3, 4, 5]


def test_no_graph_is_needed_where_no_layer_uses_a_hop(make_graph: MakeGraph) -> None:
    graph, model = make_graph(), network(norm="layer", dtype=torch.float32)
    model = model.with_coefficients(torch.tensor([[0.5, 0.0, 0.0, -0.3, 0.0, 0.0]] * 5))
    assert not pruned(model).needs_graph
    torch.testing.assert_close(pruned(model)(graph.x), logits(model, graph), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(in_onnxruntime(to_onnx(pruned(model)), graph), logits(model, graph), atol=1e-4)


def test_the_cost_is_that_of_a_count_by_hand() -> None:
    model = network(norm="none")
    before, after = cost_as_trained(model), cost_pruned(pruned(model))
    outer = 12 * 8 + 8 * 3
    assert (before.sparse_products, before.per_node) == (5 * 4, outer + 5 * (2 * 3 * 8 + 3 * 64))
    # Two hops are left in one sum alone, the forward one of layer 4; the maps are 2, 2, 1, 3 and 1.
    assert (after.sparse_products, after.per_node) == (1 + 2 + 0 + 3 + 0, outer + 8 + 9 * 64)


def test_a_training_on_scaled_features_is_exported_in_every_format(make_graph: MakeGraph, tmp_path: Path) -> None:
    graph = make_graph(60)
    assert isinstance(graph.x, Tensor)
    graph = graph.with_features(graph.x * torch.logspace(-2, 2, 12) + 3)
    split = Split(torch.arange(30), torch.arange(30, 45), torch.arange(45, 60), "own")
    options: dict[str, Any] = {"num_layers": 2, "num_coeffs": 3, "hidden_channels": 8, "norm": "batch", "max_epochs": 5}
    run = fit(graph, split, "adagpr-signed", feature_scaling="standardise", shrinkage=0.01, **options)
    expected = run.model.eval()(features(run.scaled(graph).x), run.model.structure(graph, self_loops=False)).detach()
    for format_ in FORMATS:
        report = export(run, format_, tmp_path / format_, graph=graph)  # type: ignore[arg-type]
        assert (report.directions, report.direction, report.self_loops) == ("both", "directed", False)
        assert report.measured is not None
        assert report.measured.max_difference < 1e-4
        assert all(layer.backward_hops is not None for layer in report.layers)
    loaded = load_exported(tmp_path / "safetensors")
    assert loaded.about.hop_names[-1] == "hop 2 backward"
    assert len(loaded.about.coefficients[0]) == 6
    torch.testing.assert_close(loaded(graph.x, loaded.operator_of(graph)), expected, rtol=1e-4, atol=1e-4)
    program = torch.export.load(str(tmp_path / "torch")).module()
    edges = [torch.from_numpy(array) for array in edge_inputs(graph, "directed", False, "both").values()]
    torch.testing.assert_close(program(graph.x, *edges), expected, rtol=1e-4, atol=1e-4)
    found = in_onnxruntime((tmp_path / "onnx").read_bytes(), graph, directions="both")
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)


def test_edges_are_read_one_way_or_both(make_graph: MakeGraph) -> None:
    with pytest.raises(InputError, match="directions must be 'one' or 'both', got 'two'"):
        edge_inputs(make_graph(), directions="two")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="directions 'both' needs direction 'directed', got 'symmetric'"):
        edge_inputs(make_graph(), "symmetric", directions="both")
