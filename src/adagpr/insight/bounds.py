r"""The paper's generalisation bounds for a trained run: Theorem 1, Corollary 1 and the transductive bound.

With :math:`s_l = \sum_i \sum_k \mu^{(l)}_k |\lambda_i|^k`, :math:`B_l` the largest column L1 norm of a layer's weights,
here of :math:`(1 - \beta_l) I + \beta_l W_l`, and :math:`D = \sqrt N R`, Theorem 1 reads

.. math::
    \mathcal R \le Q C' \Big\{ \sqrt{2 p_0} B_0 \alpha \|X\|_F \sum_{l=1}^{L} (1 - \alpha)^l 2^l
    \prod_{j=0}^{l-1} B_{L-j} s_{L-j} + D \sum_{l=0}^{L-1} (1 - \alpha)^{l+1} 2^l \prod_{j=0}^{l} B_{L-j} s_{L-j} \Big\}

It is printed with :math:`l = 1..L` in the second sum, which drops a term and asks for a layer 0 that does not exist.
Beside it stands the recursion of the proof, unrolled without loosening, with :math:`r_0 = 2 B_0 \sqrt{2 p_0} \|X\|_F`:

.. math:: r_l = 2 (1 - \alpha) B_l s_l (r_{l-1} + D) + \alpha B_l r_0, \qquad \mathcal R \le Q C' r_L

Each is computed with three terms in the place of :math:`s_l`: itself (``spectrum``), the proof's own
:math:`\sqrt{\mathrm{Tr}[A(\mu)^2]}` (``trace``), and :math:`N \sum_k \mu_k d^{k/2}` (``degree``), which the paper
argues against. Where :math:`\alpha` differs between layers, each factor and each injection takes that of its own layer.
All sums are in logarithms. :math:`C'` is unknown and hides :math:`C^L`; it is 1 here.

The transductive bound (El-Yaniv and Pechyony, 2009) then says of the test error, with probability :math:`1 - \delta`,

.. math:: \text{test} - \text{training} \le \mathcal R + c_0 Q \sqrt{\min(M, U)} + \sqrt{S Q \ln(1 / \delta) / 2}

with ``M`` training and ``U`` test nodes, :math:`Q = 1/M + 1/U` and :math:`c_0 = \sqrt{32 (1 + \ln 4) / 3}`. ``S`` is
printed near 1/2. With that the last term would be below Hoeffding's, which is sharp. The inequality behind it, for
sampling without replacement, gives :math:`S = (M + U) / ((M + U - 1/2)(1 - 1/(2 \max(M, U))))`, near 1; both are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from adagpr.data import load
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn import AdaGPR
from adagpr.ops import features, operator
from adagpr.ops.operator import normalise
from adagpr.ops.spectrum import MAX_EXACT, NUM_PROBES, NUM_STEPS, Estimate, Spectrum, spectrum
from adagpr.seeding import stream
from adagpr.training import Run, load_run

__all__ = [
    "FORMS",
    "Bounds",
    "LayerBound",
    "Sizes",
    "Total",
    "Transductive",
    "bounds",
    "log_recursion",
    "log_terms",
    "num_neighbours",
]

FORMS = ("spectrum", "trace", "degree")
C_0 = math.sqrt(32 * (1 + math.log(4)) / 3)

_LN10 = math.log(10)


@dataclass(frozen=True)
class Sizes:
    """What both formulas take of a network but its spectrum, layers first to last.

    Attributes:
        alphas: Share of the first hidden matrix in each layer.
        weight_norms: ``B`` of each layer.
        input_norm: ``B`` of the input map.
        features_norm: Frobenius norm of the features.
        largest_activation: ``R``.
        num_nodes: ``N``.
        num_train: ``M``.
        num_test: ``U``.
    """

    alphas: tuple[float, ...]
    weight_norms: tuple[float, ...]
    input_norm: float
    features_norm: float
    largest_activation: float
    num_nodes: int
    num_train: int
    num_test: int

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

    def log_factors(self, log_spectrum: Sequence[float]) -> np.ndarray:
        """Logarithm of ``(1 - alpha) B s`` of each layer."""
        own = [_log(1 - alpha) + _log(b) for alpha, b in zip(self.alphas, self.weight_norms, strict=True)]
        return np.array(own) + np.asarray(log_spectrum, dtype=np.float64)


@dataclass(frozen=True)
class LayerBound:
    """One layer in the bound of the run's own coefficients.

    Attributes:
        layer: Its number, counted from 1.
        coeffs: The weight of each hop.
        weight_norm: ``B``, the largest column L1 norm of ``(1 - beta) I + beta W``.
        spectrum: The spectrum term ``s``.
        trace: The proof's tighter ``sqrt(Tr[A(mu)^2])``.
        log10_degree: The term with ``d^(k/2)`` in the place of ``|lambda|^k``, in log10.
        log10_factor: ``2 (1 - alpha) B s``, by which the layer multiplies all that enters below it, in log10.
        log10_term: What enters at this layer, after all layers above: these terms sum to the printed bound.
        log10_recursion: The recursion's value after this layer, times ``Q``.
    """

    layer: int
    coeffs: tuple[float, ...]
    weight_norm: float
    spectrum: Estimate
    trace: Estimate
    log10_degree: float
    log10_factor: float
    log10_term: float
    log10_recursion: float


@dataclass(frozen=True)
class Total:
    """A bound of the Rademacher complexity.

    Attributes:
        model: ``run`` for the run's coefficients, ``gcnii`` for hop 1 everywhere (Corollary 1), ``residual`` for hop 0.
        form: One of `FORMS`.
        log10_printed: Theorem 1 as printed, its second sum over ``l = 0..L-1``.
        log10_recursion: The proof's recursion.
        log10_error: Half of what the printed one moves when all layers' terms move by their error together.
    """

    model: str
    form: str
    log10_printed: float
    log10_recursion: float
    log10_error: float


@dataclass(frozen=True)
class Transductive:
    """The bound of the difference between test and training error, and that difference as measured.

    Attributes:
        num_train: ``M``.
        num_test: ``U``.
        q: ``Q``.
        s: ``S`` as printed.
        s_sampling: ``S`` as the inequality for sampling without replacement gives it.
        c0: The constant of El-Yaniv and Pechyony.
        delta: The bound holds with probability ``1 - delta``.
        p0: Probability of each sign.
        c0_term: ``c0 Q sqrt(min(M, U))``.
        delta_term: ``sqrt(S Q / 2 ln(1 / delta))`` with the printed ``S``.
        delta_term_sampling: The same with the other one.
        log10_complexity: The complexity, by the run's printed Theorem 1.
        log10_total: All three together, as printed.
        loss_gap: Test less training cross entropy of the run.
        error_gap: Test less training share of wrong predictions.
    """

    num_train: int
    num_test: int
    q: float
    s: float
    s_sampling: float
    c0: float
    delta: float
    p0: float
    c0_term: float
    delta_term: float
    delta_term_sampling: float
    log10_complexity: float
    log10_total: float
    loss_gap: float
    error_gap: float


def log_terms(sizes: Sizes, log_spectrum: Sequence[float]) -> np.ndarray:
    """Natural logarithms of the printed theorem's terms, by the layer at which they enter; their sum is the bound.

    Args:
        sizes: Norms and counts.
        log_spectrum: Natural logarithm of each layer's spectrum term, first to last.
    """
    factors = sizes.log_factors(log_spectrum)
    products = np.cumsum(factors[::-1])[::-1]
    depths = np.arange(len(factors), 0, -1)
    log_alphas = np.array([_log(alpha) for alpha in sizes.alphas])
    injected = depths * math.log(2) + products + log_alphas + sizes.log_input
    bounded = (depths - 1) * math.log(2) + products + sizes.log_d
    result: np.ndarray = np.logaddexp(injected, bounded) + math.log(sizes.q)
    return result


def log_recursion(sizes: Sizes, log_spectrum: Sequence[float]) -> np.ndarray:
    """Natural logarithms of the proof's recursion after each layer, times ``Q``; see the module."""
    log_r0 = math.log(2) + sizes.log_input
    log_r, values = log_r0, []
    for factor, alpha, norm in zip(sizes.log_factors(log_spectrum), sizes.alphas, sizes.weight_norms, strict=True):
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


def _log_spectrum(
    form: str, coeffs: Sequence[Sequence[float]], found: Spectrum, degree: int, shift: float = 0.0
) -> list[float]:
    """Logarithm of each layer's term in one form, moved by ``shift`` of its errors."""
    if form == "degree":
        return [_log_degree(row, found.num_nodes, degree) for row in coeffs]
    pick = found.absolute_sum if form == "spectrum" else lambda row: found.squared_trace(row).sqrt()
    cache = {tuple(row): pick(row) for row in coeffs}
    terms = [cache[tuple(row)] for row in coeffs]
    return [_log(term.value + shift * term.error) for term in terms]


def _total(name: str, form: str, coeffs: list[tuple[float, ...]], sizes: Sizes, found: Spectrum, degree: int) -> Total:
    low, middle, high = (_log_spectrum(form, coeffs, found, degree, shift) for shift in (-1.0, 0.0, 1.0))
    printed = [float(np.logaddexp.reduce(log_terms(sizes, logs))) / _LN10 for logs in (low, middle, high)]
    recursion = float(log_recursion(sizes, middle)[-1]) / _LN10
    error = 0.0 if found.is_exact or form == "degree" else (printed[2] - printed[0]) / 2
    return Total(name, form, printed[1], recursion, error)


def _layers(coeffs: list[tuple[float, ...]], sizes: Sizes, found: Spectrum, degree: int) -> tuple[LayerBound, ...]:
    logs = _log_spectrum("spectrum", coeffs, found, degree)
    factors = (sizes.log_factors(logs) + math.log(2)) / _LN10
    terms, recursion = log_terms(sizes, logs) / _LN10, log_recursion(sizes, logs) / _LN10
    return tuple(
        LayerBound(
            layer=i + 1,
            coeffs=row,
            weight_norm=sizes.weight_norms[i],
            spectrum=found.absolute_sum(row),
            trace=found.squared_trace(row).sqrt(),
            log10_degree=_log_degree(row, found.num_nodes, degree) / _LN10,
            log10_factor=float(factors[i]),
            log10_term=float(terms[i]),
            log10_recursion=float(recursion[i]),
        )
        for i, row in enumerate(coeffs)
    )


def _transductive(sizes: Sizes, delta: float, log10_complexity: float, result: dict[str, Any]) -> Transductive:
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
        loss_gap=result["test_loss"] - result["train_loss"],
        error_gap=result["train_acc"] - result["test_acc"],
    )


@dataclass(frozen=True)
class Bounds:
    """The bounds of a run.

    Attributes:
        dataset: Name of the run's graph.
        model: Name of the run's model.
        sizes: Norms and counts.
        max_degree: Most neighbours of a node, itself not counted.
        is_exact: Whether the spectrum is exact, else estimated.
        powers: Sum of ``|lambda|^k`` for each hop ``k``.
        layers: The layers, first to last.
        totals: Every model in every form.
        transductive: The bound of the gap beside the gap.
        assumptions: What the theory assumes and this run breaks.
        remarks: How to read the numbers.
    """

    dataset: str
    model: str
    sizes: Sizes
    max_degree: int
    is_exact: bool
    powers: tuple[Estimate, ...]
    layers: tuple[LayerBound, ...]
    totals: tuple[Total, ...]
    transductive: Transductive
    assumptions: tuple[str, ...]
    remarks: tuple[str, ...]

    def total(self, model: str = "run", form: str = "spectrum") -> Total:
        """The bound of one model in one form."""
        for item in self.totals:
            if (item.model, item.form) == (model, form):
                return item
        raise InputError(f"bounds: there is no bound of model {model!r} in form {form!r}.")

    def to_plain(self) -> dict[str, Any]:
        """All of it as plain data; the logarithm of zero is none."""
        plain: dict[str, Any] = _without_infinity(asdict(self))
        return plain


def bounds(
    run: Run | Path | str,
    *,
    graph: Graph | None = None,
    delta: float = 0.05,
    max_exact: int = MAX_EXACT,
    num_probes: int = NUM_PROBES,
    num_steps: int = NUM_STEPS,
    seed: int = 0,
    data_root: Path | str | None = None,
) -> Bounds:
    """Evaluates the paper's generalisation bounds at the weights and coefficients of a trained run.

    Args:
        run: A run of AdaGPR or GCNII, or its folder.
        graph: The graph that it was trained on, where `adagpr.load` cannot give it again.
        delta: The transductive bound holds with probability ``1 - delta``; in (0, 1).
        max_exact: Nodes up to which all eigenvalues are computed; above, sums over them are estimated.
        num_probes: Random starts of an estimate.
        num_steps: Lanczos steps of an estimate.
        seed: Chooses the random starts.
        data_root: Folder of the data files, as for `adagpr.load`.

    Raises:
        InputError: The run is of another model, or its graph cannot be had.

    Example:
        >>> import adagpr
        >>> graph, splits = adagpr.load("csbm", num_nodes=60)
        >>> run = adagpr.fit(graph, splits[0], num_layers=2, max_epochs=5)
        >>> found = bounds(run)
        >>> found.total("run", "trace").log10_printed < found.total("run", "degree").log10_printed
        True
    """
    if not 0 < delta < 1:
        raise InputError(f"bounds: delta must be between 0 and 1, got {delta:g}.")
    run = run if isinstance(run, Run) else load_run(run)
    model = run.model
    if not isinstance(model, AdaGPR) or not model.is_plain:
        what = "one with several weight maps a layer or PairNorm" if isinstance(model, AdaGPR) else f"'{model.name}'"
        raise InputError(f"bounds: the theory is about AdaGPR and GCNII with one weight map a layer, not {what}.")
    graph = _graph_of(run, graph, data_root)
    found = spectrum(
        normalise(graph.adj, "symmetric", run.record["config"]["training"]["self_loops"]),
        max_exact=max_exact,
        num_probes=num_probes,
        num_steps=num_steps,
        generator=stream(seed, "spectrum"),
    )
    sizes = _sizes(run, model, graph)
    max_degree = int(num_neighbours(graph).max())
    coeffs = [tuple(row.detach().double().tolist()) for row in model.layer_coeffs()]
    layers = _layers(coeffs, sizes, found, max_degree)
    depth = len(coeffs)
    rivals = {"run": coeffs, "gcnii": [(0.0, 1.0)] * depth, "residual": [(1.0,)] * depth}
    totals = tuple(
        _total(name, form, rows, sizes, found, max_degree) for name, rows in rivals.items() for form in FORMS
    )
    return Bounds(
        dataset=graph.name,
        model=model.name,
        sizes=sizes,
        max_degree=max_degree,
        is_exact=found.is_exact,
        powers=tuple(found.powers(max(len(row) for row in coeffs))),
        layers=layers,
        totals=totals,
        transductive=_transductive(sizes, delta, totals[0].log10_printed, run.record["result"]),
        assumptions=tuple(_assumptions(run, model, graph, sizes, coeffs)),
        remarks=tuple(_remarks(found, num_probes, num_steps)),
    )


def num_neighbours(graph: Graph) -> np.ndarray:
    """How many nodes other than itself each node is linked with, in either direction."""
    both = sp.csr_array(graph.adj.maximum(graph.adj.T))
    counts: np.ndarray = np.diff(both.indptr) - (both.diagonal() != 0)
    return counts


def _graph_of(run: Run, graph: Graph | None, data_root: Path | str | None) -> Graph:
    """The graph that the run was trained on: the given one, or loaded again; its sum must be the recorded one."""
    data = dict(run.record["config"]["data"])
    expected = data.pop("graph_sha256")
    data.pop("split_sha256")
    graph = _loaded(data, data_root) if graph is None else graph
    if graph.fingerprint != expected:
        raise InputError(f"The run was trained on another graph than this '{graph.name}'; give its own as graph.")
    return graph


def _loaded(data: dict[str, Any], data_root: Path | str | None) -> Graph:
    split = data.pop("split")
    try:
        try:
            return load(**data, split=split, data_root=data_root)[0]
        except InputError:
            # The split may be the caller's own; the graph does not depend on it.
            return load(**data, data_root=data_root)[0]
    except InputError as error:
        raise InputError(f"The run's graph cannot be loaded again; give it as graph. ({error})") from error


def _sizes(run: Run, model: AdaGPR, graph: Graph) -> Sizes:
    norms = []
    for conv in model.layers():
        weight = conv.weight.detach().cpu().double()
        mapped = (1 - conv.beta) * torch.eye(conv.channels, dtype=torch.float64) + conv.beta * weight
        norms.append(float(mapped.abs().sum(0).max()))
    values = graph.x.data if isinstance(graph.x, sp.csr_array) else graph.x.numpy()
    return Sizes(
        alphas=tuple(conv.alpha for conv in model.layers()),
        weight_norms=tuple(norms),
        # A row of the stored weight is a column of the paper's, which stands on the other side of the features.
        input_norm=float(model.lin_in.weight.detach().double().abs().sum(1).max()),
        features_norm=float(np.linalg.norm(values.astype(np.float64).ravel())),
        largest_activation=_largest_activation(run, model, graph),
        num_nodes=graph.num_nodes,
        num_train=run.record["data"]["num_train"],
        num_test=run.record["data"]["num_test"],
    )


def _largest_activation(run: Run, model: AdaGPR, graph: Graph) -> float:
    """The largest value of any hidden matrix, with the operator that the run was trained on and dropout off."""
    training = run.record["config"]["training"]
    device = model.lin_in.weight.device
    op = operator(graph, training["direction"], training["self_loops"]).to(device)
    with torch.inference_mode():
        h = h_0 = model.lin_in(features(graph.x).to(device)).relu()
        largest = float(h_0.max())
        for conv, coeffs in zip(model.layers(), model.layer_coeffs(), strict=True):
            h = conv(h, h_0, op, coeffs).relu()
            largest = max(largest, float(h.max()))
    return largest


def _assumptions(run: Run, model: AdaGPR, graph: Graph, sizes: Sizes, coeffs: list[tuple[float, ...]]) -> list[str]:
    """What the theory assumes and this run breaks, one sentence each."""
    left_out = graph.num_nodes - sizes.num_train - sizes.num_test
    learned = any(conv.scores is not None for conv in model.layers())
    broken = [
        "Output map: the theory ends with the last layer; this network has a linear map behind it, which is not in the "
        "number.",
        "Biases: the theory has none; the input map and the output map have them, and they are not in the number.",
        f"Classes: the theory bounds one output under a loss of at most 1; this run has {graph.num_classes} classes "
        "and a cross entropy without bound.",
        f"Activation: the theory's is bounded by R; relu is not, and R = {sizes.largest_activation:.4g} is the largest "
        "activation observed on this graph.",
        f"Norms: the theory fixes B{' and the coefficients' if learned else ''} before the data are seen; here they "
        "are what training arrived at.",
    ]
    if run.record["config"]["training"]["direction"] == "directed" and not graph.is_symmetric:
        broken.append(
            "Directed: the theory needs a symmetric operator and this run's is not; the spectrum is that of the "
            "symmetrised graph, which the run was not trained on."
        )
    if left_out:
        broken.append(
            f"Nodes: the theory has every node in training or test; {left_out} of {graph.num_nodes} are in neither, "
            "and the validation nodes among them chose the epoch."
        )
    if len(set(sizes.alphas)) > 1 or not all(0 < alpha < 1 for alpha in sizes.alphas):
        broken.append("Alpha: the theory has one alpha in (0, 1); each layer's own is taken in its place.")
    if any(min(row) < 0 or abs(sum(row) - 1) > 1e-4 for row in coeffs):
        broken.append(
            "Coefficients: the theory's are not negative and sum to 1; these do not, and the spectrum term takes "
            "their absolute values."
        )
    return broken


def _remarks(found: Spectrum, num_probes: int, num_steps: int) -> list[str]:
    remarks = [
        "The constant C' is unknown and grows with depth: it is 1 here, so compare only bounds of equal depth.",
        "The second sum of Theorem 1 runs over l = 0..L-1; printed 1..L drops a term and asks for a layer 0.",
    ]
    if not found.is_exact:
        remarks.append(
            f"The spectrum is estimated from {num_probes} random probes of {num_steps} Lanczos steps; errors are one "
            "standard error and the effect of halving the steps, added."
        )
    return remarks


def _without_infinity(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_infinity(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_infinity(value) for value in content]
    return None if isinstance(content, float) and math.isinf(content) else content
