r"""IncepGCN (Rong et al., 2020, the DropEdge paper): branches of every depth side by side.

.. math:: H_0 = \mathrm{conv}(X), \qquad H_j = \mathrm{conv}_{j,j}(\cdots \mathrm{conv}_{j,1}(H_0)), \quad
          j = 1, \dots, L - 2, \qquad Z = \tilde A [H_0 | H_1 | \dots | H_{L-2}] W + b

with :math:`\mathrm{conv}(H) = \mathrm{relu}(\tilde A H W + b)` and dropout after each. Taken from the authors' code
(``DropEdge/DropEdge``: ``InecptionGCNBlock`` in ``src/layers.py``, ``GCNModel`` in ``src/models.py``): branches share
nothing, each starts from the output of one input convolution, that output is joined too, and an output convolution
follows. A published depth counts input and output: ``--nbaseblocklayer 62`` of the scripts is the tables' 64 layers,
and so is ``num_layers=64`` here.

The code also offers batch norm, a map of the node itself, joining by sums and a random-walk operator, all chosen by
data set; here are its defaults. It starts weights and biases uniform in ``+-1/sqrt(out_channels)``; here as in GCN.

Cost: ``L (L - 3) / 2 + 3`` convolutions, at 64 layers 1,955, with as many weights. Kept for the backward pass as usual
their outputs would take ``O(nodes * hidden_channels * L^2)``; the authors' README says "OOM" for Pubmed from 32 layers
on. Here each branch is computed again in the backward pass with the same dropout, which takes half as many sparse
products again and memory linear in ``L``. Nor are branches put side by side: each goes through its own columns of ``W``
into one sum as wide as the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from adagpr import seeding
from adagpr.arguments import Count, Rate, Whole, checked
from adagpr.nn.gcn import GCNConv, graph_convolution, propagate
from adagpr.nn.model import Model
from adagpr.ops import DroppableOperator, Features, Operator

_Longest = Annotated[Whole, Field(ge=3, le=200)]


class _Recomputed(torch.autograd.Function):
    """``function(*tensors)``, of which only ``tensors`` are kept: the backward pass computes it again in ``replay``."""

    @staticmethod
    def forward(
        ctx: Any, function: Callable[..., Tensor], replay: Callable[[], AbstractContextManager[None]], *tensors: Tensor
    ) -> Tensor:
        ctx.function, ctx.replay = function, replay
        ctx.save_for_backward(*tensors)
        return function(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        # These gradients outlive the branch: scattered among its matrices they would keep the heap from reusing gaps.
        sizes = [tensor.numel() for tensor in tensors[1:]]
        block = grad.new_empty(sum(sizes))
        with torch.enable_grad(), ctx.replay():
            result = ctx.function(*tensors)
        first, *rest = torch.autograd.grad(result, tensors, grad)
        torch.cat([item.reshape(-1) for item in rest], out=block)
        views = (part.view_as(item) for part, item in zip(block.split(sizes), rest, strict=True))
        return None, None, first, *views


class IncepGCN(Model):
    """An input convolution, branches of 1 to ``num_layers - 2`` convolutions, an output convolution over them all.

    Args:
        num_layers: Convolutions on the longest path, at least 3; 4, two branches, is the least in the paper's tables.
        dropout: Probability of dropping an element after each hidden convolution.
        drop_edge: Probability of leaving out an edge while training; one draw per step serves all branches.
    """

    name = "incepgcn"
    paper = "Rong et al., 2020"
    good_for = "several reaches side by side; slow when deep"

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: _Longest = 4,
        dropout: Rate = 0.5,
        drop_edge: Rate = 0.0,
    ) -> None:
        super().__init__(dropout, drop_edge)
        self.hidden_channels = hidden_channels
        self.conv_in = GCNConv(in_channels, hidden_channels)
        self.branches = nn.ModuleList(
            nn.ModuleList(GCNConv(hidden_channels, hidden_channels) for _ in range(depth))
            for depth in range(1, num_layers - 1)
        )
        self.conv_out = GCNConv(hidden_channels * (num_layers - 1), out_channels)

    def forward(self, x: Features, structure: Operator | DroppableOperator) -> Tensor:
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        operator = self.current_operator(structure)
        h_0 = self.activate(self.conv_in(x, operator))
        first, *rest = self.conv_out.weight.split(self.hidden_channels, 1)
        total = h_0 @ first.t()
        for branch, weight in zip(self.branches, rest, strict=True):
            # Without training nothing is drawn, and the stream is not to be touched.
            state = seeding.capture(self.generator) if self.training else None
            function, replay = partial(self._branch, operator), partial(self._replayed, state)
            tensors = (h_0, weight, *branch.parameters())
            total = total + _Recomputed.apply(function, replay, *tensors)  # type: ignore[no-untyped-call]
        return propagate(total, operator) + self.conv_out.bias

    def _branch(self, operator: Operator, h_0: Tensor, last: Tensor, *layers: Tensor) -> Tensor:
        """A branch's part of what the output convolution propagates; ``layers`` are weight and bias in turn."""
        h = h_0
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            h = self.activate(graph_convolution(h, weight, bias, operator))
        return h @ last.t()

    @contextmanager
    def _replayed(self, state: dict[str, Any] | None) -> Iterator[None]:
        """Draws what was drawn from ``state`` on, then leaves stream and mode as they were."""
        mode, self.training = self.training, state is not None
        now = None if state is None else seeding.capture(self.generator)
        try:
            if state is not None:
                seeding.restore(self.generator, state)
            yield
        finally:
            self.training = mode
            if now is not None:
                seeding.restore(self.generator, now)
