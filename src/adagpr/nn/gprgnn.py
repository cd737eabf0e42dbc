r"""GPR-GNN (Chien, Peng, Li and Milenkovic, 2021): predict, then spread by a PageRank whose weights are learned.

.. math:: Z = \sum_{k=0}^{K} \gamma_k \tilde A^k f(X)

with a multilayer perceptron as ``f`` and :math:`\gamma` free in sign and sum, unlike AdaGPR's coefficients, of which
there is one vector a layer and not one a network. Starting values, ``K`` being ``num_hops`` and ``a`` ``init_alpha``:

- ``sgc``: 1 at hop ``a``, else 0.
- ``ppr``: :math:`a (1 - a)^k`, the last one :math:`(1 - a)^K`.
- ``nppr``: :math:`a^k` divided by the sum of absolute values; alternating where ``a`` is negative.
- ``random``: uniform in :math:`\pm\sqrt{3 / (K + 1)}`, divided likewise.
- ``given``: ``init_coeffs``.

The authors' code (jianhao2016/GPRGNN, ``src/GNN_models.py`` and ``src/train_model.py``) adds dropout of rate ``dprate``
between the perceptron and the propagation (``propagation_dropout``), 0.5 by default. Its ``SGC`` and ``WS`` (``given``)
cannot be reached from its command line, where ``alpha`` is a float and ``Gamma`` always ``None``. Its
``reset_parameters`` leaves the linear maps alone and in an early version set ``PPR`` whatever was asked for; its
training never calls it. Linear maps are decayed and coefficients are not, all at one learning rate: here, give a decay
to the group ``linears`` only.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Finite, Rate, checked
from adagpr.errors import InputError
from adagpr.nn.appnp import pagerank_coeffs
from adagpr.nn.mlp import MLP
from adagpr.ops import DroppableOperator, Features, Operator, dropout, gpr_propagate

Init = Literal["sgc", "ppr", "nppr", "random", "given"]


def initial_coeffs(
    init: Init, num_hops: int, alpha: float, given: list[float] | None, generator: torch.Generator | None = None
) -> Tensor:
    """The starting coefficients of this module's table, in float64; only ``random`` draws from ``generator``."""
    if init == "given":
        return torch.tensor(given, dtype=torch.float64)
    if init == "sgc":
        return (torch.arange(num_hops + 1) == alpha).double()
    if init == "ppr":
        return pagerank_coeffs(alpha, num_hops)
    if init == "nppr":
        coeffs = alpha ** torch.arange(num_hops + 1, dtype=torch.float64)
    else:
        bound = math.sqrt(3 / (num_hops + 1))
        coeffs = torch.empty(num_hops + 1, dtype=torch.float64).uniform_(-bound, bound, generator=generator)
    return coeffs / coeffs.abs().sum()


class GPRGNN(MLP):
    """A multilayer perceptron whose outputs are spread over hops with learned weights of either sign.

    Args:
        num_layers: Number of linear maps.
        num_hops: Largest hop, the paper's K; there are ``num_hops + 1`` coefficients.
        init: How the coefficients start; see the module.
        init_alpha: Teleport in [0, 1] for ``ppr``, ratio in [-1, 1] for ``nppr``, hop for ``sgc``; else not read.
        init_coeffs: With ``given``: where the coefficients start.
        dropout: Probability of dropping an element before each linear map.
        propagation_dropout: Probability of dropping an element of the perceptron's output, the authors' ``dprate``.

    Example:
        >>> GPRGNN(8, 16, 3, num_hops=2, init="sgc", init_alpha=1).coefficients().tolist()
        [[0.0, 1.0, 0.0]]
    """

    name = "gprgnn"
    paper = "Chien et al., 2021"
    good_for = "heterophilous graphs; one PageRank whose weights may be negative"
    groups = (("linears.*", "linears"), ("coeffs", "coeffs"))

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 2,
        num_hops: Depth = 10,
        init: Init = "ppr",
        init_alpha: Finite = 0.1,
        init_coeffs: list[Finite] | None = None,
        dropout: Rate = 0.5,
        propagation_dropout: Rate = 0.5,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, dropout)
        _check_init(init, num_hops, init_alpha, init_coeffs)
        self.propagation_dropout = propagation_dropout
        self._start = partial(initial_coeffs, init, num_hops, init_alpha, init_coeffs)
        self.coeffs = nn.Parameter(self._start().float())

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws the linear maps anew and puts the coefficients back to their start."""
        super().reset_parameters(generator)
        self.coeffs.data.copy_(self._start(generator))

    def forward(self, x: Features, structure: Operator | DroppableOperator) -> Tensor:  # type: ignore[override]
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        h = super().forward(x)
        if self.training:
            h = dropout(h, self.propagation_dropout, self.generator)
        # Free coefficients: one that is zero must still get its gradient, so no hop is skipped.
        return gpr_propagate(h, self.coeffs, self.current_operator(structure), skip_tail=False)

    def coefficients(self) -> Tensor:
        """The weight of each hop, ``[1, num_hops + 1]``."""
        return self.coeffs.detach().clone()[None]


def _check_init(init: Init, num_hops: int, alpha: float, given: list[float] | None) -> None:
    if (init == "given") != (given is not None):
        raise InputError(f"GPRGNN: init_coeffs and init 'given' need each other, got {given!r} and {init!r}.")
    if given is not None and len(given) != num_hops + 1:
        raise InputError(f"GPRGNN: init_coeffs must hold num_hops + 1 = {num_hops + 1} values, got {len(given)}.")
    if init == "sgc" and alpha not in range(num_hops + 1):
        raise InputError(f"GPRGNN: init_alpha must be a hop from 0 to {num_hops} with init 'sgc', got {alpha}.")
    low = -1 if init == "nppr" else 0
    if init in ("ppr", "nppr") and not low <= alpha <= 1:
        raise InputError(f"GPRGNN: init_alpha must be in [{low}, 1] with init {init!r}, got {alpha}.")
