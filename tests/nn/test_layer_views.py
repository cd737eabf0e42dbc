from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch

from adagpr.graph import Graph
from adagpr.nn import EDGES, GCNII, MODELS, AdaGPR, AdaGPRSigned, Capabilities, LayerView, Model, build, model_options
from adagpr.ops import Operator, features, operator

MakeGraph = Callable[..., Graph]


def make(**arguments: Any) -> AdaGPR:
    model = AdaGPR(**{"in_channels": 12, "hidden_channels": 8, "out_channels": 3, "num_layers": 3, **arguments})
    model.seed(1)
    return model.double().eval()


def make_signed(**arguments: Any) -> AdaGPRSigned:
    """With random coefficients, shifts, scales and moments."""
    model = AdaGPRSigned(in_channels=12, hidden_channels=8, out_channels=3, num_layers=3, **arguments)
    model.seed(1)
    generator = torch.Generator().manual_seed(2)
    for conv in model.layers():
        for item in (conv.scores, conv.shift, conv.scale):
            if item is not None:
                item.data = torch.randn(item.shape, generator=generator)
        if model.norm == "batch":
            conv.running_moments.copy_(torch.rand(2, 8, generator=generator) + 0.2)
    return model.double().eval()


def output(view: LayerView, h: torch.Tensor, h_0: torch.Tensor, operators: dict[str, Operator]) -> torch.Tensor:
    """The equation of `LayerView`, dense."""
    total = h_0 @ view.residual_map()
    for name, weight in view.operator_maps().items():
        adj, coeffs = operators[name].matrix.to_dense(), view.coefficients[name]
        total = total + sum(mu * torch.linalg.matrix_power(adj, hop) for hop, mu in enumerate(coeffs)) @ h @ weight
    if view.own is not None:
        total = total + h @ view.own
    if view.row_norm is not None:
        deviation = (total.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        total = (total - total.mean(1, keepdim=True)) / deviation * view.row_norm
    return (total if view.shift is None else total + view.shift).relu()


@pytest.mark.parametrize("weight_maps", ["shared", "separate", "separate-scaled"])
def test_views_say_what_the_layers_compute(weight_maps: str, make_graph: MakeGraph) -> None:
    assert_views_are_the_model(make(weight_maps=weight_maps, num_coeffs=[2, 4, 1], alpha=[0.1, 0.4, 0.2]), make_graph())


@pytest.mark.parametrize("directions", ["one", "both"])
@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("own_map", [True, False])
def test_views_of_signed_hops_say_what_the_layers_compute(
    directions: str, norm: str, own_map: bool, make_graph: MakeGraph
) -> None:
    assert_views_are_the_model(make_signed(directions=directions, norm=norm, own_map=own_map), make_graph())


def assert_views_are_the_model(model: Model, graph: Graph) -> None:
    operators = model.operators(graph, "directed", True, torch.float64)
    lin_in, lin_out = model.outer_maps()
    with torch.no_grad():
        x = features(graph.x, torch.float64)
        h = h_0 = lin_in(x).relu()
        for view in model.layer_views():
            h = output(view, h, h_0, operators)
        torch.testing.assert_close(lin_out(h), model(x, model.prepare(graph, **operators)))
    assert [view.number for view in model.layer_views()] == [1, 2, 3]


@pytest.mark.parametrize("model", [make(), make_signed(directions="both")], ids=["adagpr", "signed"])
def test_hidden_matrices_end_with_what_the_fused_layers_give(model: Model, make_graph: MakeGraph) -> None:
    structure = model.structure(make_graph(), dtype=torch.float64)
    with torch.no_grad():
        h_0 = model.first(features(make_graph().x, torch.float64))
        first, *_, last = model.hidden_matrices(h_0, structure)
        torch.testing.assert_close(last, model.trunk(h_0, structure))
    assert first is h_0


def test_the_hidden_matrices_of_a_model_with_drop_edge_are_those_of_all_edges(make_graph: MakeGraph) -> None:
    model, graph = make(drop_edge=0.5), make_graph()
    with torch.no_grad():
        h_0 = model.first(features(graph.x, torch.float64))
        *_, last = model.hidden_matrices(h_0, model.structure(graph, dtype=torch.float64))
        *_, expected = make().hidden_matrices(h_0, operator(graph, dtype=torch.float64))
    assert torch.equal(last, expected)


def test_a_copy_with_other_coefficients_leaves_the_model_as_it_was() -> None:
    model, fixed = make(num_coeffs=2), torch.tensor([[1.0, 0.0]] * 3, dtype=torch.float64)
    before = model.coefficients()
    copy = model.with_coefficients(fixed)
    assert torch.equal(copy.coefficients(), fixed)
    assert torch.equal(model.coefficients(), before)
    assert [view.learned for view in model.layer_views()] == [True] * 3
    assert not any(view.learned for view in copy.layer_views())


ALL = Capabilities(hop_weights=True, fused_stack=True, batched=True, partitioned=True, theory=True)


@pytest.mark.parametrize(
    ("model", "lacks"),
    [
        (make(), []),
        (GCNII(12, 8, 3), []),
        (make(drop_edge=0.5), ["batched", "partitioned"]),
        (make(weight_maps="separate"), ["theory"]),
        (make(pair_norm=1.0), ["fused_stack", "batched", "partitioned", "theory"]),
        (make_signed(), []),
        (make_signed(norm="layer"), ["theory"]),
        (make_signed(directions="both"), ["partitioned", "theory"]),
    ],
    ids=["adagpr", "gcnii", "drop_edge", "gcnii*", "pair_norm", "signed", "row norm", "two operators"],
)
def test_capabilities_follow_the_arguments(model: Model, lacks: list[str]) -> None:
    signed = isinstance(model, AdaGPRSigned)
    assert asdict(model.capabilities) == asdict(ALL) | {"signed": signed} | dict.fromkeys(lacks, False)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("adagpr", "adagpr-signed", "gcnii")])
def test_other_models_have_no_layers_to_view(name: str, make_graph: MakeGraph) -> None:
    model = build(name, {**model_options(name), "in_channels": 12, "out_channels": 3})
    assert model.capabilities == Capabilities()
    assert model.layer_views() == ()
    with pytest.raises(NotImplementedError, match="has no outer maps; see its capabilities"):
        model.outer_maps()
    assert list(model.operators(make_graph(), "directed", True, torch.float32)) == [EDGES]
