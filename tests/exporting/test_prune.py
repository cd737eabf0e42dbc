"""What is left of a network computes what the whole network computes, and no more than is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adagpr.errors import InputError
from adagpr.exporting.prune import cost_as_trained, cost_pruned
from adagpr.graph import Graph, from_scipy
from adagpr.nn import GCNII, AdaGPR
from adagpr.ops import Direction, features, operator
from tests.exporting import HOP_0, MIXED, exported, logits, network

WEIGHT_MAPS = ["shared", "separate", "separate-scaled"]

MakeGraph = Callable[..., Graph]


def assert_equal(
    model: AdaGPR, graph: Graph, direction: Direction = "directed", self_loops: bool = True, tolerance: float = 1e-10
) -> None:
    dtype = model.lin_in.weight.dtype
    op = operator(graph, direction, self_loops, dtype)
    pruned = exported(model, direction, self_loops)
    found = pruned(features(graph.x, dtype), op if pruned.needs_graph else None)
    torch.testing.assert_close(found, logits(model, graph, direction, self_loops), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("weight_maps", WEIGHT_MAPS)
@pytest.mark.parametrize("direction", ["directed", "symmetric"])
@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_layers_of_all_kinds_give_the_networks_logits(
    weight_maps: str, direction: Direction, self_loops: bool, sparse: bool, make_graph: MakeGraph
) -> None:
    model = network(MIXED, weight_maps=weight_maps)
    assert_equal(model, make_graph(sparse=sparse), direction, self_loops)


@pytest.mark.parametrize("weight_maps", WEIGHT_MAPS)
def test_without_hops_no_graph_is_needed(weight_maps: str, make_graph: MakeGraph) -> None:
    model = network(HOP_0, weight_maps=weight_maps)
    assert not exported(model).needs_graph
    assert_equal(model, make_graph())


@pytest.mark.parametrize("weight_maps", WEIGHT_MAPS)
def test_one_coefficient_a_layer_is_enough(weight_maps: str, make_graph: MakeGraph) -> None:
    model = network([[1.0], [0.6]], weight_maps=weight_maps)
    assert not exported(model).needs_graph
    assert_equal(model, make_graph())


@pytest.mark.parametrize("weight_maps", WEIGHT_MAPS)
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_gcnii_keeps_one_product_a_layer(weight_maps: Any, alpha: float, make_graph: MakeGraph) -> None:
    model = GCNII(12, 8, 3, num_layers=3, alpha=alpha, weight_maps=weight_maps).double().eval()
    assert [layer.hops for layer in exported(model).layers[1:]] == [(0.0, 1.0)] * 2
    assert_equal(model, make_graph())


@pytest.mark.parametrize(
    "projection", ["exp-sparsemax", "sparsemax", "entmax-1.5", "softmax", "exp-sum", "sphericalmax"]
)
def test_learned_coefficients_become_numbers(projection: Any, make_graph: MakeGraph) -> None:
    model = AdaGPR(12, 8, 3, num_layers=3, num_coeffs=[1, 4, 2], projection=projection).double().eval()
    assert_equal(model, make_graph())


@settings(max_examples=60)
@given(
    coeffs=st.lists(
        st.lists(st.sampled_from([0.0, 0.0, 1.0, 0.25, -0.5, 1e-30]), min_size=3, max_size=3), min_size=1, max_size=4
    ),
    alpha=st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9]), min_size=4, max_size=4),
    weight_maps=st.sampled_from(WEIGHT_MAPS),
)
def test_any_coefficients_give_the_networks_logits(
    coeffs: list[list[float]], alpha: list[float], weight_maps: str
) -> None:
    rng = np.random.default_rng(0)
    adj = rng.random((15, 15)) * (rng.random((15, 15)) < 0.2)
    graph = from_scipy(adj, rng.normal(size=(15, 12)), np.arange(15) % 3)
    assert_equal(network(coeffs, alpha=alpha[: len(coeffs)], weight_maps=weight_maps), graph)


@pytest.mark.parametrize("weight_maps", ["shared", "separate-scaled"])
def test_layers_below_one_that_does_not_read_them_are_left_out(weight_maps: str, make_graph: MakeGraph) -> None:
    model = network(MIXED, alpha=[0.3, 0.3, 1.0, 0.3, 0.3], weight_maps=weight_maps)
    assert [layer.number for layer in exported(model).layers] == [3, 4, 5]
    assert_equal(model, make_graph())


@pytest.mark.parametrize("weight_maps", WEIGHT_MAPS)
def test_a_layer_without_any_coefficient_cuts_off_what_is_below(weight_maps: str, make_graph: MakeGraph) -> None:
    model = network([MIXED[0], [0.0] * 4, MIXED[3]], weight_maps=weight_maps)
    assert [layer.number for layer in exported(model).layers] == [2, 3]
    assert_equal(model, make_graph())


def test_a_layer_that_reads_nothing_at_all_gives_the_bias(make_graph: MakeGraph) -> None:
    model = network([MIXED[0], [0.0] * 4], alpha=0.0)
    assert_equal(model, make_graph())
    assert torch.equal(logits(model, make_graph()), model.lin_out.bias.expand(30, -1))


def test_a_residual_that_undoes_hop_0_is_no_part_of_the_sum(make_graph: MakeGraph) -> None:
    model = network([[-1.0, 0.0, 0.0, 0.0], MIXED[0]], alpha=0.5)
    assert_equal(model, make_graph())


def test_float32_stays_close(make_graph: MakeGraph) -> None:
    assert_equal(network(MIXED, torch.float32), make_graph(), tolerance=1e-5)


def test_the_largest_coefficient_is_in_the_weights() -> None:
    for layer in exported(network(MIXED)).layers:
        assert max(map(abs, (*layer.hops, layer.residual))) == 1.0
        assert layer.hops[-1] != 0


def test_products_are_counted_as_they_are_taken(make_graph: MakeGraph) -> None:
    model = network(MIXED)
    pruned = exported(model)
    taken = 0
    matrix = operator(make_graph(), dtype=torch.float64).matrix

    def product(h: torch.Tensor, plus: torch.Tensor | None) -> torch.Tensor:
        nonlocal taken
        taken += 1
        return matrix @ h if plus is None else matrix @ h + plus

    pruned.compute(torch.zeros(30, 12, dtype=torch.float64), product)
    assert taken == cost_pruned(pruned).sparse_products == 2 + 0 + 2 + 2 + 3
    assert cost_as_trained(model).sparse_products == 5 * 3


def test_the_cost_is_that_of_a_count_by_hand() -> None:
    model = network([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    before, after = cost_as_trained(model), cost_pruned(exported(model))
    assert (before.per_node, before.per_edge) == (12 * 8 + 2 * (4 * 8 + 64) + 8 * 3, 4 * 8)
    # Layer 1 sums two hops (the residual has joined hop 0), layer 2 adds the residual; one of each is in the weights.
    assert (after.per_node, after.per_edge) == (12 * 8 + (8 + 64) + (8 + 64) + 8 * 3, 8)
    assert before.parameters == 12 * 8 + 8 + 2 * 64 + 8 * 3 + 3
    assert after.parameters == before.parameters + 2 + 2
    assert after.total(10, 20) == 10 * after.per_node + 20 * after.per_edge


def test_two_maps_of_one_matrix_are_joined() -> None:
    pruned = exported(network(HOP_0, weight_maps="separate"))
    assert [layer.weight_0 is None for layer in pruned.layers] == [True, False, False]


def test_the_model_is_not_changed(make_graph: MakeGraph) -> None:
    model = network(MIXED, torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for tensor in exported(model).buffers():
        tensor.fill_(7.0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_pair_norm_is_refused() -> None:
    with pytest.raises(InputError, match="PairNorm cannot be exported"):
        exported(network(MIXED, pair_norm=1.0))


@pytest.mark.parametrize(
    ("shape", "op", "sentence"),
    [
        ((30, 11), {}, "x must have 12 features, got 11."),
        ((30, 12), None, "this network reads the graph, so an operator must be given."),
        ((29, 12), {}, "the operator must be 29 x 29, got 30 x 30."),
        (
            (30, 12),
            {"self_loops": False},
            "the operator must have direction 'directed', self_loops True and both_ends False, got ",
        ),
        ((30, 12), {"direction": "symmetric"}, "got 'symmetric', True and False."),
    ],
)
def test_a_wrong_input_is_named(
    shape: tuple[int, int], op: dict[str, Any] | None, sentence: str, make_graph: MakeGraph
) -> None:
    given = None if op is None else operator(make_graph(), **op)
    with pytest.raises(InputError, match=sentence):
        exported(network(MIXED, torch.float32))(torch.zeros(shape), given)
