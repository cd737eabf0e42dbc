"""``adagpr explain``, ``bounds`` and ``compare``: what a run does, what theory says of it, which of two is better."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import adagpr
from adagpr.cli.console import hops_that_fit, pluralize, show, show_json, show_result, show_section, table, two_lines
from adagpr.cli.options import AsJson, DataRoot, RunFiles, TrainedRun

if TYPE_CHECKING:
    from rich.text import Text

    from adagpr.insight import Bounds, Explanation, NodeExplanation
    from adagpr.ops import Estimate

_ROOM: Any = {"taken": 26, "each": 8, "rest": "what --json prints"}
_MODELS = {"run": "this run", "gcnii": "GCNII (hop 1)", "residual": "residual network (hop 0)"}
_FORMS = {"spectrum": "sum of |lambda|^k", "trace": "root of Tr[A(mu)^2]", "degree": "d^(k/2)"}


def explain(
    run: TrainedRun,
    node: Annotated[str | None, Option(metavar="ID", help="Also explain the prediction of this node.")] = None,
    out: Annotated[Path | None, Option(help="Also write the tables into this folder, as Parquet files.")] = None,
    dataset: RunFiles = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Explain a run: which hops it uses, what the graph is worth, and why a node got its class.

    For example: adagpr explain runs/texas-adagpr-0123 --node 17
    """
    found = adagpr.explain(run, node=node, dataset=dataset, data_root=data_root)
    if out is not None:
        found.save(out)
    if as_json:
        show_json(found.to_plain())
        return
    show(f"{found.dataset}, split {found.split}: {found.model} with {len(found.layers)} layers", "")
    _show_coefficients(found)
    _show_depth(found)
    if found.val_acc is not None:
        _show_worth(found, found.val_acc)
    if found.node is not None:
        _show_node(found.node)
    show(*found.remarks)


def _show_coefficients(found: Explanation) -> None:
    hops, caption = hops_that_fit(found.hop_names, **_ROOM)
    digits = "+.3f" if found.signed else ".3f"
    rows = []
    for part in found.layers:
        weights = ["0" if value == 0 else f"{value:{digits}}" for value in part.coefficients[: len(hops)]]
        rows.append((str(part.layer), *weights, f"{part.mean_hop:.2f}", str(part.max_hop)))
    headings: list[str | Text] = ["layer", *hops, "mean hop", "farthest"]
    drawn = table(headings, rows, caption=caption)
    show_section("How much of each hop each layer uses", drawn, *_reach_sentences(found))


def _reach_sentences(found: Explanation) -> list[str]:
    without = [str(part.layer) for part in found.layers if not part.uses_graph]
    reach = found.reach
    if len(without) == len(found.layers):
        return ["No layer uses the graph: a prediction reads nothing but its own node."]
    who = "every node" if reach.num_sampled == reach.num_nodes else f"{reach.num_sampled} sampled nodes"
    first = "Every layer uses the graph."
    if without:
        first = f"Layers {', '.join(without)} use no graph." if without[1:] else f"Layer {without[0]} uses no graph."
    return [
        first,
        f"Within the {pluralize(reach.total_hops, 'hop')} of all layers together a prediction reads "
        f"{reach.mean_nodes:.1f} of {reach.num_nodes} nodes on average, {reach.max_nodes} at most (over {who}).",
    ]


def _show_depth(found: Explanation) -> None:
    places = [found.lambdas.index(value) for value in (-1.0, 0.0, 1.0)]
    columns = [two_lines(f"at {value} {way}".strip()) for way in found.directions for value in (-1, 0, 1)]
    rows = []
    for after, part in zip(found.smoothing, [None, *found.layers], strict=True):
        filters = [] if part is None else found.filters(part).values()
        cells = [f"{response[place]:.2f}" for response in filters for place in places] or [""] * len(columns)
        distance = "" if after.cosine_distance is None else f"{after.cosine_distance:.3f}"
        energies = (f"{after.dirichlet_energy:.3g}", f"{after.relative_energy:.3f}")
        rows.append((str(after.layer), *cells, *energies, distance))
    if found.network_response is not None:
        rows.append(("network", *(f"{found.network_response[place]:.2f}" for place in places), "", "", ""))
    show_section(
        "What each layer does to the graph's spectrum, and how alike nodes are after it",
        table(("layer", *columns, "energy", "relative", "cosine distance"), rows),
        "A response is what is left of a signal: at 1 of one that neighbours share, at -1 of one in which they "
        "differ. Small energy and cosine distance mean that nodes look alike; layer 0 is the input map.",
    )


def _show_worth(found: Explanation, val_acc: float) -> None:
    rows = [("as trained", _percent(val_acc), "", "", "")]
    for item in found.ablations:
        counts = (str(item.right_only_with), str(item.right_only_without))
        rows.append((item.name, _percent(item.accuracy), f"{item.difference:+.1f}", *counts))
    idle = [
        item.name.removeprefix("without ")
        for item in found.ablations
        if item.name.startswith("without hop") and item.max_change == 0
    ]
    without = "sets every hop beyond 0 to 0 and keeps hop 0 and own maps" if found.signed else "puts a 1 at hop 0"
    show_section(
        f"What the graph is worth on {found.num_val} validation nodes",
        table(("", "accuracy", "worth", "right only with", "right only without"), rows),
        "The trained weights are kept and only coefficients are changed, in every layer and without rescaling the "
        f"others; 'without the graph' {without}. A network trained without it may do better: adagpr "
        "train --without-graph.",
        *([f"Taking out {', '.join(idle)} changes no bit of any prediction."] if idle else []),
    )
    for by, heading in (("degree", "neighbours"), ("homophily", "of its class")):
        groups = [
            (group.name, str(group.num_nodes), _percent(group.accuracy), _percent(group.accuracy_without_graph))
            for group in found.groups
            if group.by == by
        ]
        show_section(f"Accuracy by {by}", table((heading, "nodes", "accuracy", "without graph"), groups))


def _show_node(node: NodeExplanation) -> None:
    from adagpr.insight import MOST_HOPS

    known = "its class is unknown" if node.label is None else f"its class is {node.label}"
    show(
        f"Node {node.node} is predicted as {node.prediction} with probability {node.probability:.3f} ({known}); the "
        f"logit {node.logit:+.4f} is the sum of each of the next two lists.",
        "",
    )
    biases = [("bias of the output map", f"{node.bias_out:+.4f}"), ("bias of the input map", f"{node.bias_in:+.4f}")]
    # Only layers of some models have shifts and own maps.
    has_shifts, has_own = (
        any(part) for part in zip(*((flow.shift, flow.own_map) for flow in node.layers), strict=True)
    )
    if has_shifts:
        biases.append(("shifts of the layers", f"{node.bias_layers:+.4f}"))
    paths = [pluralize(hop, "hop") for hop in range(len(node.by_hops))]
    if len(paths) == MOST_HOPS + 1:
        paths[-1] = f"{MOST_HOPS} or more hops"
    by_hops = [(name, f"{value:+.4f}") for name, value in zip(paths, node.by_hops, strict=True)]
    show_section("By hops in all", table(("paths", "part"), [*biases, *by_hops]))
    sources = [(name, "", part) for name, part in biases]
    sources.append(("this node itself", "0", f"{node.own:+.4f}"))
    sources += [(item.node, str(item.distance), f"{item.contribution:+.4f}") for item in node.sources]
    if rest := node.num_sources - len(node.sources):
        sources.append((f"{rest} others", "", f"{node.others:+.4f}"))
    show_section("By whose features", table(("node", "hops away", "part"), sources))
    hops, caption = hops_that_fit(node.hop_names, **_ROOM)
    # What comes from the layer before, and what is added at this layer.
    ends = [("own map", has_own), ("from h0", not has_shifts), ("shift", has_shifts)]
    rows = []
    for flow in node.layers:
        kept = zip((flow.own_map, flow.from_h0, flow.shift), ends, strict=True)
        values = (*flow.hops[: len(hops)], *(value for value, (_, is_shown) in kept if is_shown))
        rows.append((str(flow.layer), *(f"{value:+.3f}" for value in values)))
    headings: list[str | Text] = ["layer", *hops, *(name for name, is_shown in ends if is_shown)]
    added = "shift" if has_shifts else "from h0"
    show_section(
        "By layer and hop",
        table(headings, rows, caption=caption),
        f"A row, the '{added}' of the rows below it and the bias of the output map add up to the logit.",
    )


def bounds(
    run: TrainedRun,
    delta: Annotated[float, Option(help="The bound holds with probability 1 - delta.")] = 0.05,
    dataset: RunFiles = None,
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
    estimation: Any = {"max_exact": max_exact, "num_probes": num_probes, "num_steps": num_steps, "seed": seed}
    found = adagpr.bounds(run, dataset=dataset, delta=delta, data_root=data_root, **estimation)
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
    show_result(
        as_json,
        found.to_plain(),
        f"{found.dataset}, {found.model}: bounds of the Rademacher complexity, in log10",
        "",
        table(("layer", "spectrum", "trace", "degree", "B", "factor", "term", "recursion"), layers),
        "",
        table(("coefficients", "term", "Theorem 1", "recursion"), totals),
        "",
        *(*_bound_sentences(found), *found.remarks),
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


def _bound_sentences(found: Bounds) -> list[str]:
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


def compare(
    runs_a: Annotated[
        Path,
        Argument(metavar="RUNS_A", help="Model A: folder of a run or of several runs, or a file of results/catalogue."),
    ],
    runs_b: Annotated[Path, Argument(metavar="RUNS_B", help="Model B: the same.")],
    measure: Annotated[
        str, Option(help="On which nodes: test, or val to choose a model; test_acc and val_acc are accuracy.")
    ] = "test",
    metric: Annotated[
        str | None, Option(help="By which score, such as accuracy or roc_auc. Default: that of the runs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two models split by split: the mean difference, its interval, and an exact test.

    For example: adagpr compare runs/gcn runs/adagpr
    """
    found = adagpr.compare(runs_a, runs_b, measure, metric)
    seeds = [[] if pair.seed is None else [str(pair.seed)] for pair in found.pairs]
    means = [(pair.split, pair.a, pair.b, pair.difference) for pair in found.pairs]
    means.append(("mean", found.mean_a, found.mean_b, found.mean_difference))
    rows = [
        (name, *seed, f"{a:.2f} %", f"{b:.2f} %", f"{difference:+.2f}")
        for (name, a, b, difference), seed in zip(means, [*seeds, [""] * len(seeds[0])], strict=True)
    ]
    headings = ("split", *(["seed"] if seeds[0] else []), "A", "B", "A - B")
    show_result(as_json, found.to_plain(), found.heading, "", table(headings, rows), "", *found.sentences)


def _percent(value: float) -> str:
    return f"{value:.1f} %"
