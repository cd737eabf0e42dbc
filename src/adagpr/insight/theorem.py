r"""The formulas of the paper's theory: Theorem 1, Corollary 1 and the transductive bound.

With :math:`s_l = \sum_i \sum_k \mu^{(l)}_k |\lambda_i|^k`, :math:`B_l` the largest column L1 norm of a layer's weights,
here of :math:`(1 - \beta_l) I + \beta_l W_l`, and :math:`D = \sqrt N R`, Theorem 1 reads

.. math::
    \mathcal R \le Q C' \Big\{ \sqrt{2 p_0} B_0 \alpha \|X\|_F \sum_{l=1}^{L} (1 - \alpha)^l 2^l
    \prod_{j=0}^{l-1} B_{L-j} s_{L-j} + D \sum_{l=0}^{L-1} (1 - \alpha)^{l+1} 2^l \prod_{j=0}^{l} B_{L-j} s_{L-j} \Big\}

It is printed with :math:`l = 1..L` in the second sum, which drops a term and asks for a layer 0 that does not exist.
Beside it is the recursion of the proof, unrolled without loosening, with :math:`r_0 = 2 B_0 \sqrt{2 p_0} \|X\|_F`:

.. math:: r_l = 2 (1 - \alpha) B_l s_l (r_{l-1} + D) + \alpha B_l r_0, \qquad \mathcal R \le Q C' r_L

Each is computed with three terms in the place of :math:`s_l`: itself (``spectrum``), the proof's own
:math:`\sqrt{\mathrm{Tr}[A(\mu)^2]}` (``trace``), and :math:`N \sum_k \mu_k d^{k/2}` (``degree``), which the paper
argues against. Where :math:`\alpha` differs between layers, each factor and each injection takes that of its own layer.
All sums are in logarithms. :math:`C'` is unknown and hides :math:`C^L`; it is 1 here.

A layer with an own map :math:`E` adds :math:`H E`, which is a layer at hop 0 of coefficient 1. The complexity of a sum
is at most the sum of complexities, so that :math:`B_l s_l + \|E_l\| s_I` takes the place of :math:`B_l s_l`, with
:math:`s_I` the term of hop 0 in the same form: :math:`N`, or :math:`\sqrt N` for ``trace``.

The transductive bound (El-Yaniv and Pechyony, 2009) then says of the test error, with probability :math:`1 - \delta`,

.. math:: \text{test} - \text{training} \le \mathcal R + c_0 Q \sqrt{\min(M, U)} + \sqrt{S Q \ln(1 / \delta) / 2}

with ``M`` training and ``U`` test nodes, :math:`Q = 1/M + 1/U` and :math:`c_0 = \sqrt{32 (1 + \ln 4) / 3}`. ``S`` is
printed near 1/2. With that the last term would be below Hoeffding's, which is sharp. The inequality behind it, for
sampling without replacement, gives :math:`S = (M + U) / ((M + U - 1/2)(1 - 1/(2 \max(M, U))))`, near 1; both are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adagpr.ops import Estimate, Spectrum

FORMS = ("spectrum", "trace", "degree")
C_0 = math.sqrt(32 * (1 + math.log(4)) / 3)

_LN10 = math.log(10)

Coefficients = list[tuple[float, ...]]  # layer by layer, hop by hop


@dataclass(frozen=True)
class Sizes:
    """What both formulas take of a network but its spectrum, layers first to last."""

    alphas: tuple[float, ...]
    weight_norms: tuple[float, ...]  # B of each layer
    input_norm: float  # B_0
    features_norm: float  # Frobenius norm of X
    largest_activation: float  # R
    num_nodes: int  # N
    num_train: int  # M
    num_test: int  # U
    own_norms: tuple[float, ...] = ()  # the same norm of each layer's own map; none without such maps

    @property
    def q(self) -> float:
        """``Q``."""
        return 1 / self.num_train + 1 / self.num_test

    @property
    def p0(self) -> float:
        """``p0``, the chance of each sign in the transductive Rademacher complexity."""
        return self.num_train * self.num_test / (self.num_train + self.num_test) ** 2

    @property
    def log_input(self) -> float:
        """Logarithm of ``sqrt(2 p0) B0 |X|``."""
        return 0.5 * math.log(2 * self.p0) + _log(self.input_norm) + _log(self.features_norm)

    @property
    def log_d(self) -> float:
        """Logarithm of ``D``."""
        return 0.5 * math.log(self.num_nodes) + _log(self.largest_activation)

    def log_factors(self, log_spectrum: Sequence[float], log_hop_0: float = -math.inf) -> np.ndarray:
        """Logarithm of ``(1 - alpha) B s`` of each layer, with its own map; ``log_hop_0`` is the term of hop 0."""
        scales = [_log(1 - alpha) + _log(b) for alpha, b in zip(self.alphas, self.weight_norms, strict=True)]
        factors = np.array(scales) + np.asarray(log_spectrum, dtype=np.float64)
        if not self.own_norms:
            return factors
        own = np.array([_log(norm) for norm in self.own_norms]) + log_hop_0
        return np.asarray(np.logaddexp(factors, own))


@dataclass(frozen=True)
class LayerBound:
    """One layer in the bound of the run's own coefficients."""

    layer: int
    coeffs: tuple[float, ...]
    weight_norm: float  # B, the largest column L1 norm of (1 - beta) I + beta W
    spectrum: Estimate  # the spectrum term s
    trace: Estimate  # the proof's tighter sqrt(Tr[A(mu)^2])
    log10_degree: float  # the term with d^(k/2) in the place of |lambda|^k
    log10_factor: float  # 2 (1 - alpha) B s, with its own map, by which it multiplies all that enters below it
    log10_term: float  # what enters at this layer, after all layers above: these terms sum to the printed bound
    log10_recursion: float  # the recursion's value after this layer, times Q


@dataclass(frozen=True)
class Total:
    """A bound of the Rademacher complexity."""

    model: str  # "run" for the run's coefficients, "gcnii" for hop 1 everywhere (Corollary 1), "residual" for hop 0
    form: str  # one of `FORMS`
    log10_printed: float  # Theorem 1 as printed, its second sum over l = 0..L-1
    log10_recursion: float  # the proof's recursion
    log10_error: float  # half of what the printed one moves when all layers' terms move by their error together


@dataclass(frozen=True)
class Transductive:
    """The bound of the difference between test and training error, and that difference as measured."""

    num_train: int
    num_test: int
    q: float
    s: float  # S as printed
    s_sampling: float  # S as the inequality for sampling without replacement gives it
    c0: float
    delta: float  # the bound holds with probability 1 - delta
    p0: float  # probability of each sign
    c0_term: float  # c0 Q sqrt(min(M, U))
    delta_term: float  # sqrt(S Q / 2 ln(1 / delta)) with the printed S
    delta_term_sampling: float  # the same with the other S
    log10_complexity: float  # by the run's printed Theorem 1
    log10_total: float  # all three together, as printed
    loss_gap: float  # test less training cross entropy of the run
    error_gap: float  # test less training share of wrong predictions


def log_terms(sizes: Sizes, log_spectrum: Sequence[float], log_hop_0: float = -math.inf) -> np.ndarray:
    """Natural logarithms of the printed theorem's terms, by the layer at which they enter; their sum is the bound."""
    factors = sizes.log_factors(log_spectrum, log_hop_0)
    products = np.cumsum(factors[::-1])[::-1]
    depths = np.arange(len(factors), 0, -1)
    log_alphas = np.array([_log(alpha) for alpha in sizes.alphas])
    injected = depths * math.log(2) + products + log_alphas + sizes.log_input
    bounded = (depths - 1) * math.log(2) + products + sizes.log_d
    return np.asarray(np.logaddexp(injected, bounded) + math.log(sizes.q))


def log_recursion(sizes: Sizes, log_spectrum: Sequence[float], log_hop_0: float = -math.inf) -> np.ndarray:
    """Natural logarithms of the proof's recursion after each layer, times ``Q``; see the module."""
    log_r0 = math.log(2) + sizes.log_input
    log_r, values = log_r0, []
    factors = sizes.log_factors(log_spectrum, log_hop_0)
    for factor, alpha, norm in zip(factors, sizes.alphas, sizes.weight_norms, strict=True):
        grown = math.log(2) + factor + np.logaddexp(log_r, sizes.log_d)
        log_r = float(np.logaddexp(grown, _log(alpha) + _log(norm) + log_r0))
        values.append(log_r)
    return np.array(values) + math.log(sizes.q)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _log_degree(coeffs: Sequence[float], num_nodes: int, degree: int) -> float:
    """Logarithm of ``N sum_k |mu_k| d^(k/2)``."""
    hops = [_log(abs(mu)) + (0.5 * k * _log(degree) if k else 0.0) for k, mu in enumerate(coeffs)]
    return math.log(num_nodes) + float(np.logaddexp.reduce(hops))


def _log_spectrum(form: str, coeffs: Coefficients, found: Spectrum, degree: int, shift: float = 0.0) -> list[float]:
    """Logarithm of each layer's term in one form, moved by ``shift`` of its errors."""
    if form == "degree":
        return [_log_degree(row, found.num_nodes, degree) for row in coeffs]
    pick = found.absolute_sum if form == "spectrum" else lambda row: found.squared_trace(row).sqrt()
    terms = {row: pick(row) for row in coeffs}
    return [_log(terms[row].value + shift * terms[row].error) for row in coeffs]


def all_totals(coeffs: Coefficients, sizes: Sizes, found: Spectrum, degree: int) -> tuple[Total, ...]:
    """The bounds of the run, of GCNII and of a network without a graph, each in every form."""
    depth = len(coeffs)
    models: dict[str, Coefficients] = {"run": coeffs, "gcnii": [(0.0, 1.0)] * depth, "residual": [(1.0,)] * depth}
    return tuple(_total(name, form, rows, sizes, found, degree) for name, rows in models.items() for form in FORMS)


def _total(name: str, form: str, coeffs: Coefficients, sizes: Sizes, found: Spectrum, degree: int) -> Total:
    """The whole of Theorem 1 for one model in one form, printed and by recursion; ``degree`` is the largest."""
    low, middle, high = (_log_spectrum(form, coeffs, found, degree, shift) for shift in (-1.0, 0.0, 1.0))
    (hop_0,) = _log_spectrum(form, [(1.0,)], found, degree)
    printed = [float(np.logaddexp.reduce(log_terms(sizes, logs, hop_0))) / _LN10 for logs in (low, middle, high)]
    recursion = float(log_recursion(sizes, middle, hop_0)[-1]) / _LN10
    error = 0.0 if found.is_exact or form == "degree" else (printed[2] - printed[0]) / 2
    return Total(name, form, printed[1], recursion, error)


def layer_bounds(coeffs: Coefficients, sizes: Sizes, found: Spectrum, degree: int) -> tuple[LayerBound, ...]:
    """What each layer contributes to the run's own bound."""
    logs = _log_spectrum("spectrum", coeffs, found, degree)
    (hop_0,) = _log_spectrum("spectrum", [(1.0,)], found, degree)
    taken = sizes, logs, hop_0
    natural = sizes.log_factors(logs, hop_0) + math.log(2), log_terms(*taken), log_recursion(*taken)
    factors, terms, recursion = ((logarithms / _LN10).tolist() for logarithms in natural)
    return tuple(
        LayerBound(
            layer=i + 1,
            coeffs=row,
            weight_norm=sizes.weight_norms[i],
            spectrum=found.absolute_sum(row),
            trace=found.squared_trace(row).sqrt(),
            log10_degree=_log_degree(row, found.num_nodes, degree) / _LN10,
            log10_factor=factors[i],
            log10_term=terms[i],
            log10_recursion=recursion[i],
        )
        for i, row in enumerate(coeffs)
    )


def transductive_of(
    sizes: Sizes, delta: float, log10_complexity: float, scores: dict[str, dict[str, float]]
) -> Transductive:
    """The transductive bound beside the gap between the run's ``scores``, which are by split and name."""
    m, u = sizes.num_train, sizes.num_test
    fewer = min(m, u)
    s = 2 * (m + u) * fewer / ((2 * (m + u) - 1) * (2 * fewer - 1))
    s_sampling = (m + u) / ((m + u - 0.5) * (1 - 0.5 / max(m, u)))
    c0_term = C_0 * sizes.q * math.sqrt(fewer)
    delta_term, delta_term_sampling = (
        math.sqrt(value * sizes.q / 2 * math.log(1 / delta)) for value in (s, s_sampling)
    )
    total = float(np.logaddexp(log10_complexity * _LN10, math.log(c0_term + delta_term))) / _LN10
    return Transductive(
        num_train=m,
        num_test=u,
        q=sizes.q,
        s=s,
        s_sampling=s_sampling,
        c0=C_0,
        delta=delta,
        p0=sizes.p0,
        c0_term=c0_term,
        delta_term=delta_term,
        delta_term_sampling=delta_term_sampling,
        log10_complexity=log10_complexity,
        log10_total=total,
        loss_gap=scores["test"]["loss"] - scores["train"]["loss"],
        error_gap=scores["train"]["accuracy"] - scores["test"]["accuracy"],
    )
