r"""PPNP (Gasteiger, Bojchevski and Günnemann, 2019): predictions spread by personalised PageRank in its exact limit.

.. math:: Z = \alpha (I - (1 - \alpha) \tilde A)^{-1} f(X)

with a multilayer perceptron as ``f``. The inverse is dense and is never formed: a sparse LU factorisation is made once,
in float64, and every pass solves with it, the backward one with its transpose. With row sums on both sides the operator
is similar to a matrix whose rows sum to at most 1, directed graphs included: for ``alpha > 0`` the system is a
nonsingular M-matrix, so that pivots on the diagonal are safe and an ordering for symmetric structure can be used.

The authors' code (gasteigerjo/ppnp, ``ppnp/pytorch/propagation.py``, ``PPRExact``) inverts the dense matrix, keeps all
of its entries, in float32, and while training drops entries of that inverse. That needs the inverse and is left out
here. Biases, decay and dropout of the perceptron are as in `adagpr.nn.appnp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
import torch
from pydantic import Field
from scipy.sparse.linalg import splu
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.arguments import Count, Depth, Rate, checked
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn.mlp import MLP
from adagpr.ops import Features, Operator, to_scipy

MAX_NODES = 50_000

Teleport = Annotated[float, Field(gt=0.0, le=1.0)]


@dataclass(frozen=True, eq=False)
class Resolvent:
    """The PageRank matrix of an operator, by SciPy's factors of ``I - (1 - alpha) A`` in float64."""

    factors: Any
    alpha: float

    @classmethod
    def from_operator(cls, operator: Operator, alpha: float) -> Resolvent:
        """Factorises once; memory is that of the factors, which grow with the fill-in, not with nodes squared."""
        adj = to_scipy(operator.matrix.cpu().double())
        system = sp.csc_array(sp.eye_array(operator.num_nodes) - (1 - alpha) * adj)
        options = {"SymmetricMode": True}
        return cls(splu(system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options), alpha)

    def product(self, h: Tensor, transposed: bool = False) -> Tensor:
        """The PageRank matrix, or its transpose, times ``h``."""
        right = np.asfortranarray(h.detach().cpu().double().numpy())
        return torch.from_numpy(self.alpha * self.factors.solve(right, "T" if transposed else "N")).to(h)


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, resolvent: Resolvent) -> Tensor:
        ctx.resolvent = resolvent
        return resolvent.product(h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.resolvent.product(grad, transposed=True), None


def pagerank_solve(h: Tensor, resolvent: Resolvent) -> Tensor:
    """Computes ``alpha (I - (1 - alpha) A)^-1 h``, differentiable with respect to ``h``."""
    result: Tensor = _Solve.apply(h, resolvent)  # type: ignore[no-untyped-call]
    return result


class PPNP(MLP):
    """A multilayer perceptron whose outputs are spread by exact personalised PageRank.

    Args:
        num_layers: Number of linear maps.
        alpha: Probability of teleport, above 0.
        dropout: Probability of dropping an element before each linear map.
    """

    name = "ppnp"
    paper = "Gasteiger et al., 2019"
    good_for = "exact personalised PageRank on graphs of up to 50,000 nodes"
    groups = (("linears.0.*", "first"), ("*", "rest"))

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 2,
        alpha: Teleport = 0.1,
        dropout: Rate = 0.5,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, dropout)
        self.alpha = alpha

    def prepare(self, graph: Graph, edges: Operator) -> Resolvent:
        """The factorisation, made once per training; refused where it could outgrow the machine."""
        if edges.num_nodes > MAX_NODES:
            raise InputError(
                f"PPNP: exact PageRank takes at most {MAX_NODES:,} nodes, got {edges.num_nodes:,}. "
                "Use 'appnp', which approximates it without a factorisation."
            )
        return Resolvent.from_operator(edges, self.alpha)

    def forward(self, x: Features, structure: Resolvent) -> Tensor:  # type: ignore[override]
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        return pagerank_solve(super().forward(x), structure)
