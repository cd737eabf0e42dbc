from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.nn import geom_gcn
from adagpr.nn.geom_gcn import GeomGCN, cached_neighbourhoods
from adagpr.ops import features
from adagpr.ops.latent_space import Neighbourhoods, neighbourhoods, relation_operators


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "adagpr" / "geom-gcn-neighbourhoods"


def make(seed: int = 0, dropout: float = 0.0) -> GeomGCN:
    model = GeomGCN(12, 4, 3, dropout=dropout)
    model.seed(seed)
    return model


def logits(model: GeomGCN, graph: Graph, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    out: torch.Tensor = model(features(graph.x, dtype), model.structure(graph, dtype=dtype))
    return out


def naive_layer(h: np.ndarray, weight: np.ndarray, pairs: Neighbourhoods) -> np.ndarray:
    """What each relation gives each node, by loops: ``[relations, nodes, channels]``."""
    degree = np.bincount(pairs.rows, minlength=len(h)) + 1
    maps = weight.reshape(9, -1, h.shape[1])
    out = np.zeros((9, len(h), maps.shape[1]))
    out[8] = (h @ maps[8].T) / degree[:, None]
    for v, u, relation in zip(pairs.rows, pairs.columns, pairs.relation, strict=True):
        out[relation, v] += maps[relation] @ h[u] / np.sqrt(degree[v] * degree[u])
    return out


def test_the_network_is_that_of_plain_loops(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    model = make().double()
    pairs = neighbourhoods(graph.adj)
    weights = [conv.weight.detach().numpy() for conv in (model.conv_in, model.conv_out)]
    first = naive_layer(np.asarray(graph.x, dtype=np.float64), weights[0], pairs)
    hidden = np.maximum(np.concatenate(list(first), axis=1), 0.0)
    expected = naive_layer(hidden, weights[1], pairs).mean(axis=0)
    np.testing.assert_allclose(logits(model, graph).detach().numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("directed", [True, False])
def test_permuting_nodes_permutes_logits(directed: bool, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(directed=directed)
    order = np.random.default_rng(0).permutation(30)
    moved = from_scipy(graph.adj[order][:, order], graph.x[order], graph.y[order])
    model = make().double()
    torch.testing.assert_close(logits(model, graph)[order], logits(model, moved), rtol=1e-10, atol=1e-10)


def test_given_neighbourhoods_need_no_isomap_to_permute() -> None:
    rng = np.random.default_rng(3)
    pairs = Neighbourhoods(np.array([0, 1, 2, 2]), np.array([1, 0, 0, 1]), np.array([0, 3, 7, 4]))
    order = np.array([2, 0, 1])
    inverse = np.argsort(order)
    moved = Neighbourhoods(inverse[pairs.rows], inverse[pairs.columns], pairs.relation)
    x = torch.from_numpy(rng.normal(size=(3, 12)))
    model = make().double()
    one = model(x, relation_operators(pairs, 3, torch.float64))
    other = model(x[order], relation_operators(moved, 3, torch.float64))
    torch.testing.assert_close(one[order], other)


def test_a_gradient_reaches_every_relation_of_every_layer(make_graph: Callable[..., Graph]) -> None:
    model = make()
    logits(model, make_graph(), torch.float32).square().sum().backward()
    for conv in (model.conv_in, model.conv_out):
        assert conv.weight.grad is not None
        assert all(part.any() for part in conv.weight.grad.chunk(9))


def test_the_gradient_is_that_of_differences(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(num_nodes=12)
    model = make().double()
    structure = model.structure(graph, dtype=torch.float64)
    x = torch.as_tensor(graph.x, dtype=torch.float64).clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model(x, structure), (x,))


def test_groups_hold_every_parameter_and_seeds_fix_all_bits(make_graph: Callable[..., Graph]) -> None:
    model = make()
    grouped = [id(item) for group in model.parameter_groups().values() for item in group]
    assert sorted(grouped) == sorted(id(item) for item in model.parameters())
    graph = make_graph()
    runs = [logits(make(seed, dropout=0.5), graph, torch.float32) for seed in (5, 5, 6)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_sparse_features_give_the_logits_of_dense_ones(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(sparse=True)
    assert isinstance(graph.x, sp.csr_array)
    dense = replace(graph, x=torch.from_numpy(graph.x.toarray()))
    torch.testing.assert_close(logits(make().double(), graph), logits(make().double(), dense))


def test_isolated_nodes_keep_what_they_say_of_themselves() -> None:
    x = np.random.default_rng(0).normal(size=(4, 12)).astype(np.float32)
    graph = from_scipy(np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]), x, [0, 1, 2, 0])
    model = make().double()
    own = [conv.weight.detach().chunk(9)[8].numpy() for conv in (model.conv_in, model.conv_out)]
    hidden = np.zeros(36)
    hidden[32:] = np.maximum(own[0] @ x[3], 0.0)
    np.testing.assert_allclose(logits(model, graph)[3].detach().numpy(), own[1] @ hidden / 9, atol=1e-6)


def test_neighbourhoods_are_computed_once_for_all_splits_of_a_graph(
    make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    graph = make_graph()
    first = cached_neighbourhoods(graph)
    monkeypatch.setattr(geom_gcn, "neighbourhoods", None)
    again = cached_neighbourhoods(replace(graph, y=torch.full_like(graph.y, -1)))
    assert [item.name for item in cache.iterdir() if item.suffix == ".npz"] == [item.name for item in cache.iterdir()]
    for name in ("rows", "columns", "relation"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


def wrong_arrays(path: Path, **changes: Callable[[np.ndarray], np.ndarray]) -> None:
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, **{name: change(arrays[name]) for name, change in changes.items()}})


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:200]),
        lambda path: path.write_bytes(path.read_bytes()[:300] + b"x" * 40 + path.read_bytes()[340:]),
        lambda path: path.write_bytes(b"x" * 100),
        lambda path: np.savez(path, rows=np.arange(3)),
        lambda path: wrong_arrays(path, relation=lambda values: values[1:]),
        lambda path: wrong_arrays(path, rows=lambda values: values.astype(object)),
        lambda path: wrong_arrays(path, rows=lambda values: values.astype(float)),
        lambda path: wrong_arrays(path, columns=lambda values: values + 30),
    ],
    ids=[
        "empty",
        "cut short",
        "altered",
        "no archive",
        "part missing",
        "lengths",
        "objects",
        "fractions",
        "no such node",
    ],
)
def test_a_damaged_cache_file_is_computed_and_written_again(
    damage: Callable[[Path], None], make_graph: Callable[..., Graph], cache: Path
) -> None:
    graph = make_graph()
    expected = cached_neighbourhoods(graph)
    (path,) = cache.glob("*.npz")
    whole = path.read_bytes()
    damage(path)
    assert path.read_bytes() != whole
    np.testing.assert_array_equal(cached_neighbourhoods(graph).relation, expected.relation)
    with np.load(path, allow_pickle=False) as file:
        np.testing.assert_array_equal(file["rows"], expected.rows)


def test_a_graph_without_edges_is_refused_and_leaves_no_file(cache: Path) -> None:
    graph = from_scipy(sp.csr_array((4, 4)), np.eye(4), [0, 1, 0, 1])
    with pytest.raises(InputError, match=r"no edge between two nodes.*Use an mlp instead"):
        cached_neighbourhoods(graph)
    assert not cache.exists()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InputError, match="GeomGCN: hidden_channels must be greater than or equal to 1, got 0"):
        GeomGCN(12, 0, 3)
