r"""A stack of residual PageRank layers as one differentiable function.

.. math:: S_l = \alpha_l H_0 + \sum_k \mu_{lk} \tilde A^k Y_l, \qquad
          Y_{l+1} = \mathrm{drop}(\mathrm{relu}(S_l M_l)), \qquad M_l = (1 - \beta_l) I + \beta_l W_l

or, with two weight maps a layer as GCNII* has them, :math:`\mathrm{relu}(S_l M_l + H_0 N_l)`, where :math:`S_l` is
without :math:`H_0`. A chain of `adagpr.nn.AdaGPRConv` with ReLU and dropout computes the same, and the tests hold it
against one.
Written out it spends its time on products: the identity is in the small ``M``, the residual is what hop 0 is added to,
dropout's scale is in the coefficients, a layer's output is at once the mask of its ReLU and of its dropout, and
intermediate matrices are written into the same few buffers. Kept for the backward pass are ``Y`` and ``S`` of each
layer, or with ``recompute`` only ``Y``; in half as much memory where ``saved_dtype`` is bfloat16, which rounds what
the gradients of weights and coefficients are made of, but neither the result nor the mask.

Several networks on the same graph may be stacked, each on its own block of rows with its own weights (see
`Operator.repeated`): sparse products, activation and dropout are then done once for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops import kernels
from adagpr.ops.backend import Hops, Weights, backend_of, where_positive
from adagpr.ops.buffers import matrix_like
from adagpr.ops.dropout import MaskSource
from adagpr.ops.operator import Operator, require_rows

WeightMaps = Literal["shared", "separate", "separate-scaled"]


def map_shapes(weight_maps: WeightMaps, alpha: float, beta: float) -> list[tuple[float, float]]:
    """Identity and factor of a layer's maps, ``identity * I + factor * W``: of its sum and, if separate, of ``h_0``.

    ``alpha`` is the share of ``h_0``, ``beta`` that of the weight; for the forms see `adagpr.nn.AdaGPRConv`.
    """
    if weight_maps == "shared":
        return [(1 - beta, beta)]
    # Without scaling the graph's half is G h itself; alpha = 1 has no graph part to undo.
    scale, scale_0 = (1.0, alpha) if weight_maps == "separate-scaled" else (1 / (1 - alpha), 1.0)
    return [(1 - beta, beta * scale), (alpha * (1 - beta), beta * scale_0)]


@dataclass(frozen=True)
class Layers:
    """What does not learn in a stack."""

    # Of the repeated graph where there are several blocks.
    operator: Operator
    # Shares of ``h_0`` and of the weight in each layer.
    alphas: Sequence[float]
    betas: Sequence[float]
    # Whether hops beyond the last non-zero coefficient are left out; see `gpr_propagate`.
    skip_tail: bool
    # Dropout after each layer, drawn from one stream for each block.
    rate: float = 0.0
    generators: Sequence[np.random.Generator] = ()
    # Whether ``S`` is computed again in the backward pass instead of being kept.
    recompute: bool = False
    # In which precision ``Y`` and ``S`` are kept, by default their own.
    saved_dtype: torch.dtype | None = None
    # Whether ``h_0`` has a map of its own; see `map_shapes`. Weights are then one below the other.
    weight_maps: WeightMaps = "shared"

    @property
    def num_maps(self) -> int:
        """Weight maps of a layer."""
        return 1 if self.weight_maps == "shared" else 2

    @property
    def shares(self) -> list[float]:
        """Share of ``h_0`` in the sum of each layer: none where it has a map of its own."""
        return list(self.alphas) if self.num_maps == 1 else [0.0] * len(self.alphas)

    def shapes(self, h: Tensor, num_blocks: int = 1) -> np.ndarray:
        """Identity and factor of each map, ``[layers, blocks, maps, 2]``, for a stack of matrices like ``h``."""
        # Rounded first as the numbers that they multiply: identity and factor then add up to 1 in these, too.
        betas = torch.tensor(self.betas, dtype=h.dtype).tolist()
        pairs = zip(self.alphas, betas, strict=True)
        found = np.array([map_shapes(self.weight_maps, alpha, beta) for alpha, beta in pairs], dtype=np.float64)
        return np.repeat(found[:, None], num_blocks, axis=1)

    @property
    def masks(self) -> MaskSource:
        """Where the masks of dropout come from."""
        return MaskSource(self.rate, self.generators)

    @property
    def factors(self) -> np.ndarray:
        """What each layer's coefficients are multiplied by, ``[layers, 1, 1]``."""
        return self.masks.scale * (1 - np.array(self.alphas, dtype=np.float64)).reshape(-1, 1, 1)

    def weights_of(self, coeffs: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The weights of hops, ``[layers, K, blocks]``, and how many hops each layer needs."""
        mu = np.ascontiguousarray(coeffs.detach().cpu().double().numpy().transpose(0, 2, 1)) * self.factors
        is_used = mu.any(axis=2) if self.skip_tail else np.ones(mu.shape[:2], dtype=bool)
        return mu, np.maximum((is_used * np.arange(1, mu.shape[1] + 1)).max(axis=1), 1)

    def coeff_gradients(self, inner: Tensor, h: Tensor) -> Tensor:
        """The gradients of the coefficients from those of the weights of hops, which are laid out as these."""
        return (inner * torch.from_numpy(self.factors).to(inner.device)).transpose(1, 2).to(h)

    def supports_fused_stack(self, h: Tensor) -> bool:
        """Whether all layers can be done in one call."""
        matrices = self.operator.single_matrix(), self.operator.single_matrix(transposed=True)
        fits = all(matrix is not None and kernels.supports_csr(matrix, h) for matrix in matrices)
        keeps_all = not self.recompute and self.saved_dtype in (None, h.dtype)
        fits = fits and kernels.supports_dense(h) and kernels.supports_square(h)
        return fits and keeps_all and not kernels.is_watched()

    def kept(self, h: Tensor) -> Tensor:
        """A matrix as it is kept for the backward pass."""
        return h if self.saved_dtype in (None, h.dtype) else matrix_like(h, self.saved_dtype).copy_(h)


class _Stack(torch.autograd.Function):
    """The stack layer by layer: any operator, device and precision."""

    @staticmethod
    def forward(ctx: Any, h_0: Tensor, coeffs: Tensor, layers: Layers, keep: bool, *weights: Tensor) -> Tensor:
        num_blocks, pairs = coeffs.shape[1], zip(*layers.weights_of(coeffs), strict=True)
        mus: list[list[Weights]] = [mu[:num_hops].tolist() for mu, num_hops in pairs]
        y, masks, backend = matrix_like(h_0).copy_(h_0), layers.masks, backend_of(h_0)
        if masks.rate > 0:
            masks.drop_(y)
        kept, sums, spare = [], [], []  # type: tuple[list[Tensor], list[Tensor], list[Tensor]]
        if keep:
            kept.append(layers.kept(y))
        shapes = layers.shapes(h_0)[:, 0].tolist()
        for number, (mu, share) in enumerate(zip(mus, layers.shares, strict=True)):
            s = backend.weighted_hops(Hops(layers.operator, mu, share), y, spare, h_0)
            maps = _maps(weights[number * num_blocks : (number + 1) * num_blocks], shapes[number])
            y = backend.multiply_blocks(s, maps[0], matrix_like(s))
            for of_h_0 in maps[1:]:
                backend.multiply_blocks(h_0, of_h_0, y, adds=True)
            backend.relu_drop_(y, masks)
            if keep:
                kept.append(layers.kept(y))
                sums += [] if layers.recompute else [layers.kept(s)]
        if keep:
            ctx.save_for_backward(h_0, *weights, *kept, *sums)
            ctx.layers, ctx.mus, ctx.shape = layers, mus, coeffs.shape
        return torch.mul(y, masks.scale, out=matrix_like(h_0))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layers: Layers = ctx.layers
        depth, num_blocks, most = ctx.shape
        h_0, *saved = ctx.saved_tensors
        backend, num_weights = backend_of(h_0), depth * num_blocks
        weights, kept, sums = saved[:num_weights], saved[num_weights:][: depth + 1], saved[num_weights + depth + 1 :]
        inner = h_0.new_zeros(depth, most, num_blocks, dtype=torch.float64)
        grad_weights: list[Tensor] = []
        shapes, shares = layers.shapes(h_0)[:, 0].tolist(), layers.shares
        grad_h_0, grad_s = matrix_like(h_0).zero_(), matrix_like(h_0)
        spare: list[Tensor] = []
        # What is positive in a layer's output was positive and kept: the output is its own mask.
        grad = where_positive(grad, _as(kept[depth], h_0)).mul_(layers.masks.scale)
        for number in reversed(range(depth)):
            hops, y = Hops(layers.operator, ctx.mus[number], shares[number]), _as(kept[number], h_0)
            s = _as(sums[number], h_0) if sums else backend.weighted_hops(hops, y, spare, h_0)
            maps = _maps(weights[number * num_blocks : (number + 1) * num_blocks], shapes[number], transposed=True)
            grad_weights[:0] = _weight_gradients([s, h_0][: layers.num_maps], grad, shapes[number], num_blocks)
            backend.multiply_blocks(grad, maps[0], grad_s)
            for of_h_0 in maps[1:]:
                backend.multiply_blocks(grad, of_h_0, grad_h_0, adds=True)
            grad, found = backend.weighted_hops_backward(hops, grad_s, y, spare, grad_h_0, masked=True)
            inner[number, : len(found)] = found
        return grad_h_0.add_(grad), layers.coeff_gradients(inner, h_0), None, None, *grad_weights


def _maps(weights: Sequence[Tensor], shapes: list[list[float]], transposed: bool = False) -> list[list[Tensor]]:
    """A layer's maps, or their transposes: of each kind one for each block; see `map_shapes`."""
    halves = [weight.chunk(len(shapes)) for weight in weights]
    return [
        [_map(half[kind].t() if transposed else half[kind], *shape) for half in halves]
        for kind, shape in enumerate(shapes)
    ]


def _map(weight: Tensor, identity: float, factor: float) -> Tensor:
    result = weight.mul(factor)
    result.diagonal().add_(identity)
    return result.contiguous()


def _weight_gradients(
    mapped: list[Tensor], grad: Tensor, shapes: list[list[float]], num_blocks: int
) -> Sequence[Tensor]:
    """The gradient of each block's weight from what its maps were applied to and the gradient of their sum."""
    halves = [
        [item.mul_(factor) for item in backend_of(h).outer_blocks(h, grad, num_blocks)]
        for h, (_, factor) in zip(mapped, shapes, strict=True)
    ]
    return halves[0] if len(halves) == 1 else [torch.cat(pair) for pair in zip(*halves, strict=True)]


def _as(kept: Tensor, h_0: Tensor) -> Tensor:
    """What was kept, in the precision that is computed in."""
    return kept if kept.dtype == h_0.dtype else matrix_like(h_0).copy_(kept)


def residual_stack(h_0: Tensor, coeffs: Tensor, layers: Layers, weights: Sequence[Tensor]) -> Tensor:
    """Computes the stack, dropout before its first layer and after its last included.

    ``h_0`` is a result of ReLU: where it is 0 its gradient may be 0 too. ``coeffs`` are ``[layers, blocks, K]``,
    ``weights`` are layer by layer, within a layer block by block.
    """
    require_rows(layers.operator, h_0)
    # Asked here: within a function gradients are always off, and what needs them is not.
    keep = torch.is_grad_enabled()
    function = kernels.FusedStack if layers.supports_fused_stack(h_0) else _Stack
    y: Tensor = function.apply(h_0.contiguous(), coeffs, layers, keep, *weights)  # type: ignore[no-untyped-call]
    return y
