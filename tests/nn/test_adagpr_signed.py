from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import adagpr
from adagpr.errors import InputError
from adagpr.graph import Graph, from_edge_index
from adagpr.nn import AdaGPRSigned, AdaGPRSignedConv
from adagpr.ops import Operator, edge_operator, features
from adagpr.training import resolve

EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2, 5], [1, 2, 0, 4, 5, 3, 5, 1]])


def directed_graph(x: Tensor | None = None) -> Graph:
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)) if x is None else x
    return from_edge_index(EDGES, x, [0, 1, 2, 0, 1, 2])


def operators(count: int) -> tuple[Operator, ...]:
    model = make(directions="both" if count == 2 else "one")
    structure: tuple[Operator, ...] = model.structure(directed_graph(), self_loops=False, dtype=torch.float64)
    return structure


def make(**arguments: Any) -> AdaGPRSigned:
    model = AdaGPRSigned(**{"in_channels": 5, "hidden_channels": 4, "out_channels": 3, "num_layers": 2, **arguments})
    model.seed(1)
    with torch.no_grad():
        for conv in model.layers():
            for parameter in conv.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return model.double()


def dense(conv: AdaGPRSignedConv, x: Tensor, matrices: list[Tensor]) -> Tensor:
    """The equation of the layer, with powers of dense matrices."""
    *maps, own = conv.weights().split(conv.channels)
    z: Tensor = x @ own
    for matrix, coeffs, weight in zip(matrices, conv.coeffs(), maps, strict=True):
        powers = [torch.linalg.matrix_power(matrix, hop) for hop in range(conv.num_coeffs)]
        z = z + sum(c * power for c, power in zip(coeffs, powers, strict=True)) @ x @ weight
    if conv.scale is not None:
        axis = 0 if conv.norm == "batch" else 1
        variance, mean = torch.var_mean(z, axis, correction=0, keepdim=True)
        z = conv.scale * (z - mean) / (variance + 1e-5).sqrt()
    return z + conv.shift


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("count", [1, 2])
def test_the_layer_is_its_equation(norm: Any, count: Any) -> None:
    given = operators(count)
    conv = make(norm=norm, directions="both" if count == 2 else "one").layers()[0]
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    expected = dense(conv, x, [item.matrix.to_dense() for item in given])
    torch.testing.assert_close(conv(x, given), expected)
    parameters = [*conv.parameters(), x]
    weights = torch.randn(6, 4, dtype=torch.float64)
    expected_grads = torch.autograd.grad((expected * weights).sum(), parameters)
    torch.testing.assert_close(torch.autograd.grad((conv(x, given) * weights).sum(), parameters), expected_grads)


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("training", [True, False])
def test_all_layers_at_once_are_the_layers_one_by_one(norm: Any, training: bool) -> None:
    model, given = make(norm=norm, dropout=0.0, directions="both"), operators(2)
    h_0 = torch.randn(6, 4, dtype=torch.float64).relu()
    before = [conv.running_moments.clone() for conv in model.layers() if norm == "batch"]
    at_once = model.train(training).trunk(h_0, given)
    after = [conv.running_moments.clone() for conv in model.layers() if norm == "batch"]
    for conv, moments in zip(model.layers(), before, strict=False):
        conv.running_moments.copy_(moments)
    torch.testing.assert_close(at_once, [*model.hidden_matrices(h_0, given)][-1])
    torch.testing.assert_close([conv.running_moments for conv in model.layers() if norm == "batch"], after)


def test_two_operators_read_edges_forwards_and_backwards() -> None:
    conv = make(directions="both", norm="none").layers()[0]
    x, forward = torch.randn(6, 4, dtype=torch.float64), operators(2)[0]
    torch.testing.assert_close(conv(x, EDGES.flip(0)), conv(x, [forward, forward.reversed()]))
    assert not torch.equal(forward.matrix.to_dense(), forward.transpose.to_dense())


def test_a_directed_graph_is_read_both_ways_unless_asked_otherwise() -> None:
    graph = directed_graph()
    split = adagpr.graph.Split(torch.tensor([0, 1, 2]), torch.tensor([3, 4]), torch.tensor([5]))
    for given, directions in (
        ({}, "both"),
        ({"direction": "symmetric"}, "one"),
        ({"directions": "one"}, "one"),
    ):
        setup = resolve(graph, split, "adagpr-signed", given)
        assert setup.plain["model"]["directions"] == directions
        assert not setup.plain["training"]["self_loops"]


def test_shrinkage_makes_small_coefficients_exactly_zero() -> None:
    conv = AdaGPRSignedConv(4, num_coeffs=3, shrinkage=0.2)
    with torch.no_grad():
        conv.scores.copy_(torch.tensor([[-0.7, 0.1, -0.2]]))
    torch.testing.assert_close(conv.coeffs().detach(), torch.tensor([[-0.5, 0.0, 0.0]]))


def test_without_a_map_of_its_own_a_node_is_read_through_the_hops_alone() -> None:
    model = make(own_map=False, norm="none")
    x = features(directed_graph().x, torch.float64)
    conv = model.layers()[0]
    with torch.no_grad():
        conv.scores.zero_()
        torch.testing.assert_close(conv(model.first(x), operators(1)), conv.shift.expand(6, 4))


def test_the_number_of_features_decides_how_deep_a_network_is() -> None:
    split = adagpr.graph.Split(torch.arange(0, 100), torch.arange(100, 200), torch.arange(200, 250))
    for num_features, num_layers, norm in ((5, 12, "batch"), (6, 2, "layer")):
        graph = adagpr.data.csbm(num_nodes=250, num_features=num_features)
        model = resolve(graph, split, "adagpr-signed", {}).plain["model"]
        assert (model["num_layers"], model["norm"]) == (num_layers, norm)
        assert resolve(graph, split, "adagpr-signed", {"num_layers": 7}).plain["model"]["num_layers"] == 7


def test_batch_normalisation_of_one_node_is_refused() -> None:
    conv, pair = AdaGPRSignedConv(4, num_coeffs=1), torch.zeros(2, 0, dtype=torch.int64)
    model = make().float()
    for compute in (
        lambda: conv(torch.randn(1, 4), pair),
        lambda: model(torch.ones(1, 5), edge_operator(pair, 1)),
    ):
        with pytest.raises(InputError, match="Batch normalisation needs two nodes or more, got 1"):
            compute()


def test_operators_must_be_those_that_the_network_reads() -> None:
    x, both = torch.randn(6, 5, dtype=torch.float64), make(directions="both")
    with pytest.raises(InputError, match="it reads 1 operators, got 2"):
        make().layers()[0](torch.randn(6, 4, dtype=torch.float64), operators(2))
    with pytest.raises(InputError, match="The layers read 2 operators, got 1"):
        both(x, operators(1))
    with pytest.raises(InputError, match="The operator has 6 rows, but there are 5 rows of features"):
        both(x[:5], operators(2))
    with pytest.raises(InputError, match="directions 'both' needs direction 'directed', got 'symmetric'"):
        both.structure(directed_graph(), "symmetric", self_loops=False)


def test_negative_edge_weights_are_refused() -> None:
    with pytest.raises(InputError, match="edge weights must not be negative"):
        AdaGPRSignedConv(4, num_coeffs=2)(torch.randn(6, 4), EDGES, -torch.ones(8))
