"""The parts of a page: each turns what is known of a subject into charts, or into none where it says nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from adagpr.reporting.charts import Chart, bars, heat_map, lines, ramp
from adagpr.reporting.subject import ReportedModel
from adagpr.training.run import coefficient_column

__all__ = ["PARTS", "evolution", "thinned"]

# So many numbers of the coefficients over training stand in the page, and so many points of a curve.
_MOST_NUMBERS = 120_000
_MOST_POINTS = 300
_MOST_CLASSES = 30
_CHOSEN_BY = {
    "val_loss": "validation loss is lowest",
    "val_objective": "validation loss with the penalty is lowest",
    "val_acc": "validation accuracy is highest",
}


def thinned(num_epochs: int, best_epoch: int, most: int) -> list[int]:
    """Rows of a history that are enough to draw it: the first, the last, the best epoch and some between."""
    rows = np.linspace(0, num_epochs - 1, min(num_epochs, max(most, 2))).round().astype(int)
    return sorted({*rows.tolist(), best_epoch - 1})


def coefficients(subject: ReportedModel) -> list[Chart]:
    """How much of each hop each layer uses."""
    values = subject.mean_coefficients
    if values is None:
        return []
    mean = f" Mean of {len(subject.runs)} runs." if len(subject.runs) > 1 else ""
    return [
        heat_map(
            "coefficients",
            "Weight of each hop in each layer",
            values,
            [str(layer) for layer in range(1, len(values) + 1)],
            [str(hop) for hop in range(len(values[0]))],
            row_title="layer",
            column_title="hop",
            caption=f"Hop 0 is a node's own state, hop 1 its neighbours, hop 2 theirs. A dot or no box is 0.{mean}",
        )
    ]


def evolution(subject: ReportedModel) -> list[Chart]:
    """Every coefficient over training, one chart a layer."""
    run = subject.first
    values = run.record.get("coefficients")
    if values is None:
        return []
    num_layers, num_hops = np.shape(values)
    best = run.best_epoch
    rows = thinned(run.history.num_rows, best, min(_MOST_POINTS, _MOST_NUMBERS // (num_layers * num_hops)))
    epochs = run.history["epoch"].take(rows).to_pylist()
    charts = []
    for layer in range(1, num_layers + 1):
        columns = [run.history[coefficient_column(layer, hop)].take(rows) for hop in range(num_hops)]
        series = {f"hop {hop}": [round(v, 5) for v in each.to_pylist()] for hop, each in enumerate(columns)}
        charts.append(
            lines(
                f"coefficients-layer-{layer}",
                f"Layer {layer}",
                ("epoch", epochs),
                series,
                colours=[ramp(hop, num_hops) for hop in range(num_hops)],
                mark=(best, f"chosen: {best}"),
                span=(0.0, 1.0),
            )
        )
    return charts


def training(subject: ReportedModel) -> list[Chart]:
    """Loss and accuracy over training, with the chosen epoch."""
    run = subject.first
    rows = thinned(run.history.num_rows, run.best_epoch, _MOST_POINTS)
    kept = run.history.take(rows)
    mark = (float(run.best_epoch), f"chosen: {run.best_epoch}")
    colours = [ramp(0, 2), ramp(3, 6), ramp(4, 6)]
    monitor = run.record["config"]["training"]["monitor"]
    captions = {
        "loss": "Training loss is that of the step, dropout on; validation loss is without dropout.",
        "acc": f"Chosen is the epoch at which {_CHOSEN_BY[monitor]}.",
    }
    charts = []
    for kind, title, scale in (("loss", "Loss", 1), ("acc", "Accuracy in %", 100)):
        series = {
            name: [round(scale * value, 5) for value in kept[f"{part}_{kind}"].to_pylist()]
            for part, name in (("train", "training"), ("val", "validation"))
        }
        if kind == "loss" and monitor == "val_objective":
            both = zip(series["validation"], kept["penalty"].to_pylist(), strict=True)
            series["validation with penalty"] = [round(loss + penalty, 5) for loss, penalty in both]
        charts.append(
            lines(
                title.split()[0].lower(),
                title,
                ("epoch", kept["epoch"].to_pylist()),
                series,
                colours=colours[: len(series)],
                mark=mark,
                span=None if kind == "loss" else (0.0, 100.0),
                caption=captions[kind],
            )
        )
    return charts


def filters(subject: ReportedModel) -> list[Chart]:
    """What each layer and the linearised network leave of each part of the spectrum."""
    found = subject.explanation
    if found is None:
        return []
    series = {f"layer {part.layer}": list(part.response) for part in found.layers}
    colours = [ramp(number, len(series)) for number in range(len(series))]
    caption = (
        "What a layer multiplies a signal of each eigenvalue by: 1 is what neighbours share, -1 where they differ "
        "most. Near 0 it is taken away, below 0 kept with its sign turned; a flat line uses no graph. The whole "
        "network is without ReLU and weights."
    )
    if found.network_response is not None:
        series["whole network"] = list(found.network_response)
        colours.append("var(--text)")
    few = len(found.layers) <= 12
    ends = ("layer 1", f"layer {len(found.layers)}", "whole network")
    return [
        lines(
            "filter",
            "Response to the graph's spectrum",
            ("eigenvalue", list(found.lambdas)),
            series,
            colours=colours,
            bold=["whole network"],
            span=(0.0, 1.0),
            caption=caption,
            named=None if few else ends,
        )
    ]


def smoothing(subject: ReportedModel) -> list[Chart]:
    """How alike nodes are after each layer."""
    found = subject.explanation
    if found is None:
        return []
    series: dict[str, list[float | None]] = {
        "relative Dirichlet energy": [item.relative_energy for item in found.smoothing],
        "mean cosine distance": [item.cosine_distance for item in found.smoothing],
    }
    layers = [float(item.layer) for item in found.smoothing]
    return [
        lines(
            "smoothing",
            "How far apart nodes are after each layer",
            ("layer", layers),
            series,
            colours=(ramp(0, 2), ramp(4, 6)),
            span=(0.0, 0.1),
            caption="Relative Dirichlet energy near 0: neighbours look alike. Mean cosine distance near 0: all nodes "
            "look alike, which is oversmoothing. Layer 0 is the input map.",
        )
    ]


def worth(subject: ReportedModel) -> list[Chart]:
    """What the graph and each hop are worth on the validation nodes, and for which nodes."""
    found = subject.explanation
    if found is None:
        return []
    rows = [("as trained", found.val_acc), *((item.name, item.accuracy) for item in found.ablations)]
    more: dict[str, Sequence[float]] = {
        "points lost": [0.0, *(item.difference for item in found.ablations)],
        "right only with": [0, *(item.right_only_with for item in found.ablations)],
        "right only without": [0, *(item.right_only_without for item in found.ablations)],
    }
    charts = [
        bars(
            "worth",
            f"Accuracy on {found.num_val} validation nodes",
            rows,
            unit=" %",
            most=100.0,
            first="accuracy in %",
            key="coefficients",
            caption="The trained weights with other coefficients. Without the graph: all weight on hop 0. Hop 0 alone: "
            "its weight as it is, the others 0. Without a hop: its weight 0. Nothing is rescaled or trained again.",
            more=more,
        )
    ]
    for by, title in (("degree", "By number of neighbours"), ("homophily", "By share of neighbours of the same class")):
        groups = [group for group in found.groups if group.by == by]
        if groups:
            charts.append(
                bars(
                    f"accuracy-by-{by}",
                    title,
                    [(f"{group.name} ({group.num_nodes})", group.accuracy) for group in groups],
                    unit=" %",
                    second=("without the graph", [group.accuracy_without_graph for group in groups]),
                    first="as trained",
                    most=100.0,
                    key=by,
                    caption="In brackets the number of validation nodes.",
                    more={"nodes": [group.num_nodes for group in groups]},
                )
            )
    return charts


def trust(subject: ReportedModel) -> list[Chart]:
    """How sure predictions are beside how often they are right, and which classes are taken for which."""
    found = subject.calibration
    if found is None:
        return []
    is_calibrated = "calibration" in subject.record
    calibrated = " Validation nodes calibrated the probabilities." if is_calibrated else ""
    filled = [number for number, count in enumerate(found.counts) if count]
    sure = [round(100 * found.confidence[number], 2) for number in filled]
    reliability = lines(
        "calibration",
        f"How sure and how right, {sum(found.counts)} test nodes",
        ("mean probability in %", sure),
        {
            "share that is right, in %": [round(100 * found.accuracy[number], 2) for number in filled],
            "as it should be": sure,
        },
        colours=("var(--main)", "var(--soft)"),
        dashed=["as it should be"],
        span=(0.0, 100.0),
        caption="Below the dashed line the model is surer than it should be, above it less sure. A dot is a group of "
        f"predictions, the larger the more; small ones say little.{calibrated}",
        sizes=("nodes", [found.counts[number] for number in filled]),
    )
    return [reliability, *_confusion(subject)]


def _confusion(subject: ReportedModel) -> list[Chart]:
    probabilities, labels = subject.tested
    names = [str(name) for name in subject.record["data"]["class_names"]]
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(counts, (labels, probabilities.argmax(1)), 1)
    if len(names) <= _MOST_CLASSES:
        return [
            heat_map(
                "confusion",
                "Which class is taken for which",
                counts.tolist(),
                names,
                names,
                row_title="true class",
                column_title="predicted as",
                digits=0,
                by_row=True,
                square=True,
                caption="Test nodes; right ones are on the diagonal. Darkness is the share of a row.",
            )
        ]
    np.fill_diagonal(counts, 0)
    most = np.argsort(-counts, axis=None, kind="stable")[:20]
    pairs = [(int(place) // len(names), int(place) % len(names)) for place in most]
    rows = [(f"{names[a]} as {names[b]}", float(counts[a, b])) for a, b in pairs if counts[a, b]]
    title = "Most frequent mistakes on test nodes"
    return [bars("confusion", title, rows, first="nodes", key="mistake")] if rows else []


def bound(subject: ReportedModel) -> list[Chart]:
    """The terms of the paper's bound, layer by layer."""
    found = subject.bounds
    if found is None:
        return []
    total = found.total("run")
    series = {
        "factor of the layer": [_finite(item.log10_factor) for item in found.layers],
        "term that enters at it": [_finite(item.log10_term) for item in found.layers],
        "recursion of the proof so far": [_finite(item.log10_recursion) for item in found.layers],
    }
    return [
        lines(
            "bound",
            "Theorem 1, layer by layer, in log10",
            ("layer", [float(item.layer) for item in found.layers]),
            series,
            colours=(ramp(0, 6), ramp(3, 6), ramp(4, 6)),
            caption=f"The terms sum to Theorem 1, {total.log10_printed:.2f}; the proof's recursion, which it "
            f"simplifies, ends at {total.log10_recursion:.2f}.",
        )
    ]


def _finite(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


# In the order of the page: anchor, heading and what draws it. The coefficients over training have a chooser.
PARTS: tuple[tuple[str, str, Callable[[ReportedModel], list[Chart]]], ...] = (
    ("coefficients", "Which hops each layer uses", coefficients),
    ("evolution", "How the weights of the hops were learned", evolution),
    ("training", "Training", training),
    ("worth", "What the graph is worth", worth),
    ("filter", "What the layers filter", filters),
    ("smoothing", "Smoothing by depth", smoothing),
    ("trust", "How far to trust it", trust),
    ("bound", "The paper's bound", bound),
)
