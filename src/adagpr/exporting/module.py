"""A pruned network as a torch module, and the inputs that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.ops import (
    NORM_EPSILON,
    Direction,
    Features,
    Operator,
    directed_operator,
    linear,
    operator,
    row_sums,
    to_scipy,
)

# The operator times a matrix, plus another matrix where there is one.
Product = Callable[[Tensor, Tensor | None], Tensor]

# Whether a network reads edges one way, or both ways through an operator and its transpose.
Directions = Literal["one", "both"]


@dataclass(frozen=True)
class About:
    """Where a network comes from and what its numbers mean.

    Classes are in the order of the logits, direction and self loops are those of its operator, coefficients and shares
    of the first hidden matrix are those of every trained layer, left out or not, and the sum is that of the run's
    configuration. Logits are divided by the temperature to give calibrated probabilities. A network that
    ``divides_rows`` divides each row of features by its sum of absolute values first. With ``directions`` ``"both"`` it
    reads the operator and its transpose, see `adagpr.ops.directed_operator`. ``hop_names`` say what each coefficient of
    a layer weighs; files from before have none.
    """

    model: str
    class_names: tuple[str, ...]
    direction: Direction
    self_loops: bool
    coefficients: tuple[tuple[float, ...], ...]
    alphas: tuple[float, ...]
    config_sha256: str
    temperature: float = 1.0
    divides_rows: bool = False
    directions: Directions = "one"
    hop_names: tuple[str, ...] = ()


class PrunedLayer(nn.Module):
    r"""One layer of a network whose operator is :math:`\tilde A`.

    .. math:: H_l = \mathrm{relu}\Big(\mathrm{norm}\Big(
              \Big(\sum_k hops_k \tilde A^k H + residual H_0\Big)\, weight
              + \Big(\sum_k backward_k (\tilde A^T)^k H\Big)\, weight_{backward} + H\, weight_{own} + H_0\, weight_0
              \Big) + shift\Big)

    ``number`` is that of the layer in the trained network, counted from 1; hops end with the last that is not 0.
    Weights are ``[hidden_channels, hidden_channels]``, and all but ``weight`` may be missing. With ``row_norm``, a
    scale per channel, the sum is normalised over the channels; else ``norm`` is nothing.
    """

    weight: Tensor
    weight_backward: Tensor | None
    weight_own: Tensor | None
    weight_0: Tensor | None
    shift: Tensor | None
    row_norm: Tensor | None

    def __init__(
        self,
        number: int,
        hops: tuple[float, ...],
        residual: float,
        weight: Tensor,
        weight_0: Tensor | None = None,
        *,
        backward_hops: tuple[float, ...] = (),
        weight_backward: Tensor | None = None,
        weight_own: Tensor | None = None,
        shift: Tensor | None = None,
        row_norm: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.number = number
        self.hops = hops
        self.residual = residual
        self.backward_hops = backward_hops
        self.register_buffer("weight", weight)
        self.register_buffer("weight_backward", weight_backward)
        self.register_buffer("weight_own", weight_own)
        self.register_buffer("weight_0", weight_0)
        self.register_buffer("shift", shift)
        self.register_buffer("row_norm", row_norm)

    @property
    def num_products(self) -> int:
        """Sparse products that the layer takes."""
        return len(self.hops) - 1 + max(len(self.backward_hops) - 1, 0)

    # Not `forward`: torch would name the module that was called at every operation of a program.
    def compute(self, h: Tensor, h_0: Tensor, product: Product, backward: Product) -> Tensor:
        """Computes the layer; each operator's sum of hops is mapped once."""
        total = _sum_of_hops(h, self.hops, product, (self.residual, h_0))
        if self.shift is None or self.row_norm is not None:
            z = total @ self.weight
        else:
            z = torch.addmm(self.shift, total, self.weight)
        if self.weight_backward is not None:
            z = torch.addmm(z, _sum_of_hops(h, self.backward_hops, backward), self.weight_backward)
        if self.weight_own is not None:
            z = torch.addmm(z, h, self.weight_own)
        if self.weight_0 is not None:
            z = torch.addmm(z, h_0, self.weight_0)
        if self.row_norm is not None:
            z = F.layer_norm(z, (z.shape[1],), self.row_norm, self.shift, NORM_EPSILON)
        return z.relu_()


class Exported(nn.Module):
    """What is left of a trained network, ready to compute logits.

    Its layers are between an input and an output map, whose weights are ``[in, out]``; see `adagpr.exporting.prune`.
    """

    weight_in: Tensor
    bias_in: Tensor
    weight_out: Tensor
    bias_out: Tensor
    layers: Sequence[PrunedLayer]

    def __init__(
        self,
        about: About,
        layers: Iterable[PrunedLayer],
        weight_in: Tensor,
        bias_in: Tensor,
        weight_out: Tensor,
        bias_out: Tensor,
    ) -> None:
        super().__init__()
        self.about = about
        maps = {"weight_in": weight_in, "bias_in": bias_in, "weight_out": weight_out, "bias_out": bias_out}
        for name, tensor in maps.items():
            self.register_buffer(name, tensor)
        self.layers = cast("Sequence[PrunedLayer]", nn.ModuleList(layers))

    @property
    def needs_graph(self) -> bool:
        """Whether `forward` needs an operator, because a layer takes a sparse product."""
        return any(layer.num_products for layer in self.layers)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of features, of hidden channels and of classes."""
        return self.weight_in.shape[0], self.weight_in.shape[1], self.weight_out.shape[1]

    def operator_of(self, graph: Graph) -> Operator:
        """The operator of a graph as the network reads it; divided at both ends where edges are read both ways."""
        about, dtype = self.about, self.weight_in.dtype
        return _operator_of(graph, about.direction, about.self_loops, about.directions, dtype)

    def forward(self, x: Features, operator: Operator | Tensor | None = None) -> Tensor:
        """Logits of all nodes.

        Args:
            x: Features, one row per node.
            operator: The graph's operator as `operator_of` makes it, or its matrix; only where `needs_graph`.

        Raises:
            InputError: The features or the operator differ in kind from those of the training.
        """
        if x.shape[1] != self.weight_in.shape[0]:
            raise InputError(f"Exported: x must have {self.weight_in.shape[0]} features, got {x.shape[1]}.")
        if not self.needs_graph:
            return self.compute(x, no_product)
        matrix = self._matrix(operator, x.shape[0])
        if self.about.directions == "one":
            return self.compute(x, _product_with(matrix))
        transpose = operator.transpose if isinstance(operator, Operator) else _transpose(matrix)
        return self.compute(x, _product_with(matrix), _product_with(transpose))

    def _matrix(self, operator: Operator | Tensor | None, num_nodes: int) -> Tensor:
        """The operator's matrix, checked against the operator of the training."""
        if operator is None:
            raise InputError("Exported: this network reads the graph, so an operator must be given.")
        if isinstance(operator, Operator):
            made = operator.direction, operator.self_loops, operator.both_ends
            trained = self.about.direction, self.about.self_loops, self.about.directions == "both"
            if made != trained:
                raise InputError(
                    f"Exported: the operator must have direction '{trained[0]}', self_loops {trained[1]} and "
                    f"both_ends {trained[2]}, got '{made[0]}', {made[1]} and {made[2]}. `operator_of(graph)` of the "
                    "network makes it."
                )
            operator = operator.matrix
        if tuple(operator.shape) != (num_nodes, num_nodes):
            rows, columns = operator.shape
            raise InputError(f"Exported: the operator must be {num_nodes} x {num_nodes}, got {rows} x {columns}.")
        return operator

    def compute(self, x: Features, product: Product, backward: Product | None = None) -> Tensor:
        """Logits, with ``product`` for the products with the operator and ``backward`` for those with its transpose."""
        h_0 = h = self._mapped(x).relu_()
        for layer in self.layers:
            h = layer.compute(h, h_0, product, backward or no_product)
        return torch.addmm(self.bias_out, h, self.weight_out)

    def _mapped(self, x: Features) -> Tensor:
        """The input map of features as they come."""
        if not self.about.divides_rows:
            return linear(x, self.weight_in.t(), self.bias_in)
        z = linear(x, self.weight_in.t(), torch.zeros_like(self.bias_in))
        return z / row_sums(x).unsqueeze(1) + self.bias_in

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        sizes = ", ".join(map(str, self.sizes))
        return f"{sizes}, sparse products: {sum(layer.num_products for layer in self.layers)}"


def _sum_of_hops(h: Tensor, hops: Sequence[float], product: Product, *first: tuple[float, Tensor]) -> Tensor:
    """Sums hops by Horner's rule from the farthest one inwards: one product per hop, no power is kept.

    The matrices of ``first``, each with its share, join hop 0.
    """
    total: Tensor | None = None
    for hop in range(len(hops) - 1, -1, -1):
        plus = _sum((hops[hop], h), *(() if hop else first))
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


def _product_with(matrix: Tensor) -> Product:
    """The product with a matrix."""
    return lambda h, plus: matrix @ h if plus is None else torch.addmm(plus, matrix, h)


def _transpose(matrix: Tensor) -> Tensor:
    """The transpose, in rows where it is sparse."""
    return matrix.t() if matrix.layout == torch.strided else matrix.t().to_sparse_csr()


def edge_product(source: Tensor, target: Tensor, weight: Tensor) -> Product:
    """The product with an operator that is given as edges, in operations that any torch program may hold."""

    def product(h: Tensor, plus: Tensor | None) -> Tensor:
        messages = h.index_select(0, source) * weight.unsqueeze(1)
        return (torch.zeros_like(h) if plus is None else plus).index_add(0, target, messages)

    return product


def _operator_of(
    graph: Graph, direction: Direction, self_loops: bool, directions: Directions, dtype: torch.dtype
) -> Operator:
    """The operator that a network reads; with both directions the forward one, of which the other is the transpose."""
    if directions == "both":
        return directed_operator(graph, self_loops, dtype)
    return operator(graph, direction, self_loops, dtype)


def edge_inputs(
    graph: Graph, direction: Direction = "directed", self_loops: bool = True, directions: Directions = "one"
) -> dict[str, np.ndarray]:
    """The normalised operator of a graph as the inputs of an exported network.

    Entry ``[i, j]`` of the operator says how much node ``i`` reads of node ``j``: it is the edge with target ``i`` and
    source ``j``. With ``"directed"`` that is an edge of the graph from ``i`` to ``j``; see `adagpr.operator`. A network
    that reads both directions takes the same edges, and swaps their ends itself.

    Args:
        graph: The graph.
        direction: How the network's operator reads edges, as described in the exported file.
        self_loops: Whether the network's operator has the identity added; likewise.
        directions: Whether the network reads edges one way or both ways; likewise.

    Returns:
        ``edge_source`` and ``edge_target`` as int64 and ``edge_weight`` as float32, one entry per edge, by target.

    Raises:
        InputError: ``direction`` or ``directions`` is unknown, or both directions of symmetric edges are asked for.

    Example:
        >>> from adagpr.graph import from_scipy
        >>> pair = from_scipy([[0, 1], [0, 0]], [[1.0], [2.0]], [0, 1])
        >>> edges = edge_inputs(pair)
        >>> edges["edge_target"].tolist(), edges["edge_source"].tolist()
        ([0, 0, 1], [0, 1, 1])
    """
    if directions not in ("one", "both"):
        raise InputError(f"edge_inputs: directions must be 'one' or 'both', got {directions!r}.")
    if directions == "both" and direction != "directed":
        raise InputError(f"edge_inputs: directions 'both' needs direction 'directed', got {direction!r}.")
    op = _operator_of(graph, direction, self_loops, directions, torch.float32)
    edges = sp.coo_array(to_scipy(op.matrix))
    return {
        "edge_source": edges.col.astype(np.int64),
        "edge_target": edges.row.astype(np.int64),
        "edge_weight": edges.data.astype(np.float32),
    }
