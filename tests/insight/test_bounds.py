"""The paper's bounds against formulas worked out by hand on five nodes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import adagpr
from adagpr.errors import InputError
from adagpr.graph import Graph, Split, from_scipy
from adagpr.insight import bounds
from adagpr.insight.theorem import Sizes, log_recursion, log_terms
from adagpr.nn import AdaGPR
from adagpr.training import Run

# Four leaves around a centre, with self loops: eigenvalues 1, 1/2 three times, and -3/10.
STAR = np.array([[0.0, 1.0, 1.0, 1.0, 1.0]] + [[1.0, 0.0, 0.0, 0.0, 0.0]] * 4)
X = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
SPLIT = Split(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3, 4]))
ALPHA = 0.25
BETA_2 = math.log((math.e - 1) / 2 + 1)
B_1, B_2 = 4.0, 1 + 2 * BETA_2
MU = ((0.5, 0.25, 0.25), (0.0, 1.0, 0.0))
S_1, S_2 = 0.5 * 5 + 0.25 * 2.8 + 0.25 * 1.84, 2.8


def star() -> Graph:
    return from_scipy(sp.csr_array(STAR), X, [0, 1, 0, 1, 0])


@pytest.fixture
def run() -> Run:
    """Two layers on the star whose weights are set by hand; the first has beta 1, as in the theory."""
    options: dict[str, Any] = {"num_layers": 2, "num_coeffs": 3, "hidden_channels": 2, "projection": "sparsemax"}
    done = adagpr.fit(star(), SPLIT, alpha=ALPHA, theta=math.e - 1, max_epochs=1, **options)
    assert isinstance(done.model, AdaGPR)
    one, two = done.model.layers()
    with torch.no_grad():
        done.model.lin_in.weight.copy_(torch.tensor([[1.0, -0.5], [0.25, 0.25]]))
        done.model.lin_in.bias.zero_()
        one.weight.copy_(torch.tensor([[1.0, -2.0], [3.0, 0.0]]))
        two.weight.copy_(torch.tensor([[0.0, 2.0], [0.0, 1.0]]))
        for conv, mu in zip((one, two), MU, strict=True):
            conv.get_parameter("scores").copy_(torch.tensor(mu))
    return done


def largest_activation() -> float:
    """The forward pass in dense matrices."""
    scale = np.diag(1 / np.sqrt((STAR + np.eye(5)).sum(1)))
    a = scale @ (STAR + np.eye(5)) @ scale
    h = h_0 = np.maximum(X @ np.array([[1.0, 0.25], [-0.5, 0.25]]), 0)
    largest = [h.max()]
    maps = [np.array([[1.0, -2.0], [3.0, 0.0]]), np.array([[1 - BETA_2, 2 * BETA_2], [0.0, 1.0]])]
    for mu, weights in zip(MU, maps, strict=True):
        spread = mu[0] * h + mu[1] * a @ h + mu[2] * a @ a @ h
        h = np.maximum(((1 - ALPHA) * spread + ALPHA * h_0) @ weights, 0)
        largest.append(h.max())
    return float(max(largest))


def printed(s_1: float, s_2: float, d: float) -> float:
    """Theorem 1 for Q = 1, p0 = 1/4, B0 = 3/2, alpha = 1/4, |X| = sqrt(8): the head of its first sum is 3/4."""
    first = 0.75 * (1.5 * B_2 * s_2 + 2.25 * B_2 * s_2 * B_1 * s_1)
    second = d * (0.75 * B_2 * s_2 + 0.75**2 * 2 * B_2 * s_2 * B_1 * s_1)
    return math.log10(first + second)


def recursion(s_1: float, s_2: float, d: float) -> float:
    r_1 = 1.5 * B_1 * s_1 * (6 + d) + 0.25 * B_1 * 6
    return math.log10(1.5 * B_2 * s_2 * (r_1 + d) + 0.25 * B_2 * 6)


ROOT = math.sqrt(1 + 3 * 0.6875**2 + 0.4475**2), math.sqrt(1.84)


@pytest.mark.parametrize(
    ("model", "form", "terms"),
    [
        ("run", "spectrum", (S_1, S_2)),
        ("run", "trace", ROOT),
        ("run", "degree", (5 * (0.5 + 0.25 * 2 + 0.25 * 4), 5 * 2)),
        ("gcnii", "spectrum", (2.8, 2.8)),
        ("gcnii", "trace", (math.sqrt(1.84), math.sqrt(1.84))),
        ("gcnii", "degree", (10, 10)),
        ("residual", "spectrum", (5, 5)),
        ("residual", "trace", (math.sqrt(5), math.sqrt(5))),
        ("residual", "degree", (5, 5)),
    ],
)
def test_totals_are_those_worked_out_by_hand(run: Run, model: str, form: str, terms: tuple[float, float]) -> None:
    found = bounds(run, graph=star()).total(model, form)
    d = math.sqrt(5) * largest_activation()
    assert found.log10_printed == pytest.approx(printed(*terms, d), abs=1e-6)
    assert found.log10_recursion == pytest.approx(recursion(*terms, d), abs=1e-6)
    assert found.log10_error == 0


def test_norms_and_layers_are_those_worked_out_by_hand(run: Run) -> None:
    found = bounds(run, graph=star())
    sizes = found.sizes
    assert (sizes.input_norm, sizes.features_norm) == pytest.approx((1.5, math.sqrt(8)), rel=1e-7)
    assert sizes.weight_norms == pytest.approx((B_1, B_2), rel=1e-7)
    assert sizes.largest_activation == pytest.approx(largest_activation(), rel=1e-6)
    assert found.max_degree == 4
    assert [item.value for item in found.powers] == pytest.approx([5, 2.8, 1.84])
    assert [item.spectrum.value for item in found.layers] == pytest.approx([S_1, S_2])
    assert [item.trace.value for item in found.layers] == pytest.approx(ROOT)
    assert [10**item.log10_degree for item in found.layers] == pytest.approx([10, 10])
    assert [10**item.log10_factor for item in found.layers] == pytest.approx([1.5 * B_1 * S_1, 1.5 * B_2 * S_2])
    terms = sum(10**item.log10_term for item in found.layers)
    assert math.log10(terms) == pytest.approx(found.total().log10_printed)
    assert found.layers[-1].log10_recursion == pytest.approx(found.total().log10_recursion)


def test_the_transductive_bound_is_that_worked_out_by_hand(run: Run) -> None:
    found = bounds(run, graph=star(), delta=0.1)
    gap = found.transductive
    assert (gap.num_train, gap.num_test, gap.q, gap.p0) == (2, 2, 1.0, 0.25)
    assert (gap.s, gap.s_sampling) == pytest.approx((16 / 21, 4 / (3.5 * 0.75)))
    assert gap.c0 == pytest.approx(5.0445, abs=1e-3)
    assert gap.c0_term == pytest.approx(gap.c0 * math.sqrt(2))
    assert gap.delta_term == pytest.approx(math.sqrt(8 / 21 * math.log(10)))
    assert gap.delta_term_sampling == pytest.approx(math.sqrt(2 / (3.5 * 0.75) * math.log(10)))
    total = 10 ** found.total().log10_printed + gap.c0_term + gap.delta_term
    assert gap.log10_total == pytest.approx(math.log10(total))
    assert gap.loss_gap == run.score("test", "loss") - run.score("train", "loss")
    assert gap.error_gap == (1 - run.test_acc) - (1 - run.score("train"))


SIZES = Sizes((0.1,) * 64, tuple(1 + i / 10 for i in range(64)), 30.0, 52.0, 7.0, 2708, 140, 1000)


def corollary(sizes: Sizes, absolute_sum: Decimal) -> Decimal:
    """Corollary 1 as printed but for the second sum's range, in decimals that do not overflow."""
    depth, alpha = len(sizes.alphas), Decimal(sizes.alphas[0])
    norms = [Decimal(value) for value in sizes.weight_norms]
    m, u = Decimal(sizes.num_train), Decimal(sizes.num_test)

    def product(factors: int) -> Decimal:
        return math.prod((norms[depth - 1 - j] * absolute_sum for j in range(factors)), start=Decimal(1))

    first = sum((2**n * (1 - alpha) ** n * product(n) for n in range(1, depth + 1)), Decimal(0))
    second = sum(((1 - alpha) ** (n + 1) * 2**n * product(n + 1) for n in range(depth)), Decimal(0))
    head = (2 * m * u).sqrt() / (m + u) * Decimal(sizes.input_norm) * alpha * Decimal(sizes.features_norm)
    d = Decimal(sizes.num_nodes).sqrt() * Decimal(sizes.largest_activation)
    return (1 / m + 1 / u) * (head * first + second * d)


@pytest.mark.parametrize("absolute_sum", [1e-12, 1032.17, 5e8])
def test_64_layers_are_those_of_corollary_1_without_overflow(absolute_sum: float) -> None:
    found = np.logaddexp.reduce(log_terms(SIZES, [math.log(absolute_sum)] * 64)) / math.log(10)
    expected = float(corollary(SIZES, Decimal(absolute_sum)).log10())
    assert found == pytest.approx(expected, rel=1e-12)
    assert math.isfinite(log_recursion(SIZES, [math.log(absolute_sum)] * 64)[-1])


def test_one_hot_coefficients_give_corollary_1() -> None:
    graph, split = star(), SPLIT
    options: dict[str, Any] = {"num_layers": 3, "num_coeffs": 4, "projection": "fixed", "max_epochs": 1}
    found = bounds(adagpr.fit(graph, split, fixed_coeffs=[0.0, 1.0, 0.0, 0.0], **options), graph=graph)
    for form in ("spectrum", "trace", "degree"):
        own, gcnii = found.total("run", form), found.total("gcnii", form)
        assert own.log10_printed == pytest.approx(gcnii.log10_printed, rel=1e-12)
    assert found.total().log10_printed == pytest.approx(float(corollary(found.sizes, Decimal("2.8")).log10()), rel=1e-9)


def test_a_run_of_64_layers_has_finite_bounds() -> None:
    graph, splits = adagpr.load("csbm", num_nodes=80)
    found = bounds(adagpr.fit(graph, splits[0], num_layers=64, hidden_channels=8, num_coeffs=16, max_epochs=1))
    numbers = [value for item in found.totals for value in (item.log10_printed, item.log10_recursion)]
    assert all(math.isfinite(value) for value in numbers)
    assert found.total("residual").log10_printed > found.total("run").log10_printed
    assert found.total("run", "trace").log10_printed < found.total("run").log10_printed
    assert len(json.dumps(found.to_plain(), allow_nan=False)) > 1000


def test_alpha_at_its_ends_leaves_one_of_the_two_parts() -> None:
    # q = 1, r0 = 2 * sqrt(1/2) * 3 * sqrt(2) = 6, D = 2 * 5 = 10, B = 7, s = 11
    sizes = Sizes((0.0,), (7.0,), 3.0, math.sqrt(2), 5.0, 4, 2, 2)
    assert log_terms(sizes, [math.log(11)]).tolist() == pytest.approx([math.log(7 * 11 * 10)])
    assert log_recursion(sizes, [math.log(11)]).tolist() == pytest.approx([math.log(2 * 7 * 11 * (6 + 10))])
    only_first = replace(sizes, alphas=(1.0,))
    assert log_terms(only_first, [math.log(11)]).tolist() == [-math.inf]
    assert log_recursion(only_first, [math.log(11)]).tolist() == pytest.approx([math.log(7 * 6)])


def test_alphas_of_their_own_enter_where_their_layer_does() -> None:
    sizes = Sizes((0.2, 0.4), (3.0, 5.0), 1.0, 1.0, 1.0, 4, 2, 2)
    low, high = np.exp(log_terms(sizes, [math.log(7.0), math.log(11.0)]))
    above = 0.6 * 5 * 11
    assert high == pytest.approx(above * (2 * 0.4 * math.sqrt(0.5) + 2))
    assert low == pytest.approx(0.8 * 3 * 7 * above * (4 * 0.2 * math.sqrt(0.5) + 2 * 2))


def test_an_estimate_is_within_its_error_of_the_exact_bound() -> None:
    graph, splits = adagpr.load("csbm", num_nodes=400)
    done = adagpr.fit(graph, splits[0], num_layers=4, max_epochs=1)
    exact, near = bounds(done), bounds(done, max_exact=100, num_probes=40, seed=3)
    assert (exact.is_exact, near.is_exact) == (True, False)
    for one, other in zip(exact.totals, near.totals, strict=True):
        assert abs(one.log10_printed - other.log10_printed) <= 3 * other.log10_error + 1e-9
    assert 0 < near.total().log10_error < 0.2
    assert any("40 random probes" in item for item in near.remarks)
    assert bounds(done, max_exact=100, num_probes=40, seed=3) == near


def test_a_directed_run_takes_the_symmetrised_spectrum_and_says_so(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    split = Split(torch.arange(10), torch.arange(10, 20), torch.arange(20, 30))
    options: dict[str, Any] = {"num_layers": 1, "max_epochs": 1}
    directed = bounds(adagpr.fit(graph, split, **options), graph=graph)
    both_ways = bounds(adagpr.fit(graph, split, direction="symmetric", **options), graph=graph)
    assert [item.startswith("Directed: ") for item in directed.assumptions].count(True) == 1
    assert not any(item.startswith("Directed: ") for item in both_ways.assumptions)
    assert directed.powers == both_ways.powers
    both = (graph.adj + graph.adj.T).toarray() > 0
    np.fill_diagonal(both, False)
    assert directed.max_degree == both.sum(1).max()


def test_a_neighbour_is_another_node_in_either_direction() -> None:
    graph = from_scipy(sp.csr_array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), np.eye(3), [0, 1, 0])
    assert graph.num_neighbours.tolist() == [2, 1, 1]


def test_what_a_run_breaks_is_said(run: Run) -> None:
    broken = bounds(run, graph=star()).assumptions
    topics = [sentence.split(":")[0] for sentence in broken]
    assert topics == ["Output map", "Biases", "Classes", "Activation", "Norms", "Nodes"]
    assert "1 of 5 are in neither" in broken[-1]


def test_coefficients_off_the_simplex_and_alphas_of_their_own_are_said() -> None:
    options: dict[str, Any] = {"num_coeffs": 2, "projection": "fixed", "fixed_coeffs": [1.0, -0.5], "max_epochs": 1}
    found = bounds(adagpr.fit(star(), SPLIT, num_layers=2, alpha=[0.1, 0.2], **options), graph=star())
    topics = [sentence.split(":")[0] for sentence in found.assumptions]
    assert topics[-2:] == ["Alpha", "Coefficients"]
    assert found.layers[0].spectrum.value == pytest.approx(5 + 0.5 * 2.8)
    assert found.layers[0].trace.value == pytest.approx(math.sqrt(0.25 + 3 * 0.75**2 + 1.15**2))


def test_a_run_in_a_folder_finds_its_graph_whatever_the_split(tmp_path: Path) -> None:
    graph, _ = adagpr.load("csbm", num_nodes=60, seed=5)
    split = Split(torch.arange(0, 20), torch.arange(20, 40), torch.arange(40, 60), name="my own")
    done = adagpr.fit(graph, split, num_layers=2, max_epochs=1, out=tmp_path / "run")
    assert bounds(tmp_path / "run") == bounds(done, graph=graph)


def test_mistakes_are_said(run: Run) -> None:
    with pytest.raises(InputError, match="The run's data cannot be loaded again, so give them"):
        bounds(run)
    with pytest.raises(InputError, match="This is not the graph of the run"):
        bounds(run, graph=adagpr.load("csbm", num_nodes=60)[0])
    with pytest.raises(InputError, match="delta must be between 0 and 1, got 1"):
        bounds(run, graph=star(), delta=1.0)
    with pytest.raises(InputError, match="AdaGPR and GCNII with one weight map per layer, not 'mlp'"):
        bounds(adagpr.fit(star(), SPLIT, "mlp", max_epochs=1))
    with pytest.raises(InputError, match="not one with several operators or weight maps"):
        bounds(adagpr.fit(star(), SPLIT, "gcnii", weight_maps="separate", max_epochs=1))
