from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch

from adagpr.graph import Graph
from adagpr.nn import EDGES, GCNII, MODELS, AdaGPR, Capabilities, LayerView, Model, build, model_options
from adagpr.ops import features, operator

MakeGraph = Callable[..., Graph]


def make(**arguments: Any) -> AdaGPR:
    model = AdaGPR(**{"in_channels": 12, "hidden_channels": 8, "out_channels": 3, "num_layers": 3, **arguments})
    model.seed(1)
    return model.double().eval()


def output(view: LayerView, h: torch.Tensor, h_0: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
    """The equation of `LayerView`, dense."""
    powers = [torch.linalg.matrix_power(adj, hop) for hop in range(len(view.coefficients[EDGES]))]
    spread = sum(mu * power for mu, power in zip(view.coefficients[EDGES], powers, strict=True))
    own, residual = view.maps()
    result: torch.Tensor = (spread @ h @ own + h_0 @ residual).relu()
    return result


@pytest.mark.parametrize("weight_maps", ["shared", "separate", "separate-scaled"])
def test_views_say_what_the_layers_compute(weight_maps: str, make_graph: MakeGraph) -> None:
    graph, model = make_graph(), make(weight_maps=weight_maps, num_coeffs=[2, 4, 1], alpha=[0.1, 0.4, 0.2])
    op = operator(graph, dtype=torch.float64)
    lin_in, lin_out = model.outer_maps()
    with torch.no_grad():
        x = features(graph.x, torch.float64)
        h = h_0 = lin_in(x).relu()
        for view in model.layer_views():
            h = output(view, h, h_0, op.matrix.to_dense())
        torch.testing.assert_close(lin_out(h), model(x, op))
    assert [view.number for view in model.layer_views()] == [1, 2, 3]


def test_hidden_matrices_end_with_what_the_fused_layers_give(make_graph: MakeGraph) -> None:
    model, op = make(), operator(make_graph(), dtype=torch.float64)
    with torch.no_grad():
        h_0 = model.first(features(make_graph().x, torch.float64))
        first, *_, last = model.hidden_matrices(h_0, op)
        torch.testing.assert_close(last, model.trunk(h_0, op))
    assert first is h_0


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
    ],
    ids=["adagpr", "gcnii", "drop_edge", "gcnii*", "pair_norm"],
)
def test_capabilities_follow_the_arguments(model: Model, lacks: list[str]) -> None:
    assert asdict(model.capabilities) == asdict(ALL) | dict.fromkeys(lacks, False)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("adagpr", "adagpr-signed", "gcnii")])
def test_other_models_have_no_layers_to_view(name: str, make_graph: MakeGraph) -> None:
    model = build(name, {**model_options(name), "in_channels": 12, "out_channels": 3})
    assert model.capabilities == Capabilities()
    assert model.layer_views() == ()
    with pytest.raises(NotImplementedError, match="has no outer maps; see its capabilities"):
        model.outer_maps()
    assert list(model.operators(make_graph(), "directed", True, torch.float32)) == [EDGES]
