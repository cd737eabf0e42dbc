"""SciPy CSR matrices as torch tensors, the one place where torch's notices about them are silenced."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

__all__ = ["csr_tensor", "csr_with_values"]


def csr_tensor(matrix: sp.csr_array, dtype: torch.dtype = torch.float32) -> Tensor:
    """A torch CSR tensor of ``matrix``, with int32 indices wherever they suffice: only those reach MKL's products."""
    index = torch.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else torch.int64
    return csr_with_values(
        torch.from_numpy(np.ascontiguousarray(matrix.indptr)).to(index),
        torch.from_numpy(np.ascontiguousarray(matrix.indices)).to(index),
        torch.from_numpy(np.ascontiguousarray(matrix.data)).to(dtype),
        matrix.shape,
    )


def csr_with_values(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A torch CSR tensor on the given index tensors, which are trusted and shared, not copied."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(rows, columns, values, shape, check_invariants=False)
