r"""The same network computed in the other ways that a person can run it today.

A baseline is made from an `AdaGPR` and has equal parameters under equal names. What differs is how it reads the graph:

- ``dense-powers``: the authors' algorithm. All powers :math:`\tilde A^k` are dense matrices, summed in every layer.
- ``gather-scatter``: torch_geometric with edges and weights, one message for each edge and hop.
- ``pyg-csr``: torch_geometric with a CSR adjacency, one sparse product per hop.
- ``pyg-edge-index``: torch_geometric's ``EdgeIndex``, which keeps the transpose for the backward pass.
- ``gcn2conv``: torch_geometric's ``GCN2Conv``. It can do two hops with all weight on hop 1 only.
- ``dgl``: DGL, where it can be imported.

All use ordinary autograd, ``F.dropout`` and dense features. Row ``i`` of the operator reads the nodes that ``i`` points
to, but torch_geometric sends messages to targets, so it is given every edge turned round.
"""

from __future__ import annotations

import copy
import warnings
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from adagpr.errors import InputError, unknown_name
from adagpr.graph import Graph
from adagpr.nn import AdaGPR, AdaGPRConv
from adagpr.ops import Operator, operator


class Baseline(nn.Module):
    """`AdaGPR` computed in another way, with a copy of its parameters."""

    name: ClassVar[str]  # what results call it
    library: ClassVar[str | None] = "torch_geometric"  # what has to be importable for it, besides torch

    def __init__(self, model: AdaGPR) -> None:
        super().__init__()
        if model.pair_norm is not None or model.drop_edge > 0 or model.arguments["weight_maps"] != "shared":
            raise InputError(f"{self.name}: drop_edge must be 0, pair_norm none and weight_maps 'shared'.")
        self.drop = nn.Dropout(model.dropout)
        self.lin_in = copy.deepcopy(model.lin_in)
        self.convs = copy.deepcopy(model.convs)
        # These hold parameters and coefficients; what they compute is computed here instead.
        self.holders = [conv for conv in self.convs if isinstance(conv, AdaGPRConv)]
        self.lin_out = copy.deepcopy(model.lin_out)

    def prepare(self, graph: Graph, dtype: torch.dtype = torch.float32) -> Any:
        """What `forward` takes as its structure, made once."""
        return self.structure(operator(graph, dtype=dtype))

    def structure(self, op: Operator) -> Any:
        """The operator in this baseline's own form; by default a CSR matrix."""
        return op.matrix

    def hop(self, h: Tensor, structure: Any) -> Any:
        """One product of the operator with ``h``."""
        raise NotImplementedError(f"{type(self).__name__} has no hops")

    def layer(self, index: int, h: Tensor, h_0: Tensor, structure: Any) -> Any:
        """One layer without activation: hop after hop, each added with its coefficient."""
        conv = self.holders[index]
        coeffs = conv.coeffs() * (1 - conv.alpha)
        support = torch.add(coeffs[0] * h, h_0, alpha=conv.alpha)
        for k in range(1, len(coeffs)):
            h = self.hop(h, structure)
            support = support + coeffs[k] * h
        return torch.addmm(support, support, conv.weight, beta=1 - conv.beta, alpha=conv.beta)

    def forward(self, x: Tensor, structure: Any) -> Any:
        """Logits of all nodes; ``x`` is dense."""
        h = h_0 = self.lin_in(self.drop(x)).relu()
        for index in range(len(self.convs)):
            h = self.layer(index, self.drop(h), h_0, structure).relu()
        return self.lin_out(self.drop(h))


class _DensePowers(Baseline):
    """The authors' algorithm; memory grows with the coefficients times the square of the nodes."""

    name = "dense-powers"
    library = None

    def structure(self, op: Operator) -> Tensor:
        """All powers from 0 on, ``[num_coeffs, nodes, nodes]``."""
        num_coeffs = max(conv.num_coeffs for conv in self.holders)
        powers = torch.zeros(num_coeffs, op.num_nodes, op.num_nodes, dtype=op.matrix.dtype)
        powers[0].fill_diagonal_(1.0)
        for k in range(1, num_coeffs):
            powers[k] = op.matrix @ powers[k - 1]
        return powers

    def layer(self, index: int, h: Tensor, h_0: Tensor, structure: Any) -> Any:
        conv = self.holders[index]
        coeffs = conv.coeffs()
        mixed = coeffs[0] * structure[0]
        for k in range(1, len(coeffs)):
            mixed = mixed + coeffs[k] * structure[k]
        support = (1 - conv.alpha) * (mixed @ h) + conv.alpha * h_0
        return conv.beta * (support @ conv.weight) + (1 - conv.beta) * support


class _PygCsr(Baseline):
    """torch_geometric with a CSR adjacency: no messages are made."""

    name = "pyg-csr"

    def hop(self, h: Tensor, structure: Any) -> Any:
        return _propagation()(h, structure)


class _GatherScatter(_PygCsr):
    """torch_geometric with edges and weights: gathers, weighs and scatters a message for each edge."""

    name = "gather-scatter"

    def structure(self, op: Operator) -> Any:
        """Edges into the reading node, sorted by it, and their weights."""
        edges = op.matrix.to_sparse_coo()
        return edges.indices().flip(0), edges.values()

    def hop(self, h: Tensor, structure: Any) -> Any:
        return _propagation()(h, *structure)


class _PygEdgeIndex(Baseline):
    """torch_geometric's ``EdgeIndex``, with both orders of the edges made beforehand."""

    name = "pyg-edge-index"

    def structure(self, op: Operator) -> Any:
        edges, size = op.matrix.to_sparse_coo(), (op.num_nodes, op.num_nodes)
        index = import_module("torch_geometric").EdgeIndex(edges.indices(), sparse_size=size, sort_order="row")
        return index.fill_cache_(), edges.values()

    def hop(self, h: Tensor, structure: Any) -> Any:
        index, weights = structure
        return index.matmul(h, input_value=weights)


class _Gcn2Conv(Baseline):
    """torch_geometric's ``GCN2Conv`` with a CSR adjacency, for coefficients fixed at ``[0, 1]``."""

    name = "gcn2conv"

    def __init__(self, model: AdaGPR) -> None:
        super().__init__(model)
        kind = import_module("torch_geometric.nn").GCN2Conv
        self.stack: list[Any] = []
        for conv in self.holders:
            if conv.projection != "fixed" or conv.coeffs().tolist() != [0.0, 1.0]:
                raise InputError("gcn2conv: needs projection 'fixed' and fixed_coeffs [0, 1].")
            layer = kind(conv.channels, conv.alpha, normalize=False)
            layer.weight1, layer.beta = conv.weight, conv.beta
            self.stack.append(layer)

    def layer(self, index: int, h: Tensor, h_0: Tensor, structure: Any) -> Any:
        return self.stack[index](h, h_0, structure)


class _Dgl(Baseline):
    """DGL's message passing with edge weights, in one kernel per hop."""

    name = "dgl"
    library = "dgl"

    def structure(self, op: Operator) -> Any:
        """DGL's graph with the weights on its edges, which end at the reading node."""
        edges = op.matrix.to_sparse_coo()
        graph = import_module("dgl").graph((edges.indices()[1], edges.indices()[0]), num_nodes=op.num_nodes)
        graph.edata["w"] = edges.values()
        return graph

    def hop(self, h: Tensor, structure: Any) -> Any:
        function = import_module("dgl.function")
        with structure.local_scope():
            structure.ndata["h"] = h
            structure.update_all(function.u_mul_e("h", "w", "m"), function.sum("m", "h"))
            return structure.ndata["h"]


BASELINES: dict[str, type[Baseline]] = {
    kind.name: kind for kind in (_DensePowers, _GatherScatter, _PygCsr, _PygEdgeIndex, _Gcn2Conv, _Dgl)
}


def baseline_class(name: str) -> type[Baseline]:
    """The baseline of that name; an ``ImportError`` if its library cannot be imported here."""
    if name not in BASELINES:
        raise unknown_name("implementation", name, BASELINES)
    kind = BASELINES[name]
    if kind.library is not None:
        # torch_geometric calls torch.jit as it is imported, which torch deprecates.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            import_module(kind.library)
    return kind


@cache
def _propagation() -> nn.Module:
    """A plain layer of torch_geometric; made here because importing the library costs seconds."""
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import spmm

    class Propagation(MessagePassing):  # type: ignore[misc]
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
            return self.propagate(edge_index, x=x, edge_weight=edge_weight)

        def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
            return edge_weight.view(-1, 1) * x_j

        def message_and_aggregate(self, adj_t: Tensor, x: Tensor) -> Any:
            return spmm(adj_t, x, reduce="sum")

    return Propagation(aggr="add")
