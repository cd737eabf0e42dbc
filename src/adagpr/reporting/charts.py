"""The charts of a run, section by section, and their figures; a section has none where there is nothing to draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from adagpr.charts import Axis, Bars, Chart, HeatMap, Line, Lines, figure, picture_files, ramp
from adagpr.errors import InputError, unknown_name
from adagpr.files import make_folder, tidied, write_all
from adagpr.insight import DatasetFiles
from adagpr.reporting.reported_model import ReportedModel, read_model
from adagpr.task import METRICS
from adagpr.training import Run, coefficient_column

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# At most so many numbers of the coefficients over training are in the page, and so many points of a curve.
_MOST_NUMBERS = 120_000
_MOST_POINTS = 300
_MOST_CLASSES, _MOST_NAMED = 30, 12
_FIRST, _SECOND, _THIRD = ramp(0, 6), ramp(3, 6), ramp(4, 6)
# How to read coefficients of either sign.
_SIGNS = (
    "Blue adds a hop, red subtracts it: a row with both takes the difference between what is near and what is farther "
    "away. "
)
_FORWARD = "Forward, a node reads those that it points to, backward those that point to it. "
# What is left of the coefficients without the graph, by whether they are signed.
_ALONE = {
    False: "Without the graph: all weight on hop 0. Hop 0 alone: its weight as it is, the others 0.",
    True: "Without the graph: hops beyond 0 have weight 0; hop 0 and the nodes' own maps are as they are.",
}
_CHOSEN_BY = {
    "val_loss": "validation loss is lowest",
    "val_objective": "validation loss with the penalty is lowest",
    "val_acc": "validation accuracy is highest",
    "val_metric": "validation {title} is highest",
}


def thinned(num_epochs: int, best_epoch: int, most: int) -> list[int]:
    """Rows of a history that are enough to draw it: the first, the last, the best epoch and some between."""
    rows = np.linspace(0, num_epochs - 1, min(num_epochs, max(most, 2))).round().astype(int)
    return sorted({*rows.tolist(), best_epoch - 1})


def coefficients(model: ReportedModel) -> Iterator[Chart]:
    """How much of each hop each layer uses."""
    found = [run.record.get("coefficients") for run in model.runs]
    if None in found:
        return
    values = np.mean(np.array(found, dtype=np.float64), axis=0).tolist()
    mean = f" Mean of {len(model.runs)} runs." if len(model.runs) > 1 else ""
    of_sign, signs = ("", None) if not model.signed else (": blue adds it, red subtracts it", ("adds", "subtracts"))
    yield HeatMap(
        name="coefficients",
        title=f"Weight of each hop in each layer{of_sign}",
        values=values,
        row_names=[str(layer) for layer in range(1, len(values) + 1)],
        column_names=[name.removeprefix("hop ") for name in model.hop_names],
        row_title="layer",
        column_title="hop",
        caption=f"{_SIGNS if model.signed else ''}Hop 0 is a node's own state, hop 1 its neighbours, hop 2 theirs. "
        f"{_FORWARD if model.reads_both_ways else ''}A dot or no box is 0.{mean}",
        signs=signs,
    )


def evolution(model: ReportedModel) -> Iterator[Chart]:
    """Every coefficient over training, one chart per layer."""
    run = model.first
    values = run.record.get("coefficients")
    if values is None:
        return
    num_layers, num_hops = np.shape(values)
    kept = _thinned_history(run, min(_MOST_POINTS, _MOST_NUMBERS // (num_layers * num_hops)))
    y = Axis("coefficient", includes=(0.0, 1.0))
    caption = ""
    if model.signed:
        y = Axis("coefficient, below 0 subtracts", includes=(0.0, 0.5), has_zero=True)
        caption = "Above the line at 0 the layer adds a hop, below it subtracts it."
    for layer in range(1, num_layers + 1):
        lines = [
            Line(
                name,
                _rounded(kept[coefficient_column(layer, hop)]),
                ramp(hop, num_hops),
                is_dashed=model.reads_both_ways and hop >= num_hops // 2,
            )
            for hop, name in enumerate(model.hop_names)
        ]
        yield _over_epochs(run, kept, f"coefficients-layer-{layer}", f"Layer {layer}", lines, y, caption)


def training(model: ReportedModel) -> Iterator[Chart]:
    """Loss and accuracy over training, with the chosen epoch."""
    run = model.first
    kept = _thinned_history(run, _MOST_POINTS)
    monitor = run.record["config"]["training"]["monitor"]
    parts = (("train", "training", _FIRST), ("val", "validation", _SECOND))
    losses = [Line(name, _rounded(kept[f"{part}_loss"]), colour) for part, name, colour in parts]
    accuracies = [Line(name, _rounded(kept[f"{part}_acc"], 100), colour) for part, name, colour in parts]
    if monitor == "val_objective":
        pairs = zip(losses[1].values, kept["penalty"].to_pylist(), strict=True)
        losses.append(Line("validation with penalty", [round(loss + penalty, 5) for loss, penalty in pairs], _THIRD))
    note = "Training loss is that of the step, dropout on; validation loss is without dropout."
    yield _over_epochs(run, kept, "loss", "Loss", losses, Axis(), note)
    title = METRICS[run.metric].title
    chosen = f"Chosen is the epoch at which {_CHOSEN_BY[monitor].format(title=title)}."
    y = Axis(includes=(0.0, 100.0))
    if "val_metric" in kept.column_names:
        line = Line("validation", _rounded(kept["val_metric"], 100), _SECOND)
        yield _over_epochs(run, kept, "metric", f"{title[0].upper()}{title[1:]} in %", [line], y, chosen)
    yield _over_epochs(run, kept, "accuracy", "Accuracy in %", accuracies, y, chosen)


def _thinned_history(run: Run, most: int) -> pa.Table:
    return run.history.take(thinned(run.history.num_rows, run.best_epoch, most))


def _rounded(column: pa.ChunkedArray, factor: int = 1) -> list[float]:
    return [round(factor * value, 5) for value in column.to_pylist()]


def _over_epochs(
    run: Run, kept: pa.Table, name: str, title: str, lines: list[Line], y: Axis, caption: str = ""
) -> Lines:
    """Lines over the kept epochs of a run, with the epoch that validation chose."""
    at, mark = kept["epoch"].to_pylist(), (run.best_epoch, f"chosen: {run.best_epoch}")
    return Lines(name=name, title=title, x=Axis("epoch"), at=at, lines=lines, y=y, mark=mark, caption=caption)


def worth(model: ReportedModel) -> Iterator[Chart]:
    """What the graph and each hop are worth on the validation nodes, and for which nodes."""
    found = model.explanation
    if found is None or found.val_acc is None:
        return
    yield Bars(
        name="worth",
        title=f"Accuracy on {found.num_val} validation nodes",
        labels=["as trained", *(item.name for item in found.ablations)],
        bars={"accuracy in %": [found.val_acc, *(item.accuracy for item in found.ablations)]},
        key="coefficients",
        unit=" %",
        longest=100.0,
        caption=f"The trained weights with other coefficients. {_ALONE[found.signed]} Without a hop: its weight 0. "
        "Nothing is rescaled or trained again.",
        more={
            "points lost": [0.0, *(item.difference for item in found.ablations)],
            "right only with": [0, *(item.right_only_with for item in found.ablations)],
            "right only without": [0, *(item.right_only_without for item in found.ablations)],
        },
    )
    for by, title in (("degree", "By number of neighbours"), ("homophily", "By share of neighbours of the same class")):
        groups = [group for group in found.groups if group.by == by]
        if groups:
            yield Bars(
                name=f"accuracy-by-{by}",
                title=title,
                labels=[f"{group.name} ({group.num_nodes})" for group in groups],
                bars={
                    "as trained": [group.accuracy for group in groups],
                    "without the graph": [group.accuracy_without_graph for group in groups],
                },
                key=by,
                axis="accuracy in %",
                unit=" %",
                longest=100.0,
                caption="In brackets the number of validation nodes.",
                more={"nodes": [group.num_nodes for group in groups]},
            )


def filters(model: ReportedModel) -> Iterator[Chart]:
    """What each layer and the linearised network leave of each part of the spectrum."""
    found = model.explanation
    if found is None:
        return
    count = len(found.layers)
    named = range(1, count + 1) if count <= _MOST_NAMED else (1, count)
    end = (
        " The hops alone, without a node's own map."
        if found.signed
        else " The whole network is without ReLU and weights."
    )
    for direction in found.directions:
        lines = [
            Line(
                f"layer {part.layer}", found.filters(part)[direction], ramp(number, count), is_named=part.layer in named
            )
            for number, part in enumerate(found.layers)
        ]
        if found.network_response is not None:
            lines.append(Line("whole network", found.network_response, "text", is_bold=True))
        yield Lines(
            name=f"filter-{direction}" if direction else "filter",
            title=f"Response to the graph's spectrum{', edges ' * bool(direction)}{direction}",
            x=Axis("eigenvalue"),
            at=list(found.lambdas),
            lines=lines,
            y=Axis("factor, below 0 turns the sign" if found.signed else "", (0.0, 1.0), has_zero=found.signed),
            caption="What a layer multiplies a signal of each eigenvalue by: 1 is what neighbours share, -1 where they "
            "differ most. Near 0 it is taken away, below 0 kept with its sign turned; a flat line uses no graph."
            f"{end}",
        )


def smoothing(model: ReportedModel) -> Iterator[Chart]:
    """How alike nodes are after each layer."""
    if model.explanation is None:
        return
    found = model.explanation.smoothing
    yield Lines(
        name="smoothing",
        title="How far apart nodes are after each layer",
        x=Axis("layer"),
        at=[float(item.layer) for item in found],
        lines=[
            Line("relative Dirichlet energy", [item.relative_energy for item in found], _FIRST),
            Line("mean cosine distance", [item.cosine_distance for item in found], _THIRD),
        ],
        y=Axis(includes=(0.0, 0.1)),
        caption="Relative Dirichlet energy near 0: neighbours look alike. Mean cosine distance near 0: all nodes "
        "look alike, which is oversmoothing. Layer 0 is the input map.",
    )


def trust(model: ReportedModel) -> Iterator[Chart]:
    """How sure predictions are beside how often they are right, and which classes are taken for which."""
    found = model.calibration
    if found is None:
        return
    calibrated = " Validation nodes calibrated the probabilities." if "calibration" in model.record else ""
    filled = [number for number, count in enumerate(found.counts) if count]
    sure = [round(100 * found.confidence[number], 2) for number in filled]
    right = [round(100 * found.accuracy[number], 2) for number in filled]
    yield Lines(
        name="calibration",
        title=f"How sure and how right, {sum(found.counts)} test nodes",
        x=Axis("mean probability in %"),
        at=sure,
        lines=[Line("share that is right, in %", right, "main"), Line("as it should be", sure, "soft", is_dashed=True)],
        y=Axis(includes=(0.0, 100.0)),
        caption="Below the dashed line the model is surer than it should be, above it less sure. A dot is a group of "
        f"predictions, the larger the more; small ones say little.{calibrated}",
        sizes=("nodes", [found.counts[number] for number in filled]),
    )
    yield from _confusion(model)


def _confusion(model: ReportedModel) -> Iterator[Chart]:
    probabilities, labels = model.tested
    names = [str(name) for name in model.record["data"]["class_names"]]
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(counts, (labels, probabilities.argmax(1)), 1)
    if len(names) <= _MOST_CLASSES:
        yield HeatMap(
            name="confusion",
            title="Which class is taken for which",
            values=counts.tolist(),
            row_names=names,
            column_names=names,
            row_title="true class",
            column_title="predicted as",
            digits=0,
            by_row=True,
            square=True,
            caption="Test nodes; right ones are on the diagonal. Darkness is the share of a row.",
        )
        return
    np.fill_diagonal(counts, 0)
    most = np.argsort(-counts, axis=None, kind="stable")[:20]
    pairs = [divmod(int(place), len(names)) for place in most]
    mistakes = [(a, b) for a, b in pairs if counts[a, b]]
    if mistakes:
        words = [f"{names[a]} as {names[b]}" for a, b in mistakes]
        bars = {"nodes": [float(counts[a, b]) for a, b in mistakes]}
        title = "Most frequent mistakes on test nodes"
        yield Bars(name="confusion", title=title, labels=words, bars=bars, key="mistake")


def bound(model: ReportedModel) -> Iterator[Chart]:
    """The terms of the paper's bound, layer by layer."""
    found = model.bounds
    if found is None:
        return
    total = found.total("run")
    yield Lines(
        name="bound",
        title="Theorem 1, layer by layer, in log10",
        x=Axis("layer"),
        at=[float(item.layer) for item in found.layers],
        lines=[
            Line("factor of the layer", [_finite(item.log10_factor) for item in found.layers], _FIRST),
            Line("term that enters at it", [_finite(item.log10_term) for item in found.layers], _SECOND),
            Line("recursion of the proof so far", [_finite(item.log10_recursion) for item in found.layers], _THIRD),
        ],
        caption=f"The terms sum to Theorem 1, {total.log10_printed:.2f}; the proof's recursion, which it "
        f"simplifies, ends at {total.log10_recursion:.2f}.",
    )


def _finite(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


# In the order of the page: the heading of each section by its anchor, and what draws it.
SECTIONS: dict[str, tuple[str, Callable[[ReportedModel], Iterator[Chart]]]] = {
    "coefficients": ("Which hops each layer uses", coefficients),
    "evolution": ("How the weights of the hops were learned", evolution),
    "training": ("Training", training),
    "worth": ("What the graph is worth", worth),
    "filter": ("What the layers filter", filters),
    "smoothing": ("Smoothing by depth", smoothing),
    "trust": ("How far to trust it", trust),
    "bound": ("The paper's bound", bound),
}


@dataclass(frozen=True)
class Plots:
    """Figures of a run by name, and the files that they were written to."""

    figures: Mapping[str, Figure]
    files: tuple[Path, ...]


def plot(
    run: Path | str,
    out: Path | str | None = None,
    *,
    only: Sequence[str] = (),
    data_root: Path | str | None = None,
    dataset: DatasetFiles = None,
) -> Plots:
    """Draws the charts of a run, or of several runs of one model.

    Args:
        run: Folder of a run, or of several.
        out: Folder for the figures as PDF, PNG and SVG; none are written without it.
        only: Which sections: ``coefficients``, ``evolution``, ``training``, ``worth``, ``filter``, ``smoothing``,
            ``trust`` or ``bound``. By default all that there is something to draw for.
        data_root: Folder of the data files; see `adagpr.load`.
        dataset: The run's file, or two tables; see `adagpr.explain`.

    Raises:
        InputError: There is no such section, no complete run, or nothing to draw.
    """
    for name in only:
        if name not in SECTIONS:
            raise unknown_name("picture", name, tuple(SECTIONS))
    model = read_model(run, data_root=data_root, dataset=dataset)
    figures: dict[str, Figure] = {}
    for anchor, (_, draw) in SECTIONS.items():
        charts = list(draw(model)) if not only or anchor in only else []
        if charts and anchor == "evolution":
            figures[anchor] = figure(charts, title=model.name, legend="right")
        else:
            figures |= {chart.name: figure(chart) for chart in charts}
    if not figures:
        raise InputError(f"There is nothing to draw of {run}. {' '.join(model.left_out)}".strip())
    if out is None:
        return Plots(figures, ())
    files: dict[Path, bytes] = {}
    with tidied(Path(out)):
        make_folder(Path(out))
        for name, drawn in figures.items():
            files |= {Path(out) / f"{name}.{ending}": content for ending, content in picture_files(drawn).items()}
        write_all(files)
    return Plots(figures, tuple(files))
