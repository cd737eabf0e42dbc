"""One contract for every model, and what sets each apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.nn import GCNII, MLP, MODELS, AdaGPR, Model, build, model_options
from adagpr.ops import features

SIZES = {"in_channels": 12, "hidden_channels": 8, "out_channels": 3}
LEARNING = [name for name in MODELS if name != "label-propagation"]
NEEDING_EDGES = ["geom-gcn"]


def make(name: str, seed: int = 0, **arguments: Any) -> Model:
    accepted = {"in_channels", "out_channels", *model_options(name)}
    model = build(name, {key: value for key, value in {**SIZES, **arguments}.items() if key in accepted})
    model.seed(seed)
    return model


def logits(model: Model, graph: Graph, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    structure = model.structure(graph, dtype=dtype)
    out: torch.Tensor = model(features(graph.x, dtype), structure)
    return out


@pytest.mark.parametrize("name", MODELS)
class TestEveryModel:
    @pytest.mark.parametrize("directed", [True, False])
    def test_gives_one_row_of_logits_a_node(self, name: str, directed: bool, make_graph: Callable[..., Graph]) -> None:
        assert logits(make(name), make_graph(directed=directed)).shape == (30, 3)

    def test_names_every_parameter_in_one_group(self, name: str, make_graph: Callable[..., Graph]) -> None:
        model = make(name)
        grouped = [id(parameter) for group in model.parameter_groups().values() for parameter in group]
        assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters())

    def test_sparse_features_give_the_logits_of_dense_ones(self, name: str, make_graph: Callable[..., Graph]) -> None:
        graph = make_graph(sparse=True)
        assert isinstance(graph.x, sp.csr_array)
        dense = Graph(torch.from_numpy(graph.x.toarray()), graph.adj, graph.y, graph.class_names)
        model = make(name).double().eval()
        torch.testing.assert_close(logits(model, graph, torch.float64), logits(model, dense, torch.float64))

    def test_permuting_nodes_permutes_logits(self, name: str, make_graph: Callable[..., Graph]) -> None:
        graph = make_graph()
        order = np.random.default_rng(0).permutation(30)
        moved = from_scipy(graph.adj[order][:, order], graph.x[order], graph.y[order])
        model = make(name).double().eval()
        one, other = logits(model, graph, torch.float64)[order], logits(model, moved, torch.float64)
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)

    def test_is_rebuilt_by_name_arguments_and_state(self, name: str, make_graph: Callable[..., Graph]) -> None:
        model = make(name, seed=3).eval()
        again = build(model.name, model.arguments).eval()
        again.load_state_dict(model.state_dict())
        assert torch.equal(logits(model, make_graph()), logits(again, make_graph()))

    def test_same_seed_gives_same_bits(self, name: str, make_graph: Callable[..., Graph]) -> None:
        one, two = (logits(make(name, seed=5), make_graph()) for _ in range(2))
        assert torch.equal(one, two)

    def test_another_seed_gives_other_parameters(self, name: str) -> None:
        one, two = (make(name, seed=seed).state_dict() for seed in (5, 6))
        assert [key for key in one if "weight" in key and torch.equal(one[key], two[key])] == []

    def test_says_what_it_is_good_for(self, name: str) -> None:
        assert MODELS[name].good_for
        assert MODELS[name].paper or name == "mlp"

    def test_evaluation_does_not_touch_the_random_stream(self, name: str, make_graph: Callable[..., Graph]) -> None:
        model = make(name).eval()
        assert torch.equal(logits(model, make_graph()), logits(model, make_graph()))

    def test_prints_itself(self, name: str) -> None:
        assert type(make(name)).__name__ in repr(make(name))


@pytest.mark.parametrize("name", LEARNING)
def test_a_gradient_reaches_every_parameter(name: str, make_graph: Callable[..., Graph]) -> None:
    model = make(name, dropout=0.0)
    logits(model, make_graph()).square().sum().backward()
    assert [key for key, value in model.named_parameters() if value.grad is None or not value.grad.any()] == []


def some_nodes(adj: sp.csr_array) -> Graph:
    return from_scipy(adj, np.random.default_rng(0).normal(size=(6, 12)), [0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("name", MODELS)
def test_isolated_nodes_get_finite_logits(name: str) -> None:
    graph = some_nodes(sp.csr_array(([1.0, 1.0, 1.0], ([0, 1, 0], [1, 0, 2])), shape=(6, 6)))
    assert torch.isfinite(logits(make(name), graph)).all()


@pytest.mark.parametrize("name", [name for name in MODELS if name not in NEEDING_EDGES])
def test_a_graph_without_edges_gets_finite_logits(name: str) -> None:
    assert torch.isfinite(logits(make(name), some_nodes(sp.csr_array((6, 6))))).all()


@pytest.mark.parametrize("name", NEEDING_EDGES)
def test_a_model_that_needs_edges_says_so(name: str) -> None:
    with pytest.raises(InputError, match="edge"):
        logits(make(name), some_nodes(sp.csr_array((6, 6))))


def test_coefficients_one_hot_at_hop_one_make_adagpr_gcnii_to_the_bit(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    gcnii = make("gcnii", num_layers=4)
    fixed = make("adagpr", num_layers=4, projection="fixed", num_coeffs=4, fixed_coeffs=[0.0, 1.0, 0.0, 0.0])
    assert torch.equal(logits(gcnii, graph), logits(fixed, graph))


def test_coefficients_one_hot_at_hop_zero_make_a_residual_network(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    lonely = Graph(graph.x, sp.csr_array((30, 30)), graph.y, graph.class_names)
    model = make("adagpr", projection="fixed", num_coeffs=1)
    assert model.coefficients().tolist() == [[1.0]] * 8  # type: ignore[union-attr]
    model.eval()
    assert torch.equal(logits(model, graph), logits(model, lonely))


def test_learned_scores_that_are_one_hot_equal_gcnii(make_graph: Callable[..., Graph]) -> None:
    learned = make("adagpr", num_coeffs=3, num_layers=3).double().eval()
    gcnii = make("gcnii", num_layers=3).double().eval()
    state = {name: value for name, value in learned.state_dict().items() if not name.endswith("scores")}
    gcnii.load_state_dict(state)
    for parameter in learned.parameter_groups()["coeffs"]:
        parameter.data.copy_(torch.tensor([0.0, 9.0, 0.0]))
    torch.testing.assert_close(
        logits(learned, make_graph(), torch.float64), logits(gcnii, make_graph(), torch.float64), rtol=1e-12, atol=1e-12
    )


def test_each_layer_may_have_its_own_hops_and_alpha(make_graph: Callable[..., Graph]) -> None:
    model = AdaGPR(12, 8, 3, num_layers=3, num_coeffs=[1, 4, 2], alpha=[0.0, 0.5, 1.0], dropout=0.0)
    coefficients = model.coefficients()
    assert coefficients.shape == (3, 4)
    assert coefficients[0].tolist() == [1, 0, 0, 0]
    assert coefficients[2, 2:].tolist() == [0, 0]
    assert [conv.alpha for conv in model.convs] == [0.0, 0.5, 1.0]
    logits(model, make_graph()).sum().backward()


def test_all_layers_projected_at_once_equal_each_layer_alone() -> None:
    model = AdaGPR(12, 8, 3, num_layers=5, num_coeffs=3)
    alone = torch.stack([conv.coeffs() for conv in model.layers()])
    torch.testing.assert_close(model.coefficients(), alone.detach(), rtol=0, atol=1e-7)


def test_parameters_start_in_the_published_ranges() -> None:
    model = AdaGPR(50, 16, 3, num_layers=20, num_coeffs=4)
    weights = torch.stack(list(model.parameter_groups()["convs"]))
    scores = torch.stack(list(model.parameter_groups()["coeffs"]))
    assert 0.24 < weights.abs().max() <= 0.25
    assert 0.45 < scores.abs().max() <= 0.5
    assert 0.13 < model.lin_in.weight.abs().max() <= 1 / np.sqrt(50)


def test_mlp_of_one_layer_is_logistic_regression(make_graph: Callable[..., Graph]) -> None:
    model = MLP(12, 8, 3, num_layers=1, dropout=0.0)
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(3, 12), (3,)]


def test_dropout_follows_torch_where_nobody_seeds_the_model(make_graph: Callable[..., Graph]) -> None:
    outputs = []
    for _ in range(2):
        torch.manual_seed(11)
        outputs.append(logits(GCNII(12, 8, 3), make_graph()))
    assert torch.equal(*outputs)


def test_unknown_model_and_argument_offer_the_nearest() -> None:
    with pytest.raises(InputError, match=r"Unknown model 'adagrp'. Did you mean 'adagpr'"):
        model_options("adagrp")
    with pytest.raises(InputError, match=r"Unknown key of AdaGPR 'num_layer'. Did you mean 'num_layers'"):
        build("adagpr", {**SIZES, "num_layer": 3})


def test_lists_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(InputError, match="AdaGPR: num_coeffs must be one value or 8, one per layer, got 2"):
        make("adagpr", num_coeffs=[2, 3])
