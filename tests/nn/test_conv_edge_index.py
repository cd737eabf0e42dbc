"""The layer on the graph forms of torch_geometric, in the place of its GCN2Conv."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from adagpr.errors import InputError
from adagpr.graph import Graph, from_scipy
from adagpr.nn import AdaGPRConv
from adagpr.ops import edge_operator, operator

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

CHANNELS = 5
NUM_NODES = 30


def make_conv(**arguments: Any) -> AdaGPRConv:
    conv = AdaGPRConv(**{"channels": CHANNELS, "num_coeffs": 3, "alpha": 0.3, "theta": 0.7, "layer": 2, **arguments})
    conv.reset_parameters(torch.Generator().manual_seed(1))
    return conv.double()


def gcn2_pair(**arguments: Any) -> tuple[AdaGPRConv, nn.Module]:
    from torch_geometric.nn import GCN2Conv

    ours = make_conv(num_coeffs=2, projection="fixed", fixed_coeffs=[0.0, 1.0], **arguments)
    theirs = GCN2Conv(CHANNELS, 0.3, 0.7, 2, **arguments).double()
    theirs.weight1.data.copy_(ours.weight.detach())
    return ours, theirs


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, x_0 = torch.randn(2, NUM_NODES, CHANNELS, dtype=torch.float64, generator=generator)
    return x, x_0


@pytest.fixture
def edges(make_graph: Callable[..., Graph]) -> tuple[Tensor, Tensor]:
    """A directed, weighted graph whose nodes have no self loops, but for one."""
    links = make_graph().adj.tocoo()
    kept = links.row != links.col
    pairs = np.stack([np.append(links.row[kept], 3), np.append(links.col[kept], 3)])
    return torch.from_numpy(pairs.astype(np.int64)), torch.from_numpy(np.append(links.data[kept], 0.4))


def transposed_csr(edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    """What torch_geometric calls ``adj_t``."""
    matrix = sp.csr_array((edge_weight.numpy(), edge_index.flip(0).numpy()), shape=(NUM_NODES, NUM_NODES))
    parts = [torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices)]
    values = torch.from_numpy(matrix.data)
    return torch.sparse_csr_tensor(parts[0], parts[1], values, matrix.shape, check_invariants=False)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_an_edge_index_equals_the_operator_of_the_reversed_graph(
    inputs: tuple[Tensor, Tensor], edges: tuple[Tensor, Tensor]
) -> None:
    # Without the one self loop, to which an operator of ours would add.
    pairs, weights = (part[..., :-1] for part in edges)
    reversed_adj = sp.csr_array((weights.numpy(), pairs.flip(0).numpy()), shape=(NUM_NODES, NUM_NODES))
    op = operator(from_scipy(reversed_adj, np.eye(NUM_NODES), np.arange(NUM_NODES) % 2), dtype=torch.float64)
    conv = make_conv()
    close(conv(*inputs, pairs, weights), conv(*inputs, op))


def test_messages_flow_from_source_to_target() -> None:
    conv = make_conv(channels=1, num_coeffs=2, alpha=0.0, theta=None, projection="fixed", fixed_coeffs=[0.0, 1.0])
    conv = AdaGPRConv(**{**conv.arguments, "normalize": False}).double()
    x = torch.tensor([[2.0], [0.0]], dtype=torch.float64)
    out = conv(x, x, torch.tensor([[0], [1]]), torch.tensor([3.0]))
    close(out, torch.tensor([[0.0], [6.0]], dtype=torch.float64) * conv.weight)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_one_hot_at_hop_one_equals_gcn2conv(
    weighted: bool,
    add_self_loops: bool,
    normalize: bool,
    inputs: tuple[Tensor, Tensor],
    edges: tuple[Tensor, Tensor],
) -> None:
    ours, theirs = gcn2_pair(add_self_loops=add_self_loops, normalize=normalize)
    pairs, weights = edges
    given = (pairs, weights) if weighted else (pairs,)
    close(ours(*inputs, *given), theirs(*inputs, *given))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_a_csr_tensor_is_read_as_gcn2conv_reads_it(
    add_self_loops: bool, inputs: tuple[Tensor, Tensor], edges: tuple[Tensor, Tensor]
) -> None:
    ours, theirs = gcn2_pair(add_self_loops=add_self_loops)
    adj_t = transposed_csr(*edges)
    close(ours(*inputs, adj_t), theirs(*inputs, adj_t))
    close(ours(*inputs, adj_t), ours(*inputs, adj_t.to_sparse_coo()))


def test_the_edge_index_class_of_torch_geometric_is_taken_too(
    inputs: tuple[Tensor, Tensor], edges: tuple[Tensor, Tensor]
) -> None:
    from torch_geometric import EdgeIndex

    conv = make_conv()
    wrapped = EdgeIndex(edges[0], sparse_size=(NUM_NODES, NUM_NODES))
    assert torch.equal(conv(*inputs, wrapped, edges[1]), conv(*inputs, *edges))


def test_repeated_edges_count_as_often_as_in_gcn2conv(
    inputs: tuple[Tensor, Tensor], edges: tuple[Tensor, Tensor]
) -> None:
    ours, theirs = gcn2_pair()
    twice = torch.cat([edges[0], edges[0][:, :9]], 1)
    close(ours(*inputs, twice), theirs(*inputs, twice))


def test_the_layer_stands_in_the_place_of_gcn2conv_in_a_module(edges: tuple[Tensor, Tensor]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, CHANNELS)
            self.convs = nn.ModuleList(AdaGPRConv(CHANNELS, 3, 0.1, 0.5, layer) for layer in (1, 2, 3))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x = x_0 = self.inner(x).relu()
            for conv in self.convs:
                x = conv(x, x_0, edge_index).relu()
            return x

    net = Net()
    x = torch.randn(NUM_NODES, 4, generator=torch.Generator().manual_seed(2)).requires_grad_()
    net(x, edges[0]).square().sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_gradients_pass_gradcheck_with_edges(inputs: tuple[Tensor, Tensor], edges: tuple[Tensor, Tensor]) -> None:
    conv = make_conv()
    assert conv.scores is not None

    def layer(x: Tensor, x_0: Tensor, weight: Tensor, scores: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(conv, {"weight": weight, "scores": scores}, (x, x_0, *edges))
        return out

    tensors = [*inputs, conv.weight.detach().clone(), conv.scores.detach().clone()]
    assert torch.autograd.gradcheck(layer, [tensor.requires_grad_() for tensor in tensors])


def test_a_cached_layer_keeps_the_first_graph_until_it_is_reset(
    inputs: tuple[Tensor, Tensor], edges: tuple[Tensor, Tensor]
) -> None:
    cached, fresh = make_conv(cached=True), make_conv()
    first = cached(*inputs, *edges)
    assert torch.equal(cached(*inputs, edges[0][:, :5]), first)
    assert not torch.equal(fresh(*inputs, edges[0][:, :5]), first)
    cached.reset_parameters()
    fresh.load_state_dict(cached.state_dict())
    close(cached(*inputs, edges[0][:, :5]), fresh(*inputs, edges[0][:, :5]))


def test_a_cached_layer_can_change_its_precision(inputs: tuple[Tensor, Tensor], edges: tuple[Tensor, Tensor]) -> None:
    conv = make_conv(cached=True)
    before = conv(*inputs, *edges)
    after = conv.float()(inputs[0].float(), inputs[1].float(), *edges)
    torch.testing.assert_close(after.double(), before, rtol=1e-5, atol=1e-5)


def test_a_graph_without_edges_leaves_each_node_to_itself(inputs: tuple[Tensor, Tensor]) -> None:
    conv = make_conv(num_coeffs=2, projection="fixed", fixed_coeffs=[0.0, 1.0])
    none = torch.empty(2, 0, dtype=torch.int64)
    alone = make_conv(num_coeffs=2, projection="fixed", fixed_coeffs=[1.0, 0.0])
    close(conv(*inputs, none), alone(*inputs, none))


def test_the_order_of_the_edges_does_not_matter(inputs: tuple[Tensor, Tensor], edges: tuple[Tensor, Tensor]) -> None:
    conv = make_conv()
    order = torch.randperm(edges[0].shape[1], generator=torch.Generator().manual_seed(0))
    close(conv(*inputs, edges[0][:, order], edges[1][order]), conv(*inputs, *edges))


PAIR = torch.tensor([[0], [1]])


@pytest.mark.parametrize(
    ("edge_index", "edge_weight", "message"),
    [
        (torch.tensor([0, 1]), None, "edge_index must be 2 x E whole numbers"),
        (PAIR.double(), None, "edge_index must be 2 x E whole numbers"),
        (PAIR + 2, None, "names nodes from 2 to 3, but the nodes are 0 to 2"),
        (PAIR, torch.ones(2), "edge_weight must hold 1 values"),
        (PAIR, torch.ones(1, requires_grad=True), "taken as constants, but these ask for a gradient"),
        (torch.eye(4).to_sparse_csr(), None, "must be 3 x 3 for as many nodes"),
        (torch.eye(3).to_sparse_csr(), torch.ones(3), "has its own weights"),
    ],
)
def test_graphs_that_cannot_be_are_refused(edge_index: Tensor, edge_weight: Tensor | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        edge_operator(edge_index, 3, edge_weight)


def test_weights_beside_an_operator_are_refused(
    make_graph: Callable[..., Graph], inputs: tuple[Tensor, Tensor]
) -> None:
    with pytest.raises(InputError, match="an operator has its own weights"):
        make_conv()(*inputs, operator(make_graph(), dtype=torch.float64), torch.ones(1))
