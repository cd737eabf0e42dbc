r"""A stack of residual PageRank layers as one differentiable function.

.. math:: S_l = \alpha_l H_0 + \sum_k \mu_{lk} \tilde A^k Y_l, \qquad
          Y_{l+1} = \mathrm{drop}(\mathrm{relu}(S_l M_l)), \qquad M_l = (1 - \beta_l) I + \beta_l W_l

This is what a chain of `adagpr.nn.AdaGPRConv` with ReLU and dropout computes, and the tests hold it against one.
Written out it spends its time on products: the identity is in the small ``M``, the residual is what hop 0 is added to,
dropout's scale is in the coefficients, a layer's output is at once the mask of its ReLU and of its dropout, and
intermediate matrices are written into the same few buffers. Kept for the backward pass are ``Y`` and ``S`` of each
layer, or with ``recompute`` only ``Y``; in half as much memory where they are ``kept_as`` bfloat16, which rounds what
the gradients of weights and coefficients are made of, but neither the result nor the mask.

Several networks on the same graph may be stacked, each on its own block of rows with its own weights (see
`Operator.repeated`): sparse products, activation and dropout are then done once for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops.dropout import drop_, keep_scale
from adagpr.ops.operator import Operator
from adagpr.ops.propagate import Weights, mix, mix_gradients, without_tail
from adagpr.ops.scratch import matrix_like

__all__ = ["Layers", "residual_stack"]


@dataclass(frozen=True)
class Layers:
    """What does not learn in a stack.

    Attributes:
        operator: The operator; of the repeated graph where there are several blocks.
        alphas: Share of ``h_0`` in each layer.
        betas: Share of the weight in each layer.
        skip_tail: Whether hops beyond the last non-zero coefficient are left out; see `gpr_propagate`.
        rate: Probability of dropping an element after each layer.
        generators: Where dropout draws from, one stream for each block.
        recompute: Whether ``S`` is computed again in the backward pass instead of being kept.
        kept_as: In which precision ``Y`` and ``S`` are kept, by default their own.
    """

    operator: Operator
    alphas: Sequence[float]
    betas: Sequence[float]
    skip_tail: bool
    rate: float = 0.0
    generators: Sequence[np.random.Generator] = ()
    recompute: bool = False
    kept_as: torch.dtype | None = None

    @property
    def scale(self) -> float:
        """What the elements that stay are multiplied by."""
        return keep_scale(self.rate)

    def kept(self, h: Tensor) -> Tensor:
        """A matrix as it is kept for the backward pass."""
        return h if self.kept_as in (None, h.dtype) else matrix_like(h, self.kept_as).copy_(h)


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h_0: Tensor, coeffs: Tensor, layers: Layers, keep: bool, *weights: Tensor) -> Tensor:
        product, num_blocks = layers.operator.product, coeffs.shape[1]
        factors = coeffs.new_tensor([layers.scale * (1 - alpha) for alpha in layers.alphas]).view(-1, 1, 1)
        mus: list[list[Weights]] = (coeffs * factors).transpose(1, 2).tolist()
        mus = [without_tail(mu) for mu in mus] if layers.skip_tail else mus
        identity = torch.eye(h_0.shape[1], dtype=h_0.dtype, device=h_0.device)
        shares = {alpha: torch.mul(h_0, alpha, out=matrix_like(h_0)) for alpha in set(layers.alphas)}
        y = h_0 if layers.rate == 0 else drop_(matrix_like(h_0).copy_(h_0), layers.rate, layers.generators)
        kept, sums, maps, spare = [], [], [], []  # type: tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]
        if keep:
            kept.append(layers.kept(y))
        for number, (mu, alpha, beta) in enumerate(zip(mus, layers.alphas, layers.betas, strict=True)):
            s = mix(product, y, mu, shares[alpha], spare)
            own = [
                torch.lerp(identity, item, beta) for item in weights[number * num_blocks : (number + 1) * num_blocks]
            ]
            y = _each(s, own, matrix_like(s)).relu_()
            if layers.rate > 0:
                drop_(y, layers.rate, layers.generators)
            if keep:
                kept.append(layers.kept(y))
                maps += own
                sums += [] if layers.recompute else [layers.kept(s)]
        if keep:
            ctx.save_for_backward(h_0, factors, *kept, *sums, *maps)
            ctx.layers, ctx.mus, ctx.shape = layers, mus, coeffs.shape
        return y * layers.scale if layers.rate > 0 else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layers: Layers = ctx.layers
        depth, num_blocks = len(ctx.mus), ctx.shape[1]
        h_0, factors, *saved = ctx.saved_tensors
        kept, rest = saved[: depth + 1], saved[depth + 1 :]
        sums, maps = rest[: len(rest) - depth * num_blocks], rest[len(rest) - depth * num_blocks :]
        inners: list[list[Weights]] = []
        grad_weights: list[Tensor] = []
        grad_h_0, grad_s = torch.zeros_like(h_0), matrix_like(h_0)
        spare: list[Tensor] = []
        grad = torch.mul(grad, layers.scale, out=matrix_like(h_0))
        after = _as(kept[depth], h_0)
        for number in reversed(range(depth)):
            mu, alpha, beta, y = ctx.mus[number], layers.alphas[number], layers.betas[number], _as(kept[number], h_0)
            s = _as(sums[number], h_0) if sums else mix(layers.operator.product, y, mu, h_0 * alpha, spare)
            own = maps[number * num_blocks : (number + 1) * num_blocks]
            # What is positive in a layer's output was positive and kept: the output is its own mask.
            grad_z = _where_positive(grad, after)
            pairs = zip(s.chunk(num_blocks), grad_z.chunk(num_blocks), strict=True)
            grad_weights[:0] = [torch.mm(one.t(), other).mul_(beta) for one, other in pairs]
            _each(grad_z, [item.t() for item in own], grad_s)
            grad_h_0.add_(grad_s, alpha=alpha)
            grad, inner = mix_gradients(layers.operator.transposed_product, grad_s, y, mu, spare)
            inners.insert(0, inner + [[0.0] * num_blocks] * (ctx.shape[2] - len(inner)))
            after = y
        grad_h_0 += grad if layers.rate == 0 else _where_positive(grad, after)
        return grad_h_0, grad.new_tensor(inners).transpose(1, 2) * factors, None, None, *grad_weights


def _as(kept: Tensor, h_0: Tensor) -> Tensor:
    """What was kept, in the precision that is computed in."""
    return kept if kept.dtype == h_0.dtype else matrix_like(h_0).copy_(kept)


def _where_positive(grad: Tensor, y: Tensor) -> Tensor:
    """``grad`` where ``y`` is positive, else 0."""
    result: Tensor = torch.ops.aten.threshold_backward.grad_input(grad, y, 0, grad_input=matrix_like(y))
    return result


def _each(h: Tensor, maps: Sequence[Tensor], out: Tensor) -> Tensor:
    """Each block of rows times its own matrix."""
    if len(maps) == 1:
        return torch.mm(h, maps[0], out=out)
    for to, block, matrix in zip(out.chunk(len(maps)), h.chunk(len(maps)), maps, strict=True):
        torch.mm(block, matrix, out=to)
    return out


def residual_stack(h_0: Tensor, coeffs: Tensor, layers: Layers, weights: Sequence[Tensor]) -> Tensor:
    """Computes the stack, dropout before its first layer and after its last included.

    Args:
        h_0: The first hidden matrix, a result of ReLU: where it is 0 its gradient may be 0 too.
        coeffs: The coefficients, ``[layers, blocks, K]``.
        layers: What does not learn.
        weights: ``W`` layer by layer, within a layer block by block.
    """
    # Asked here: within a function gradients are always off, and what needs them is not.
    keep = torch.is_grad_enabled()
    result: Tensor = _Stack.apply(h_0, coeffs, layers, keep, *weights)  # type: ignore[no-untyped-call]
    return result
