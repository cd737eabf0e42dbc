"""SciPy CSR matrices as torch tensors, the one place where torch's notices about them are silenced."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.ops import native

__all__ = ["csr", "csr_tensor", "multiply", "replace_values", "transposed_order"]


def csr_tensor(matrix: sp.csr_array, dtype: torch.dtype = torch.float32) -> Tensor:
    """A torch CSR tensor of ``matrix``, with int32 indices wherever they suffice: only those reach MKL's products."""
    index = torch.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else torch.int64
    return csr(
        torch.from_numpy(np.ascontiguousarray(matrix.indptr)).to(index),
        torch.from_numpy(np.ascontiguousarray(matrix.indices)).to(index),
        torch.from_numpy(np.ascontiguousarray(matrix.data)).to(dtype),
        matrix.shape,
    )


def replace_values(matrix: Tensor, values: Tensor) -> Tensor:
    """A CSR tensor with the structure of ``matrix``, shared and not copied, and other values."""
    return csr(matrix.crow_indices(), matrix.col_indices(), values, (matrix.shape[0], matrix.shape[1]))


def transposed_order(matrix: sp.csr_array) -> tuple[sp.csr_array, Tensor]:
    """The transpose, and ``order`` such that its values are ``values[order]`` of the values of ``matrix``."""
    numbered = sp.csr_array((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    transpose = sp.csr_array(numbered.T)
    order = transpose.data.astype(np.int64)
    values = matrix.data[order]
    return sp.csr_array((values, transpose.indices, transpose.indptr), shape=transpose.shape), torch.from_numpy(order)


def multiply(matrix: Tensor, h: Tensor, out: Tensor) -> Tensor:
    """A CSR tensor times ``h``, written into ``out``."""
    if native.serves(h) and native.multiplies(matrix, h):
        return native.mix(matrix, h, [[0.0], [1.0]], out)
    return out.addmm_(matrix, h, beta=0.0)


def csr(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A torch CSR tensor of its parts, unchecked."""
    return torch.sparse_csr_tensor(rows, columns, values, shape, check_invariants=False)


# Torch says once a process that CSR is in beta state: here, where nobody is listening.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    csr(torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64), torch.tensor([]), (1, 1))
