"""``adagpr explain``: what a trained network does with its graph, and where one node's prediction comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

import adagpr
from adagpr.cli.console import hops_that_fit, pluralize, show, show_json, show_section, table
from adagpr.cli.options import AsJson, DataRoot, MovedFile, TrainedRun

if TYPE_CHECKING:
    from adagpr.insight import Explanation, NodeExplanation

_ROOM: Any = {"taken": 26, "each": 8, "rest": "what --json prints"}


def explain(
    run: TrainedRun,
    node: Annotated[str | None, Option(metavar="ID", help="Also explain the prediction of this node.")] = None,
    out: Annotated[Path | None, Option(help="Also write the tables into this folder, as Parquet files.")] = None,
    dataset: MovedFile = None,
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


def _percent(value: float) -> str:
    return f"{value:.1f} %"


def _show_coefficients(found: Explanation) -> None:
    shown, caption = hops_that_fit(len(found.layers[0].coefficients), **_ROOM)
    rows = []
    for part in found.layers:
        weights = ["0" if value == 0 else f"{value:.3f}" for value in part.coefficients[:shown]]
        rows.append((str(part.layer), *weights, f"{part.mean_hop:.2f}", str(part.max_hop)))
    headings = ("layer", *(f"hop {hop}" for hop in range(shown)), "mean hop", "farthest")
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
    rows = []
    for after, response in zip(found.smoothing, [None, *(part.response for part in found.layers)], strict=True):
        cells = ["" if response is None else f"{response[place]:.2f}" for place in places]
        distance = "" if after.cosine_distance is None else f"{after.cosine_distance:.3f}"
        energies = (f"{after.dirichlet_energy:.3g}", f"{after.relative_energy:.3f}")
        rows.append((str(after.layer), *cells, *energies, distance))
    if found.network_response is not None:
        rows.append(("network", *(f"{found.network_response[place]:.2f}" for place in places), "", "", ""))
    show_section(
        "What each layer does to the graph's spectrum, and how alike nodes are after it",
        table(("layer", "at -1", "at 0", "at 1", "energy", "relative", "cosine distance"), rows),
        "A response is what is left of a signal: at 1 of one that neighbours share, at -1 of one in which they "
        "differ. Small energy and cosine distance mean that nodes look alike; layer 0 is the input map.",
    )


def _show_worth(found: Explanation, val_acc: float) -> None:
    rows = [("as trained", _percent(val_acc), "", "", "")]
    for item in found.ablations:
        counts = (str(item.right_only_with), str(item.right_only_without))
        rows.append((item.name, _percent(item.accuracy), f"{item.difference:+.1f}", *counts))
    idle = [item.name.removeprefix("without ") for item in found.ablations[2:] if item.max_change == 0]
    show_section(
        f"What the graph is worth on {found.num_val} validation nodes",
        table(("", "accuracy", "worth", "right only with", "right only without"), rows),
        "The trained weights are kept and only coefficients are changed, in every layer and without rescaling the "
        "others; 'without the graph' puts a 1 at hop 0. A network trained without it may do better: adagpr "
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
    shown, caption = hops_that_fit(len(node.layers[0].hops), **_ROOM)
    headings = ("layer", *(f"hop {hop}" for hop in range(shown)), "from h0")
    rows = [
        (str(flow.layer), *(f"{value:+.3f}" for value in (*flow.hops[:shown], flow.from_h0))) for flow in node.layers
    ]
    show_section(
        "By layer and hop",
        table(headings, rows, caption=caption),
        "A row, the 'from h0' of the rows below it and the bias of the output map add up to the logit.",
    )
