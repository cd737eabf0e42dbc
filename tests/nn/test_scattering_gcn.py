from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.nn.scattering_gcn import ScatteringGCN, lazy_walk, scatter
from adagpr.ops import features, operator
from adagpr.ops.operator import Direction


def make(seed: int = 0, **arguments: Any) -> ScatteringGCN:
    model = ScatteringGCN(**{"in_channels": 12, "hidden_channels": 4, "out_channels": 3, "dropout": 0.0, **arguments})
    model.seed(seed)
    return model


def logits(
    model: ScatteringGCN, graph: Graph, dtype: torch.dtype = torch.float64, direction: Direction = "directed"
) -> torch.Tensor:
    structure = model.structure(graph, direction, dtype=dtype)
    out: torch.Tensor = model(features(graph.x, dtype), structure)
    return out


def dense_walk(adj: np.ndarray) -> np.ndarray:
    walk = np.zeros_like(adj)
    for j in range(len(adj)):
        column = adj[:, j] / adj[:, j].sum() if adj[:, j].sum() else np.eye(len(adj))[j]
        walk[:, j] = 0.5 * (np.eye(len(adj))[j] + column)
    return walk


def wavelet(walk: np.ndarray, scale: int) -> np.ndarray:
    low, high = (0, 1) if scale == 0 else (2 ** (scale - 1), 2**scale)
    found: np.ndarray = np.linalg.matrix_power(walk, low) - np.linalg.matrix_power(walk, high)
    return found


@pytest.mark.parametrize("direction", ["directed", "symmetric"])
def test_the_network_is_the_paper_s_equations_with_dense_matrices(
    direction: Direction, make_graph: Callable[..., Graph]
) -> None:
    graph = make_graph()
    model = make(num_low_pass=2, paths=[[0], [2, 1]], scattering_channels=[5, 2], power=3.0, alpha=0.7).double()
    adj = graph.adj.toarray()
    adj = np.maximum(adj, adj.T) if direction == "symmetric" else adj
    low = operator(graph, direction, dtype=torch.float64).matrix.to_dense().numpy()
    walk = dense_walk(adj)
    x = np.asarray(graph.x, dtype=np.float64)
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    mapped = [x @ state[f"channels.{i}.weight"].T for i in range(4)]
    filtered = [
        low @ mapped[0],
        low @ low @ mapped[1],
        wavelet(walk, 0) @ mapped[2],
        wavelet(walk, 1) @ np.abs(wavelet(walk, 2) @ mapped[3]),
    ]
    hidden = np.hstack([np.abs(part + state[f"channels.{i}.bias"]) ** 3 for i, part in enumerate(filtered)])
    residual = (np.eye(30) + 0.7 * (2 * walk - np.eye(30))) / 1.7
    expected = residual @ hidden @ state["lin_out.weight"].T + state["lin_out.bias"]
    found = logits(model, graph, direction=direction).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_the_walk_keeps_mass_and_isolated_nodes_stay(make_graph: Callable[..., Graph]) -> None:
    adj = make_graph().adj.tolil()
    adj[:, 4] = 0.0
    walk = lazy_walk(sp.csr_array(adj)).toarray()
    np.testing.assert_allclose(walk.sum(axis=0), 1.0)
    np.testing.assert_array_equal(walk[:, 4], np.eye(30)[4])
    np.testing.assert_allclose(walk, dense_walk(adj.toarray()))


def test_wavelets_of_all_scales_and_the_remaining_walk_add_up_to_the_signal(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    _, walk = make().structure(graph, dtype=torch.float64)
    h = torch.randn(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rest = torch.linalg.matrix_power(walk.matrix.to_dense(), 8) @ h
    torch.testing.assert_close(sum(scatter(h, [scale], walk) for scale in range(4)) + rest, h)


def test_without_neighbours_the_last_layer_is_a_linear_map(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    model = make(alpha=0.0).double()
    inputs: list[torch.Tensor] = []
    model.lin_out.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    out = logits(model, graph)
    torch.testing.assert_close(out, inputs[0] @ model.lin_out.weight.T + model.lin_out.bias)


def test_permuting_nodes_permutes_logits(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    order = np.random.default_rng(0).permutation(30)
    moved = from_scipy(graph.adj[order][:, order], graph.x[order], graph.y[order])
    model = make(paths=[[1], [3, 2]]).double()
    torch.testing.assert_close(logits(model, graph)[order], logits(model, moved), rtol=1e-10, atol=1e-10)


def test_a_gradient_reaches_every_parameter(make_graph: Callable[..., Graph]) -> None:
    model = make()
    logits(model, make_graph(), torch.float32).square().sum().backward()
    assert [key for key, value in model.named_parameters() if value.grad is None or not value.grad.any()] == []


def test_the_gradient_is_that_of_differences(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(num_nodes=10)
    model = make(paths=[[1], [2, 1]], power=2.0).double()
    structure = model.structure(graph, dtype=torch.float64)
    x = torch.as_tensor(graph.x, dtype=torch.float64).clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model(x, structure), (x,))


def test_groups_hold_every_parameter_once() -> None:
    model = make()
    grouped = [id(item) for group in model.parameter_groups().values() for item in group]
    assert sorted(grouped) == sorted(id(item) for item in model.parameters())


def test_seeds_fix_all_bits_also_of_dropout(make_graph: Callable[..., Graph]) -> None:
    runs = [logits(make(seed, dropout=0.5), make_graph(), torch.float32) for seed in (5, 5, 6)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_sparse_features_give_the_logits_of_dense_ones(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(sparse=True)
    assert isinstance(graph.x, sp.csr_array)
    dense = replace(graph, x=torch.from_numpy(graph.x.toarray()))
    torch.testing.assert_close(logits(make().double(), graph), logits(make().double(), dense))


def test_a_graph_without_edges_has_no_band_pass_signal() -> None:
    x = np.random.default_rng(0).normal(size=(6, 12))
    graph = from_scipy(sp.csr_array((6, 6)), x, [0, 1, 2, 0, 1, 2])
    model = make().double()
    structure = model.structure(graph, dtype=torch.float64)
    assert torch.isfinite(logits(model, graph)).all()
    assert not scatter(features(graph.x, torch.float64), [2], structure[1]).any()  # type: ignore[arg-type]


def test_defaults_are_not_shared_between_models() -> None:
    one = make()
    one.paths.append([1])
    assert make().paths == [[2], [3]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"scattering_channels": [4]},
            "ScatteringGCN: scattering_channels must be one value or 2, one per path, got 1",
        ),
        ({"paths": [[]]}, "ScatteringGCN: paths list should have at least 1 item"),
        ({"paths": [[9]]}, "ScatteringGCN: paths must be less than or equal to 8, got 9"),
        ({"power": 0.5}, "ScatteringGCN: power must be greater than or equal to 1, got 0.5"),
        ({"alpha": -1.0}, "ScatteringGCN: alpha must be greater than or equal to 0, got -1.0"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**arguments)
