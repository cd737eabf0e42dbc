r"""A linear map of sparse features, and their dropout, that never makes them dense.

``y = X W^T + b`` for a CSR matrix ``X`` of constants. Dropout of ``X`` touches only stored values (the others are zero
either way). The backward pass needs ``X^T g``: the transpose's structure is made once, and each step only reorders the
dropped values into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.ops.csr import csr_tensor, multiply, replace_values, transposed_order
from adagpr.ops.dropout import drop_values, dropout

__all__ = ["Features", "SparseFeatures", "drop_features", "features", "linear"]


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Constant sparse features, their transpose, and where each value of the one stands in the other.

    Attributes:
        matrix: The features as a torch CSR tensor.
        transpose: Their transpose, likewise.
        order: ``transpose.values() == matrix.values()[order]``.
    """

    matrix: Tensor
    transpose: Tensor
    order: Tensor

    @classmethod
    def from_scipy(cls, matrix: sp.csr_array, dtype: torch.dtype = torch.float32) -> SparseFeatures:
        """Makes both forms from a SciPy matrix."""
        transpose, order = transposed_order(matrix)
        return cls(csr_tensor(matrix, dtype), csr_tensor(transpose, dtype), order)

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and features."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def to(self, target: torch.dtype | torch.device | str) -> SparseFeatures:
        """The same features in another precision or on another device."""
        order = self.order if isinstance(target, torch.dtype) else self.order.to(target)
        return SparseFeatures(self.matrix.to(target), self.transpose.to(target), order)

    def dropped(self, rate: float, generator: np.random.Generator) -> SparseFeatures:
        """The features with each stored value zeroed at ``rate`` and the others scaled up."""
        values = self.matrix.values()
        kept, reordered = drop_values(values, rate, generator, self.order)
        transpose = replace_values(self.transpose, reordered)
        return SparseFeatures(replace_values(self.matrix, kept), transpose, self.order)


Features = Tensor | SparseFeatures


def features(x: Tensor | sp.csr_array, dtype: torch.dtype = torch.float32) -> Features:
    """A graph's features as models take them."""
    return SparseFeatures.from_scipy(x, dtype) if isinstance(x, sp.csr_array) else x.to(dtype)


def drop_features(x: Features, rate: float, generator: np.random.Generator) -> Features:
    """Dropout of constant features, sparse ones stay sparse; at a rate of 0 they are returned and no word is drawn."""
    if rate == 0.0:
        return x
    return x.dropped(rate, generator) if isinstance(x, SparseFeatures) else dropout(x, rate, generator)


class _SparseLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: SparseFeatures, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.x = x
        return multiply(x.matrix, weight.t().contiguous(), weight.new_empty(x.shape[0], len(weight))).add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        grad = grad.contiguous()
        grad_weight = multiply(ctx.x.transpose, grad, grad.new_empty(ctx.x.shape[1], grad.shape[1]))
        return None, grad_weight.t(), grad.sum(0)


def linear(x: Features, weight: Tensor, bias: Tensor) -> Tensor:
    """Computes ``x @ weight.T + bias`` for sparse or dense ``x``, with ``weight`` laid out as in `torch.nn.Linear`."""
    if isinstance(x, SparseFeatures):
        result: Tensor = _SparseLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return torch.nn.functional.linear(x, weight, bias)
