"""A pruned network as a torch module, and the inputs that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from adagpr.errors import InputError
from adagpr.exporting.prune import Pruned, PrunedLayer
from adagpr.graph import Graph
from adagpr.ops import Direction, Features, Operator, linear, operator

# The operator times a matrix, plus another matrix where there is one.
Product = Callable[[Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class About:
    """Where a network comes from and what its numbers mean.

    Attributes:
        model: Name of the trained model.
        class_names: Name of each class, in the order of the logits.
        direction: How the edges of its operator were read.
        self_loops: Whether its operator has the identity added.
        coefficients: The coefficients of every trained layer.
        alphas: The share of the first hidden matrix in every trained layer.
        config_sha256: SHA-256 sum of the run's configuration.
        temperature: The number by which logits are divided to give calibrated probabilities.
    """

    model: str
    class_names: tuple[str, ...]
    direction: Direction
    self_loops: bool
    coefficients: tuple[tuple[float, ...], ...]
    alphas: tuple[float, ...]
    config_sha256: str
    temperature: float = 1.0


class Exported(nn.Module):
    """What is left of a trained network, ready to compute logits.

    Args:
        network: The layers that are left.
        about: Where they come from.

    Example:
        >>> from adagpr.exporting.prune import prune
        >>> from adagpr.nn import AdaGPR
        >>> model = AdaGPR(8, 16, 3, num_layers=2, num_coeffs=2, projection="fixed", fixed_coeffs=[1.0, 0.0])
        >>> about = About("adagpr", ("a", "b", "c"), "directed", True, ((1.0, 0.0),) * 2, (0.1, 0.1), "")
        >>> Exported(prune(model), about)(torch.zeros(5, 8)).shape
        torch.Size([5, 3])
    """

    weight_in: Tensor
    bias_in: Tensor
    weight_out: Tensor
    bias_out: Tensor

    def __init__(self, network: Pruned, about: About) -> None:
        super().__init__()
        self.network = network
        self.about = about
        for name in ("weight_in", "bias_in", "weight_out", "bias_out"):
            self.register_buffer(name, getattr(network, name))
        self.layers = nn.ModuleList()
        for layer in network.layers:
            maps = nn.Module()
            maps.register_buffer("weight", layer.weight)
            maps.register_buffer("weight_0", layer.weight_0)
            self.layers.append(maps)

    @property
    def needs_graph(self) -> bool:
        """Whether `forward` needs an operator."""
        return self.network.needs_graph

    def forward(self, x: Features, operator: Operator | Tensor | None = None) -> Tensor:
        """Logits of all nodes.

        Args:
            x: Features, one row per node.
            operator: The graph's operator as `adagpr.operator` makes it, or its matrix; only where `needs_graph`.

        Raises:
            InputError: The features or the operator differ in kind from those of the training.
        """
        if x.shape[1] != self.weight_in.shape[0]:
            raise InputError(f"Exported: x must have {self.weight_in.shape[0]} features, got {x.shape[1]}.")
        if not self.needs_graph:
            return self.compute(x, no_product)
        matrix = self._matrix(operator, x.shape[0])

        def product(h: Tensor, plus: Tensor | None) -> Tensor:
            return matrix @ h if plus is None else torch.addmm(plus, matrix, h)

        return self.compute(x, product)

    def _matrix(self, operator: Operator | Tensor | None, num_nodes: int) -> Tensor:
        """The operator's matrix, checked against the operator of the training."""
        if operator is None:
            raise InputError("Exported: this network reads the graph, so an operator must be given.")
        if isinstance(operator, Operator):
            made, trained = (operator.direction, operator.self_loops), (self.about.direction, self.about.self_loops)
            if made != trained:
                raise InputError(
                    f"Exported: the operator must have direction '{trained[0]}' and self_loops {trained[1]}, "
                    f"got '{made[0]}' and {made[1]}."
                )
        matrix = operator.matrix if isinstance(operator, Operator) else operator
        if tuple(matrix.shape) != (num_nodes, num_nodes):
            rows, columns = matrix.shape
            raise InputError(f"Exported: the operator must be {num_nodes} x {num_nodes}, got {rows} x {columns}.")
        return matrix

    def compute(self, x: Features, product: Product) -> Tensor:
        """Logits, with ``product`` for the products with the operator."""
        h_0 = h = linear(x, self.weight_in.t(), self.bias_in).relu_()
        for layer, maps in zip(self.network.layers, self.layers, strict=True):
            z = _weighted_hops(layer, h, h_0, product) @ maps.get_buffer("weight")
            if layer.weight_0 is not None:
                z = torch.addmm(z, h_0, maps.get_buffer("weight_0"))
            h = z.relu_()
        return torch.addmm(self.bias_out, h, self.weight_out)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        sizes = ", ".join(map(str, self.network.sizes))
        return f"{sizes}, sparse products: {sum(layer.num_products for layer in self.network.layers)}"


def _weighted_hops(layer: PrunedLayer, h: Tensor, h_0: Tensor, product: Product) -> Tensor:
    """What a layer maps, by Horner's rule from the farthest hop inwards: one product per hop, and no power is kept."""
    total: Tensor | None = None
    for hop in range(layer.num_products, -1, -1):
        plus = _sum((layer.hops[hop], h), (0.0 if hop else layer.residual, h_0))
        total = plus if total is None else product(total, plus)
    return torch.zeros_like(h) if total is None else total


def _sum(*parts: tuple[float, Tensor]) -> Tensor | None:
    """The sum of matrices, each with its share; none where all shares are 0."""
    total: Tensor | None = None
    for share, matrix in parts:
        if share != 0 and total is not None:
            total = torch.add(total, matrix, alpha=share)
        elif share != 0:
            total = matrix if share == 1 else matrix * share
    return total


def no_product(h: Tensor, plus: Tensor | None) -> Tensor:
    """The product of a network that needs no graph: there is none."""
    raise InputError("Exported: this network reads the graph, so an operator must be given.")


def edge_product(source: Tensor, target: Tensor, weight: Tensor) -> Product:
    """The product with an operator that is given as edges, in operations that any torch program may hold."""

    def product(h: Tensor, plus: Tensor | None) -> Tensor:
        messages = h.index_select(0, source) * weight.unsqueeze(1)
        return (torch.zeros_like(h) if plus is None else plus).index_add(0, target, messages)

    return product


def edge_inputs(graph: Graph, direction: Direction = "directed", self_loops: bool = True) -> dict[str, np.ndarray]:
    """The normalised operator of a graph as the inputs of an exported network.

    Entry ``[i, j]`` of the operator says how much node ``i`` reads of node ``j``: it is the edge with target ``i`` and
    source ``j``. With ``"directed"`` that is an edge of the graph from ``i`` to ``j``; see `adagpr.operator`.

    Args:
        graph: The graph.
        direction: How the network's operator reads edges, as described in the exported file.
        self_loops: Whether the network's operator has the identity added; likewise.

    Returns:
        ``edge_source`` and ``edge_target`` as int64 and ``edge_weight`` as float32, one entry per edge, by target.

    Example:
        >>> from adagpr.graph import from_scipy
        >>> pair = from_scipy([[0, 1], [0, 0]], [[1.0], [2.0]], [0, 1])
        >>> edges = edge_inputs(pair)
        >>> edges["edge_target"].tolist(), edges["edge_source"].tolist()
        ([0, 0, 1], [0, 1, 1])
    """
    op = operator(graph, direction, self_loops)
    parts = (op.matrix.crow_indices(), op.matrix.col_indices(), op.matrix.values())
    rows, columns, values = (part.cpu().numpy() for part in parts)
    return {
        "edge_source": columns.astype(np.int64),
        "edge_target": np.repeat(np.arange(op.num_nodes, dtype=np.int64), np.diff(rows)),
        "edge_weight": values.astype(np.float32),
    }
