from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.ops import FeatureScaling, FeatureStatistics, ScalingOption, features, row_sums


def values(density: float = 1.0) -> np.ndarray:
    """Columns of unequal size and place, one constant and one of zeros, and a row of zeros."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6)) * [1.0, 100.0, 0.01, 3.0, 1.0, 1.0] + [0.0, 5000.0, 0.0, -7.0, 0.0, 0.0]
    x *= rng.random(x.shape) < density
    x[:, 4], x[:, 5] = 1 / 3, 0.0
    x[3] = 0.0 if density < 1 else x[3]
    return x.astype(np.float32)


def plain(x: Any) -> np.ndarray:
    return np.asarray(x.toarray() if isinstance(x, sp.csr_array) else x.numpy(), dtype=np.float64)


def by_rows(x: np.ndarray) -> np.ndarray:
    sums = np.abs(x).sum(1, keepdims=True)
    return np.asarray(np.divide(x, sums, out=np.zeros_like(x), where=sums > 0))


def by_columns(x: np.ndarray, mean: bool = True) -> np.ndarray:
    moved = x - x.mean(0) * mean
    spread = np.where(np.ptp(x, axis=0) > 0, x.std(0), np.inf)
    return np.asarray(moved / spread)


def dense(x: np.ndarray) -> Any:
    return torch.from_numpy(x)


@pytest.mark.parametrize(
    ("option", "form", "density", "formula"),
    [
        ("rows", dense, 1.0, by_rows),
        ("rows", dense, 0.1, by_rows),
        ("rows", sp.csr_array, 0.1, by_rows),
        ("standardise", dense, 1.0, by_columns),
        ("standardise", sp.csr_array, 0.6, by_columns),
    ],
)
def test_values_are_those_of_the_formula(
    option: ScalingOption,
    form: Callable[[np.ndarray], Any],
    density: float,
    formula: Callable[[np.ndarray], np.ndarray],
) -> None:
    x = values(density)
    found = FeatureScaling.fitted(option, [form(x)])(form(x))
    assert found.dtype in (torch.float32, np.float32)
    np.testing.assert_allclose(plain(found), formula(x.astype(np.float64)), rtol=1e-6, atol=1e-6)


def test_thin_features_stay_sparse_and_keep_their_mean() -> None:
    x = values(0.1)[:, [0, 1, 2, 3, 5]]
    scaling = FeatureScaling.fitted("standardise", [sp.csr_array(x)])
    found = scaling(sp.csr_array(x))
    assert isinstance(found, sp.csr_array)
    assert found.nnz == np.count_nonzero(x)
    np.testing.assert_allclose(plain(found), by_columns(x.astype(np.float64), mean=False), rtol=1e-6, atol=1e-6)
    # Later rows may be stored in another way.
    np.testing.assert_array_equal(plain(scaling(torch.from_numpy(x))), plain(found))


def test_a_constant_column_is_0_however_its_mean_is_rounded() -> None:
    x = torch.full((1001, 1), 0.1)
    assert not FeatureScaling.fitted("standardise", [x])(x).any()


def test_far_from_0_the_deviation_keeps_its_digits() -> None:
    x = torch.tensor([[16777215.0], [16777213.0]])
    assert FeatureScaling.fitted("standardise", [x])(x).tolist() == [[1.0], [-1.0]]


@pytest.mark.parametrize("form", [dense, sp.csr_array])
def test_blocks_give_what_the_whole_gives(form: Callable[[np.ndarray], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x = values(0.6)
    whole = FeatureScaling.fitted("standardise", [form(x)]).tensors
    monkeypatch.setattr("adagpr.ops.feature_scaling._BLOCK", 7 * 6)
    blocks = FeatureScaling.fitted("standardise", [form(x[:11]), form(x[11:12]), form(x[12:])]).tensors
    for name in ("shift", "factor"):
        torch.testing.assert_close(blocks[name], whole[name], rtol=1e-12, atol=1e-12)


def test_no_scaling_gives_back_the_features_themselves() -> None:
    x = sp.csr_array(values(0.1))
    assert FeatureScaling.fitted(None, [x])(x) is x


def test_sums_of_rows_are_never_0() -> None:
    x = values(0.1)
    for form in (torch.from_numpy(x), features(sp.csr_array(x))):
        np.testing.assert_allclose(row_sums(form).numpy()[[0, 1]], np.abs(x).sum(1)[[0, 1]], rtol=1e-6)
        assert 0 < row_sums(form)[3] < 1e-37


def ones(share: float, num_columns: int) -> sp.csr_array:
    chosen = np.random.default_rng(0).random((50, num_columns)) < share
    return sp.csr_array(chosen.astype(np.float32))


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (ones(0.01, 1000), "none"),
        (ones(0.01, 1000) / 100, "rows"),
        (ones(0.3, 1000), "standardise"),
        (ones(0.1, 2000), "rows"),
        (sp.csr_array((50, 3), dtype=np.float32), "none"),
        (torch.rand(50, 10), "none"),
        (torch.eye(50, 10), "none"),
        (torch.rand(50, 10) * 10 ** torch.linspace(-3, 0, 10), "standardise"),
        (torch.rand(50, 10) + 2000, "standardise"),
        (torch.rand(50, 10) / 100, "standardise"),
        (torch.randn(500, 900, generator=torch.Generator().manual_seed(0)), "none"),
    ],
    ids=[
        "few-words",
        "thin-words",
        "dense-words",
        "many-words",
        "nothing",
        "shares",
        "one-hot",
        "units",
        "years",
        "tiny",
        "vectors",
    ],
)
def test_auto_goes_by_the_features(x: Any, kind: str) -> None:
    assert FeatureStatistics.of(x).suggested() == kind
