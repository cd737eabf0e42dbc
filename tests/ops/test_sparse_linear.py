from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.ops import SparseFeatures, features, linear
from adagpr.seeding import stream


@pytest.fixture
def matrix() -> sp.csr_array:
    return sp.random_array((20, 9), density=0.2, rng=np.random.default_rng(0), format="csr")


@pytest.fixture
def weights() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(4, 9, dtype=torch.float64, generator=generator).requires_grad_(),
        torch.randn(4, dtype=torch.float64, generator=generator).requires_grad_(),
    )


def test_sparse_map_equals_the_dense_one(matrix: sp.csr_array, weights: tuple[torch.Tensor, torch.Tensor]) -> None:
    dense = torch.from_numpy(matrix.toarray())
    ours = linear(features(matrix, torch.float64), *weights)
    torch.testing.assert_close(ours, torch.nn.functional.linear(dense, *weights), rtol=1e-13, atol=1e-13)


def test_sparse_map_passes_gradcheck(matrix: sp.csr_array, weights: tuple[torch.Tensor, torch.Tensor]) -> None:
    x = features(matrix, torch.float64)
    assert torch.autograd.gradcheck(lambda weight, bias: linear(x, weight, bias), weights)


def test_dropped_features_pass_gradcheck(matrix: sp.csr_array, weights: tuple[torch.Tensor, torch.Tensor]) -> None:
    x = SparseFeatures.from_scipy(matrix, torch.float64).dropped(0.5, stream(0, "test"))
    assert torch.autograd.gradcheck(lambda weight, bias: linear(x, weight, bias), weights)


def test_dropout_of_sparse_features_stays_sparse_and_scales(matrix: sp.csr_array) -> None:
    x = SparseFeatures.from_scipy(matrix, torch.float64)
    dropped = x.dropped(0.5, stream(0, "test"))
    assert dropped.matrix.layout == torch.sparse_csr
    assert dropped.matrix.values().shape == x.matrix.values().shape
    ratios = (dropped.matrix.values() / x.matrix.values()).unique().tolist()
    assert ratios == pytest.approx([0.0, 2.0])
    torch.testing.assert_close(dropped.transpose.to_dense(), dropped.matrix.to_dense().t())


def test_dropping_leaves_the_original_untouched(matrix: sp.csr_array) -> None:
    x = SparseFeatures.from_scipy(matrix, torch.float64)
    x.dropped(0.9, stream(0, "test"))
    np.testing.assert_array_equal(x.matrix.to_dense().numpy(), matrix.toarray())
