"""``adagpr explain``: what a trained network does with its graph, and where one node's prediction comes from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adagpr.cli import console
from adagpr.cli.options import AsJson, DataRoot, MovedFile, TrainedRun

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from adagpr.insight import Explanation, NodeExplanation

_ROOM: Any = {"taken": 26, "each": 8, "rest": "what --json prints"}


def explain(
    run: TrainedRun,
    node: Annotated[str | None, typer.Option(metavar="ID", help="Also explain the prediction of this node.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the tables into this folder, as Parquet files.")] = None,
    dataset: MovedFile = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Explain a run: which hops it uses, what the graph is worth, and why a node got its class.

    For example: adagpr explain runs/texas-adagpr-0123 --node 17
    """
    from adagpr.insight import explain as explain_run

    found = explain_run(run, node=node, dataset=dataset, data_root=data_root)
    if out is not None:
        found.save(out)
    if as_json:
        console.show_json(found.to_plain())
        return
    console.show(f"{found.dataset}, split {found.split}: {found.model} with {len(found.layers)} layers", "")
    console.show(*_coefficients(found), *_depth(found), *_worth(found))
    if found.node is not None:
        console.show(*_node(found.node))
    console.show(*found.remarks)


def _section(heading: str, table: Table, *sentences: str) -> list[RenderableType]:
    return [console.bold(heading), table, *sentences, ""]


def _percent(value: float) -> str:
    return f"{value:.1f} %"


def _coefficients(found: Explanation) -> list[RenderableType]:
    shown, caption = console.hops_that_fit(len(found.layers[0].coefficients), **_ROOM)
    rows = []
    for part in found.layers:
        weights = ["0" if value == 0 else f"{value:.3f}" for value in part.coefficients[:shown]]
        rows.append((str(part.layer), *weights, f"{part.mean_hop:.2f}", str(part.max_hop)))
    headings = ("layer", *(f"hop {hop}" for hop in range(shown)), "mean hop", "farthest")
    table = console.table(headings, rows, caption=caption)
    return _section("How much of each hop each layer uses", table, *_reach_sentences(found))


def _reach_sentences(found: Explanation) -> list[str]:
    without = [str(part.layer) for part in found.layers if not part.uses_graph]
    reach = found.reach
    if len(without) == len(found.layers):
        return ["No layer uses the graph: a prediction reads nothing but its own node."]
    hops = f"{reach.total_hops} hop{'' if reach.total_hops == 1 else 's'}"
    who = "every node" if reach.num_sampled == reach.num_nodes else f"{reach.num_sampled} sampled nodes"
    first = "Every layer uses the graph."
    if without:
        first = f"Layers {', '.join(without)} use no graph." if without[1:] else f"Layer {without[0]} uses no graph."
    return [
        first,
        f"Within the {hops} of all layers together a prediction reads {reach.mean_nodes:.1f} of {reach.num_nodes} "
        f"nodes on average, {reach.max_nodes} at most (over {who}).",
    ]


def _depth(found: Explanation) -> list[RenderableType]:
    places = [found.lambdas.index(value) for value in (-1.0, 0.0, 1.0)]
    responses = [None, *(part.response for part in found.layers)]
    rows = []
    for after, response in zip(found.smoothing, responses, strict=True):
        cells = ["" if response is None else f"{response[place]:.2f}" for place in places]
        energies = (f"{after.dirichlet_energy:.3g}", f"{after.relative_energy:.3f}")
        distance = "" if after.cosine_distance is None else f"{after.cosine_distance:.3f}"
        rows.append((str(after.layer), *cells, *energies, distance))
    if found.network_response is not None:
        cells = [f"{found.network_response[place]:.2f}" for place in places]
        rows.append(("network", *cells, "", "", ""))
    headings = ("layer", "at -1", "at 0", "at 1", "energy", "relative", "cosine distance")
    return _section(
        "What each layer does to the graph's spectrum, and how alike nodes are after it",
        console.table(headings, rows),
        "A response is what is left of a signal: at 1 of one that neighbours share, at -1 of one in which they "
        "differ. Small energy and cosine distance mean that nodes look alike; layer 0 is the input map.",
    )


def _worth(found: Explanation) -> Iterator[RenderableType]:
    if found.val_acc is None:
        return
    rows = [("as trained", _percent(found.val_acc), "", "", "")]
    for item in found.ablations:
        counts = (str(item.right_only_with), str(item.right_only_without))
        rows.append((item.name, _percent(item.accuracy), f"{item.difference:+.1f}", *counts))
    table = console.table(("", "accuracy", "worth", "right only with", "right only without"), rows)
    idle = [item.name.removeprefix("without ") for item in found.ablations[2:] if item.max_change == 0]
    sentences = [
        "The trained weights are kept and only coefficients are changed, in every layer and without rescaling the "
        "others; 'without the graph' puts a 1 at hop 0. A network trained without it may do better: adagpr "
        "train --without-graph."
    ]
    if idle:
        sentences.append(f"Taking out {', '.join(idle)} changes no bit of any prediction.")
    yield from _section(f"What the graph is worth on {found.num_val} validation nodes", table, *sentences)
    for by, heading in (("degree", "neighbours"), ("homophily", "of its class")):
        groups = [
            (group.name, str(group.num_nodes), _percent(group.accuracy), _percent(group.accuracy_without_graph))
            for group in found.groups
            if group.by == by
        ]
        yield from _section(f"Accuracy by {by}", console.table((heading, "nodes", "accuracy", "without graph"), groups))


def _node(node: NodeExplanation) -> Iterator[RenderableType]:
    known = "its class is unknown" if node.label is None else f"its class is {node.label}"
    yield (
        f"Node {node.node} is predicted as {node.prediction} with probability {node.probability:.3f} ({known}); the "
        f"logit {node.logit:+.4f} is the sum of each of the next two lists.\n"
    )
    biases = [("bias of the output map", f"{node.bias_out:+.4f}"), ("bias of the input map", f"{node.bias_in:+.4f}")]
    last = len(node.by_hops) - 1
    by_hops = [(_paths(hop, hop == last), f"{value:+.4f}") for hop, value in enumerate(node.by_hops)]
    yield from _section("By hops in all", console.table(("paths", "part"), [*biases, *by_hops]))
    sources = [(name, "", part) for name, part in biases]
    sources.append(("this node itself", "0", f"{node.own:+.4f}"))
    sources += [(item.node, str(item.distance), f"{item.contribution:+.4f}") for item in node.sources]
    rest = node.num_sources - len(node.sources)
    if rest:
        sources.append((f"{rest} others", "", f"{node.others:+.4f}"))
    yield from _section("By whose features", console.table(("node", "hops away", "part"), sources))
    shown, caption = console.hops_that_fit(len(node.layers[0].hops), **_ROOM)
    rows = [
        (str(flow.layer), *(f"{value:+.3f}" for value in flow.hops[:shown]), f"{flow.from_h0:+.3f}")
        for flow in node.layers
    ]
    yield from _section(
        "By layer and hop",
        console.table(("layer", *(f"hop {hop}" for hop in range(shown)), "from h0"), rows, caption=caption),
        "A row, the 'from h0' of the rows below it and the bias of the output map add up to the logit.",
    )


def _paths(hops: int, is_last: bool) -> str:
    from adagpr.insight import MOST_HOPS

    more = " or more" if is_last and hops == MOST_HOPS else ""
    return f"{hops}{more} hop{'' if hops == 1 else 's'}"
