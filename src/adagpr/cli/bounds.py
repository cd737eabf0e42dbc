"""``adagpr bounds``: the paper's generalisation bounds for a trained run, and what they assume that it breaks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from typer import Option

import adagpr
from adagpr.cli.console import show, show_json, table
from adagpr.cli.options import AsJson, DataRoot, MovedFile, TrainedRun

if TYPE_CHECKING:
    from adagpr.insight import Bounds
    from adagpr.ops import Estimate

_MODELS = {"run": "this run", "gcnii": "GCNII (hop 1)", "residual": "residual network (hop 0)"}
_FORMS = {"spectrum": "sum of |lambda|^k", "trace": "root of Tr[A(mu)^2]", "degree": "d^(k/2)"}


def bounds(
    run: TrainedRun,
    delta: Annotated[float, Option(help="The bound holds with probability 1 - delta.")] = 0.05,
    dataset: MovedFile = None,
    num_probes: Annotated[int, Option(help="Number of random vectors, if the spectrum is estimated.")] = 16,
    num_steps: Annotated[int, Option(help="Lanczos steps per random vector.")] = 64,
    max_exact: Annotated[int, Option(help="Largest number of nodes for which the spectrum is exact.")] = 5_000,
    seed: Annotated[int, Option(min=0, help="Seed of the random vectors.")] = 0,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate Theorem 1 and Corollary 1 of the paper at a run's weights and coefficients.

    For example: adagpr bounds runs/cora-adagpr
    """
    found = adagpr.bounds(
        run,
        dataset=dataset,
        delta=delta,
        max_exact=max_exact,
        num_probes=num_probes,
        num_steps=num_steps,
        seed=seed,
        data_root=data_root,
    )
    if as_json:
        show_json(found.to_plain())
        return
    layers = [
        (
            *(str(item.layer), _estimate(item.spectrum), _estimate(item.trace), _log10(item.log10_degree)),
            *(f"{item.weight_norm:.4g}", *map(_log10, (item.log10_factor, item.log10_term, item.log10_recursion))),
        )
        for item in found.layers
    ]
    totals = []
    for item in found.totals:
        error = f" +- {item.log10_error:.2g}" if item.log10_error > 0 else ""
        name = _MODELS[item.model] if item.form == "spectrum" else ""
        totals.append((name, _FORMS[item.form], _log10(item.log10_printed) + error, _log10(item.log10_recursion)))
    show(
        f"{found.dataset}, {found.model}: bounds of the Rademacher complexity, in log10",
        "",
        table(("layer", "spectrum", "trace", "degree", "B", "factor", "term", "recursion"), layers),
        "",
        table(("coefficients", "term", "Theorem 1", "recursion"), totals),
        "",
        *(*_sentences(found), *found.remarks),
        "",
        "What the theory assumes and this run breaks:",
        *(f"- {text}" for text in found.assumptions),
    )


def _estimate(item: Estimate) -> str:
    if item.error <= 0:
        return f"{item.value:.5g}"
    digits = max(0, -math.floor(math.log10(item.error)))
    return f"{item.value:.{digits}f} +- {item.error:.{digits}f}"


def _log10(value: float) -> str:
    return "none" if math.isinf(value) else f"{value:.2f}"


def _sentences(found: Bounds) -> list[str]:
    gap, sizes = found.transductive, found.sizes
    says = "says nothing: a loss of at most 1 is never above it" if gap.log10_total >= 0 else "says something"
    run, gcnii = found.total("run").log10_printed, found.total("gcnii").log10_printed
    return [
        "Of a layer, spectrum is the sum of mu_k |lambda|^k, trace the root of Tr[A(mu)^2] and B the norm of its "
        "weights. In log10 are degree, the sum with d^(k/2); factor, by which the layer multiplies all that enters "
        "below it; term, what enters at the layer; and the recursion so far. The terms sum to Theorem 1.",
        f"Theorem 1 is 10^{_log10(run)} for this run and 10^{_log10(gcnii)} for GCNII on the same weights (Corollary "
        f"1); the proof's own trace form gives 10^{_log10(found.total('run', 'trace').log10_printed)}, and the term "
        f"with the maximum degree d = {found.max_degree} gives "
        f"10^{_log10(found.total('run', 'degree').log10_printed)}.",
        f"Norms: input map B = {sizes.input_norm:.4g}, features |X| = {sizes.features_norm:.4g}, largest activation "
        f"R = {sizes.largest_activation:.4g}.",
        f"With probability {1 - gap.delta:g}, test less training error is at most 10^{_log10(gap.log10_total)}: the "
        f"complexity, {gap.c0_term:.4g} for c0 and {gap.delta_term:.4g} for delta ({gap.delta_term_sampling:.4g} with "
        f"S = {gap.s_sampling:.4g}, which sampling without replacement needs). M = {gap.num_train}, "
        f"U = {gap.num_test}, Q = {gap.q:.4g}, S = {gap.s:.4g}, c0 = {gap.c0:.4g}, p0 = {gap.p0:.4g}.",
        f"Measured, it is {gap.error_gap:+.4f} in wrong predictions and {gap.loss_gap:+.4f} in cross entropy: "
        f"the bound {says}.",
    ]
