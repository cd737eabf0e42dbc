"""Sums over a spectrum: by hand, exact, and estimated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from adagpr.data import load
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.ops.operator import normalise
from adagpr.ops.spectrum import Estimate, Spectrum, spectrum

# Four leaves around a centre, with self loops: eigenvalues 1, 1/2 three times, and -3/10.
STAR = normalise(sp.csr_array(np.array([[0.0] + [1.0] * 4] + [[1.0] + [0.0] * 4] * 4)), "symmetric", True)
MU = (0.5, 0.25, 0.25)

estimated_spectrum = partial(spectrum, max_exact=0)


def exact_spectrum(matrix: sp.csr_array) -> Spectrum:
    return spectrum(matrix, max_exact=matrix.shape[0], generator=np.random.default_rng(0))


def values(estimates: list[Estimate]) -> list[float]:
    return [item.value for item in estimates]


def operator_of(graph: Graph) -> sp.csr_array:
    return normalise(graph.adj, "symmetric", True)


def test_a_star_has_the_sums_worked_out_by_hand() -> None:
    found = exact_spectrum(STAR)
    np.testing.assert_allclose(found.points[0], [-0.3, 0.5, 0.5, 0.5, 1.0], atol=1e-14)
    assert values(found.powers(4)) == pytest.approx([5.0, 2.8, 1.84, 1.402], abs=1e-13)
    assert found.absolute_sum(MU).value == pytest.approx(0.5 * 5 + 0.25 * 2.8 + 0.25 * 1.84, abs=1e-13)
    assert found.squared_trace(MU).value == pytest.approx(1 + 3 * 0.6875**2 + 0.4475**2, abs=1e-13)
    assert {item.error for item in found.powers(4)} == {0.0}


def test_an_odd_power_is_no_trace() -> None:
    trace = (STAR @ STAR @ STAR).diagonal().sum()
    assert trace == pytest.approx(1.348, abs=1e-13)
    assert exact_spectrum(STAR).powers(4)[3].value == pytest.approx(trace + 2 * 0.027, abs=1e-13)


def test_the_squared_trace_is_that_of_the_dense_matrix(make_graph: Callable[..., Graph]) -> None:
    matrix = operator_of(make_graph(directed=False))
    mu = (0.1, -0.4, 0.3, 0.2)
    dense = np.sum([mu[k] * np.linalg.matrix_power(matrix.toarray(), k) for k in range(4)], axis=0)
    assert exact_spectrum(matrix).squared_trace(mu).value == pytest.approx(np.trace(dense @ dense), rel=1e-12)


def test_coefficients_of_hop_0_are_exact_in_an_estimate() -> None:
    found = estimated_spectrum(STAR, num_probes=3, generator=np.random.default_rng(0))
    assert found.absolute_sum((1.0,)) == found.powers(1)[0] == Estimate(5.0)
    assert found.squared_trace((0.5, 0.0)) == Estimate(1.25)


def test_quadrature_is_accurate_long_after_eigenvalues_repeat(make_graph: Callable[..., Graph]) -> None:
    # Without orthogonalising again, 400 steps on 400 nodes find the largest eigenvalue more than once.
    matrix = operator_of(make_graph(num_nodes=400, directed=False))
    found = estimated_spectrum(matrix, num_probes=6, num_steps=400, generator=np.random.default_rng(1))
    assert (abs(found.points[0] - 1) < 1e-9).sum() > 1
    probes = np.random.default_rng(1).integers(0, 2, size=(400, 6), dtype=np.int8) * 2.0 - 1.0
    eigenvalues, vectors = np.linalg.eigh(matrix.toarray())
    squares = (vectors.T @ probes) ** 2
    for function, tolerance in ((np.abs, 3e-5), (np.square, 1e-11), (lambda x: x**9, 1e-11), (np.exp, 1e-11)):
        exact = function(eigenvalues) @ squares
        np.testing.assert_allclose((found.weights * function(found.points)).sum(axis=1), exact, rtol=tolerance)


def test_few_steps_are_exact_for_polynomials_of_twice_their_number(make_graph: Callable[..., Graph]) -> None:
    matrix = operator_of(make_graph(num_nodes=90, directed=False))
    found = estimated_spectrum(matrix, num_probes=4, num_steps=5, generator=np.random.default_rng(2))
    probes = np.random.default_rng(2).integers(0, 2, size=(90, 4), dtype=np.int8) * 2.0 - 1.0
    power = np.linalg.matrix_power(matrix.toarray(), 9)
    exact = np.einsum("ip,ij,jp->p", probes, power, probes)
    np.testing.assert_allclose((found.weights * found.points**9).sum(axis=1), exact, rtol=1e-11)


def test_estimates_on_cora_are_within_three_standard_errors_at_95_percent_of_200_seeds(benchmark_root: Path) -> None:
    matrix = operator_of(load("cora", data_root=benchmark_root)[0])
    mu = (0.14, 0.29, 0.29, 0.28)
    whole = exact_spectrum(matrix)
    exact = np.array(values([*whole.powers(4)[1:], whole.absolute_sum(mu), whole.squared_trace(mu)]))
    hits = np.zeros(len(exact))
    for seed in range(200):
        found = estimated_spectrum(matrix, num_probes=10, num_steps=32, generator=np.random.default_rng(seed))
        estimates = [*found.powers(4)[1:], found.absolute_sum(mu), found.squared_trace(mu)]
        off = abs(np.array(values(estimates)) - exact)
        hits += off <= 3 * np.array([item.stderr for item in estimates])
        assert max(item.stderr / item.value for item in estimates) < 0.04
    assert hits.min() >= 190


def test_halving_the_steps_overstates_what_is_left(make_graph: Callable[..., Graph]) -> None:
    matrix = operator_of(make_graph(num_nodes=400, directed=False))
    short, long = (
        estimated_spectrum(matrix, num_probes=8, num_steps=steps, generator=np.random.default_rng(3)).powers(2)[1]
        for steps in (24, 400)
    )
    assert 0 < abs(short.value - long.value) < short.quadrature_error


def test_many_probes_in_several_blocks_average_to_the_exact_sum(
    make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("adagpr.ops.spectrum"), "_BLOCK", 60 * 7)
    matrix = operator_of(make_graph(num_nodes=60, directed=False))
    found = estimated_spectrum(matrix, num_probes=400, num_steps=30, generator=np.random.default_rng(4))
    assert found.points.shape == (400, 30)
    exact, estimate = exact_spectrum(matrix).powers(2)[1].value, found.powers(2)[1]
    assert abs(estimate.value - exact) < 4 * estimate.error < 0.1 * exact


@pytest.mark.parametrize(("loops", "expected"), [(True, [7.0, 7.0, 7.0]), (False, [7.0, 0.0, 0.0])])
def test_a_graph_without_edges_ends_every_probe_at_once(loops: bool, expected: list[float]) -> None:
    matrix = normalise(sp.csr_array((7, 7)), "symmetric", loops)
    found = estimated_spectrum(matrix, num_probes=4, generator=np.random.default_rng(0))
    assert values(found.powers(3)) == pytest.approx(expected, abs=1e-12)
    assert values(exact_spectrum(matrix).powers(3)) == pytest.approx(expected, abs=1e-12)
    assert max(item.error for item in found.powers(3)) < 1e-12


def test_a_probe_that_ends_by_rounding_alone_stays_right() -> None:
    # Two eigenvalues, so that two steps say it all and the third starts from what rounding left.
    matrix = normalise(sp.csr_array(sp.block_diag([1 - np.eye(3)] * 20)), "symmetric", True)
    found = estimated_spectrum(matrix, num_probes=400, num_steps=12, generator=np.random.default_rng(0))
    assert found.weights.sum(axis=1) == pytest.approx(np.full(400, 60.0))
    for estimate in found.powers(4)[1:]:
        assert abs(estimate.value - 20) < 4 * estimate.stderr < 3
        assert estimate.quadrature_error < 1e-9


def test_one_node_is_enough() -> None:
    one = sp.csr_array([[1.0]])
    assert values(estimated_spectrum(one, generator=np.random.default_rng(0)).powers(2)) == pytest.approx([1.0, 1.0])


def test_the_number_of_nodes_decides_between_exact_and_estimated() -> None:
    generator = np.random.default_rng(0)
    assert spectrum(STAR, max_exact=5, generator=generator).is_exact
    assert not spectrum(STAR, max_exact=4, generator=generator).is_exact


@pytest.mark.parametrize("name", ["num_probes", "num_steps"])
def test_one_probe_or_step_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"spectrum: {name} must be at least 2, got 1."):
        estimated_spectrum(STAR, generator=np.random.default_rng(0), **{name: 1})
