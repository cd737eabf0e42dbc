from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import fsum

import numpy as np
import pytest
from scipy import stats

from adagpr.errors import InputError
from adagpr.statistics import bootstrap_interval, interval, paired_test, share_interval

NODE = 100 / 37


def by_brute_force(differences: list[float]) -> float:
    observed = abs(fsum(differences))
    signs = list(product((-1, 1), repeat=len(differences)))
    sums = [abs(fsum(s * d for s, d in zip(row, differences, strict=True))) for row in signs]
    return sum(value >= observed - 1e-9 for value in sums) / len(signs)


@pytest.mark.parametrize(
    ("differences", "p_value"),
    [
        ([1.0, 2.0, 3.0], 2 / 8),  # |sum| is 6 only for +++ and ---
        ([-1.0, 2.0, 3.0], 4 / 8),  # sums are 6, 4, 2, 0 with either sign; 6 and 4 reach 4
        ([3.0, -2.0, -1.0], 8 / 8),  # the sum is 0, and every sum reaches 0
        ([0.0, 0.0, 0.0], 1.0),
        ([5.0], 1.0),
    ],
)
def test_p_values_worked_by_hand(differences: list[float], p_value: float) -> None:
    found = paired_test(differences)
    assert (found.p_value, found.method) == (p_value, "exact sign flips")


@pytest.mark.parametrize("num", [2, 5, 8, 11])
def test_the_exact_test_counts_what_a_loop_counts(num: int) -> None:
    rng = np.random.default_rng(num)
    smooth = rng.normal(0.5, 1, num).tolist()
    whole_nodes = (NODE * rng.integers(-1, 4, num)).tolist()
    for differences in (smooth, whole_nodes):
        assert paired_test(differences).p_value == by_brute_force(differences)


def test_the_exact_test_agrees_with_scipy() -> None:
    differences = np.random.default_rng(3).normal(0.6, 1, 10)
    theirs = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert paired_test(differences).p_value == pytest.approx(theirs.pvalue, abs=1e-12)


def test_ties_survive_the_order_of_summation() -> None:
    # 0.1 + 0.2 - 0.3 is not 0 in floating point, yet flipping all of it changes nothing.
    assert paired_test([0.1, 0.2, -0.3, 1.0]).p_value == by_brute_force([1, 2, -3, 10])


def test_rounded_differences_tie_within_the_tolerance() -> None:
    exact, rounded = [3 * NODE, 3 * NODE, -3 * NODE, NODE], [8.11, 8.11, -8.1, 2.7]
    assert paired_test(rounded).p_value < paired_test(exact).p_value
    assert paired_test(rounded, tolerance=0.01).p_value == paired_test(exact).p_value


@pytest.mark.parametrize("differences", [[1, 1, 1, 3], [0.02, 0.05, -0.04, 0.02], [0.03, 0.05, -0.05, 0.03]])
def test_patterns_that_rounding_may_have_made_unequal_count_as_ties(differences: list[float]) -> None:
    tolerance = max(differences) / 5
    patterns = [np.array(signs) for signs in product((-1, 1), repeat=4)]
    ends = [np.add(differences, tolerance * signs) for signs in patterns]
    # A pattern is a tie where it is one for some values within the tolerance, found at their ends or between.
    shortfalls = [[abs(end.sum()) - abs((signs * end).sum()) for end in ends] for signs in patterns]
    expected = np.mean([min(row) <= 1e-12 for row in shortfalls])
    assert paired_test(differences, tolerance=tolerance).p_value == expected


@pytest.mark.parametrize("num", [10, 21])
def test_rounding_does_not_hide_small_differences_that_all_agree(num: int) -> None:
    # Whatever was rounded away, each of them is above 0, so that no sum with a sign flipped comes near.
    assert paired_test([0.05] * num, tolerance=0.01).p_value <= 2 / 2**10


def test_twenty_pairs_are_counted_and_more_are_sampled() -> None:
    assert paired_test([1.0] * 20).p_value == 2 / 2**20
    many = paired_test([1.0] * 40)
    assert (many.p_value, many.method) == (1 / 100_001, "sampled sign flips")


def test_the_sampled_test_is_near_the_exact_one_and_repeats() -> None:
    # Pairs that differ by 0 change nothing, so that the exact test of the rest is the truth.
    differences = np.random.default_rng(0).normal(0.4, 1, 12).tolist()
    padded = [*differences, *[0.0] * 9]
    exact = paired_test(differences).p_value
    assert 0.05 < exact < 0.5
    assert paired_test(padded).p_value == pytest.approx(exact, abs=4 * np.sqrt(exact / 100_000))
    assert paired_test(padded) == paired_test(padded)
    assert paired_test(padded, seed=1) != paired_test(padded)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_interval_is_that_of_a_t_test(level: float) -> None:
    values = np.random.default_rng(1).normal(2, 3, 10)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(level)
    np.testing.assert_allclose(interval(values, level), (theirs.low, theirs.high), rtol=1e-12)


def test_the_interval_of_a_share_is_wilsons() -> None:
    theirs = stats.binomtest(30, 37).proportion_ci(method="wilson")
    np.testing.assert_allclose(share_interval(30, 37), (theirs.low, theirs.high), rtol=1e-12)
    np.testing.assert_allclose(share_interval(30, 37), (0.658, 0.905), atol=5e-4)
    assert share_interval(0, 5)[0] == 0
    assert share_interval(5, 5)[1] == 1


@pytest.mark.parametrize("function", [interval, bootstrap_interval])
def test_one_value_and_equal_values_are_a_point(function: Callable[..., tuple[float, float]]) -> None:
    assert function([2.5]) == (2.5, 2.5)
    assert function([0.0, 0.0]) == (0.0, 0.0)
    one_node = [100 * ((n + 1) / 37) - 100 * (n / 37) for n in (3, 8, 15, 16, 18, 30)]
    assert len(set(one_node)) > 1
    mean = float(np.mean(one_node))
    assert function(one_node) == (mean, mean)


def test_the_bootstrap_repeats_follows_its_level_and_leans_with_the_data() -> None:
    skewed = np.random.default_rng(2).exponential(1, 30)
    low, high = bootstrap_interval(skewed)
    assert bootstrap_interval(skewed) == (low, high)
    assert bootstrap_interval(skewed, seed=1) != (low, high)
    narrow = bootstrap_interval(skewed, level=0.5)
    assert low < narrow[0] < skewed.mean() < narrow[1] < high
    assert high - skewed.mean() > skewed.mean() - low


@pytest.mark.parametrize("function", [interval, paired_test, bootstrap_interval])
@pytest.mark.parametrize("values", [[], [[1.0, 2.0]], [1.0, float("nan")], [float("inf")], ["x"]])
def test_what_is_no_list_of_finite_numbers_is_refused(function: Callable[..., object], values: list[object]) -> None:
    with pytest.raises(InputError, match=f"^{function.__name__}: the values must be"):
        function(values)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, float("nan")])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(InputError, match="level must be between 0 and 1"):
        interval([1.0, 2.0], level)
