from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from adagpr.errors import InputError
from adagpr.ops import PROJECTIONS, projection
from adagpr.ops.simplex import entmax15, exp_sparsemax, exp_sum, softmax, sparsemax, sphericalmax

LEARNED = [name for name in PROJECTIONS if name != "fixed"]
SCORES = st.lists(st.floats(-20, 20), min_size=1, max_size=12)


def double(values: list[float] | list[list[float]]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("name", LEARNED)
@given(values=SCORES)
@settings(max_examples=50)
def test_every_projection_lands_on_the_simplex(name: str, values: list[float]) -> None:
    weights = projection(name).function(double(values))
    assert weights.min() >= 0
    assert weights.sum().item() == pytest.approx(1.0, abs=1e-9)


@given(values=SCORES)
@settings(max_examples=50)
def test_sparsemax_is_the_nearest_point_of_the_simplex(values: list[float]) -> None:
    scores = double(values)
    ours = sparsemax(scores)
    low, high = scores.min() - 1, scores.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (scores - middle).clamp(min=0).sum() > 1 else (low, middle)
    torch.testing.assert_close(ours, (scores - high).clamp(min=0), atol=1e-9, rtol=0)


def test_sparsemax_of_large_single_precision_scores_is_exact() -> None:
    weights = sparsemax(torch.tensor([[1e8, 1e8], [1e5 + 0.5, 1e5]]))
    assert weights.tolist() == [[0.5, 0.5], [0.75, 0.25]]


def test_sparsemax_of_known_values() -> None:
    assert sparsemax(double([0.5, 0.3, -1.0])).tolist() == pytest.approx([0.6, 0.4, 0.0])
    assert sparsemax(double([3.0, 1.0, 0.0])).tolist() == [1.0, 0.0, 0.0]


def test_entmax_maximises_its_own_objective() -> None:
    scores = double([0.3, -0.2, 0.9, -1.5])

    def negative(p: list[float]) -> float:
        return float(
            -sum(p[i] * scores[i] for i in range(4)) - 4 / 3 * sum((p[i] - max(p[i], 0) ** 1.5) for i in range(4))
        )

    best = minimize(
        negative,
        [0.25] * 4,
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda p: sum(p) - 1},
        tol=1e-12,
    )
    assert entmax15(scores).tolist() == pytest.approx(list(best.x), abs=1e-4)


@pytest.mark.parametrize("name", LEARNED)
def test_gradients_pass_gradcheck(name: str) -> None:
    scores = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    assert torch.autograd.gradcheck(projection(name).function, (scores,))


@pytest.mark.parametrize("name", [name for name in LEARNED if PROJECTIONS[name].is_sparse])
def test_sparse_projections_pass_no_gradient_outside_their_support(name: str) -> None:
    scores = double([2.0, 1.9, -3.0, -4.0]).requires_grad_()
    weights = projection(name).function(scores)
    (weights * double([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert scores.grad is not None
    assert (weights[2:] == 0).all()
    assert (scores.grad[2:] == 0).all()


def test_exp_sparsemax_is_sparsemax_of_the_exponential() -> None:
    scores = double([[-0.3, 0.4, 0.1], [1.0, 1.2, -2.0]])
    torch.testing.assert_close(exp_sparsemax(scores), sparsemax(scores.exp()), atol=1e-14, rtol=0)


def test_exp_sparsemax_of_huge_scores_stays_finite() -> None:
    scores = torch.tensor([500.0, 499.0, -500.0], requires_grad=True)
    weights = exp_sparsemax(scores)
    weights[0].backward()
    assert weights.tolist() == [1.0, 0.0, 0.0]
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()


def test_exp_sum_is_softmax() -> None:
    scores = double([0.1, -2.0, 3.0])
    torch.testing.assert_close(exp_sum(scores), softmax(scores), atol=1e-15, rtol=0)


def test_sphericalmax_divides_squares_and_survives_zero() -> None:
    assert sphericalmax(double([1.0, -2.0])).tolist() == pytest.approx([0.2, 0.8])
    assert sphericalmax(double([0.0, 0.0])).tolist() == [0.5, 0.5]


def test_rows_are_projected_independently() -> None:
    scores = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for name in LEARNED:
        function = projection(name).function
        torch.testing.assert_close(function(scores)[2], function(scores[2]), atol=1e-15, rtol=0)


def test_unknown_projection_offers_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'sparsemax'"):
        projection("sparsmax")
