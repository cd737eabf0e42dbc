from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.nn.gat import GAT, attention_edges
from adagpr.ops import features, operator


def make(seed: int = 0, **arguments: Any) -> GAT:
    sizes = {"in_channels": 12, "hidden_channels": 4, "out_channels": 3, "heads": 2}
    model = GAT(**{**sizes, **arguments})
    model.seed(seed)
    return model


def logits(model: GAT, graph: Graph, dtype: torch.dtype = torch.float64) -> Tensor:
    structure = model.structure(graph, dtype=dtype)
    out: Tensor = model.to(dtype)(features(graph.x, dtype), structure)
    return out


def dense_layer(model: GAT, layer: int, x: Tensor, neighbours: Tensor) -> Tensor:
    conv: Any = model.convs[layer]
    weight = model.weights[layer]
    mapped = (x @ weight.T).view(len(x), conv.heads, -1)
    scores = (mapped * conv.att_dst).sum(-1)[:, None] + (mapped * conv.att_src).sum(-1)[None]
    scores = F.leaky_relu(scores, 0.2).masked_fill(~neighbours[..., None], -math.inf)
    heads = torch.einsum("ijm,jmc->imc", scores.softmax(1), mapped)
    joined = heads.flatten(1) if layer + 1 < len(model.convs) else heads.mean(1)
    out: Tensor = joined + conv.bias
    return out


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("out_heads", [1, 3])
def test_logits_equal_the_dense_equation(out_heads: int, directed: bool, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(directed=directed)
    model = make(out_heads=out_heads).double().eval()
    for parameter in model.parameters():
        parameter.data.uniform_(-1, 1, generator=torch.Generator().manual_seed(parameter.numel()))
    neighbours = torch.from_numpy(graph.adj.toarray() != 0) | torch.eye(30, dtype=torch.bool)
    h = dense_layer(model, 0, features(graph.x, torch.float64), neighbours)  # type: ignore[arg-type]
    expected = dense_layer(model, 1, F.elu(h), neighbours)
    torch.testing.assert_close(logits(model, graph), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore")
def test_a_layer_equals_gatconv_with_its_weights(make_graph: Callable[..., Graph]) -> None:
    from torch_geometric.nn import GATConv

    graph = make_graph()
    model = make(num_layers=1, out_heads=2).double().eval()
    theirs = GATConv(12, 3, heads=2, concat=False, dropout=0.6).double().eval()
    state = {name.removeprefix("convs.0."): value for name, value in model.state_dict().items()}
    theirs.load_state_dict({"lin.weight": state.pop("weights.0"), **state})
    # Messages flow from source to target there; row i of the adjacency reads column j here.
    edge_index = torch.from_numpy(np.stack(graph.adj.nonzero()[::-1])).long()
    torch.testing.assert_close(logits(model, graph), theirs(graph.x.double(), edge_index), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("self_loops", [True, False])
def test_every_node_reads_itself_once(self_loops: bool) -> None:
    adj = sp.csr_array(([1.0, 1.0], ([0, 1], [1, 1])), shape=(3, 3))
    graph = from_scipy(adj, np.ones((3, 12)), [0, 1, 2])
    edges = attention_edges(operator(graph, self_loops=self_loops))
    assert edges.tolist() == [[1, 0, 1, 2], [0, 0, 1, 2]]


def test_attention_dropout_follows_the_models_stream_alone(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        runs.append(logits(make(dropout=0.0), graph))
    assert torch.equal(*runs)
    model = make(dropout=0.0)
    assert not torch.equal(logits(model, graph), logits(model, graph))
    kept = make(dropout=0.0, attention_dropout=0.0)
    torch.testing.assert_close(logits(model.eval(), graph), logits(kept, graph), rtol=0, atol=0)


def test_seeding_leaves_torchs_generator_alone() -> None:
    model = make()
    before = torch.get_rng_state()
    model.seed(3)
    assert torch.equal(before, torch.get_rng_state())


def test_a_copy_draws_from_its_own_stream(make_graph: Callable[..., Graph]) -> None:
    model = make()
    twin = copy.deepcopy(model)
    first = logits(model, make_graph())
    assert torch.equal(first, logits(twin, make_graph()))


def test_parameters_start_in_glorots_ranges() -> None:
    one, other = (make(seed, in_channels=50, hidden_channels=16, heads=8).state_dict() for seed in (0, 1))
    assert 0.17 < one["weights.0"].abs().max() <= math.sqrt(6 / (50 + 128))
    assert 0.45 < one["convs.0.att_src"].abs().max() <= math.sqrt(6 / (8 + 16))
    assert not one["convs.0.bias"].any()
    assert not torch.equal(one["convs.0.att_dst"], other["convs.0.att_dst"])


@pytest.mark.parametrize("num_layers", [1, 3])
def test_gradients_reach_every_parameter(num_layers: int, make_graph: Callable[..., Graph]) -> None:
    model = make(num_layers=num_layers, dropout=0.0)
    logits(model, make_graph(sparse=True)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    assert [isinstance(item, nn.Parameter) for item in model.parameter_groups()["convs"]] == [True] * (4 * num_layers)


def test_without_edges_attention_is_on_the_node_itself() -> None:
    graph = from_scipy(sp.csr_array((6, 6)), np.random.default_rng(0).normal(size=(6, 12)), [0, 1, 2, 0, 1, 2])
    model = make().double().eval()
    expected = F.elu(features(graph.x, torch.float64) @ model.weights[0].T) @ model.weights[1].T
    torch.testing.assert_close(logits(model, graph), expected, rtol=1e-12, atol=1e-12)


def test_without_torch_geometric_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
    with pytest.raises(InputError, match=r'GAT needs torch_geometric.*pip install "adagpr\[pyg\]"'):
        make()


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"GAT: heads must be .* got 0. GAT: attention_dropout must be less than 1"):
        make(heads=0, attention_dropout=1.0)
