"""What ``adagpr train`` prints for a person."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch
from rich.table import Table
from rich.text import Text
from torch import Tensor

from adagpr.cli.console import bold, facts, hops_that_fit, show, stdout, table
from adagpr.graph import Graph, Split
from adagpr.task import flat_scores
from adagpr.training import Run, Runs, summarise


def show_runs(graph: Graph, splits: Sequence[Split], runs: Runs) -> None:
    """Prints data, accuracy, coefficients and the folder of one run or several."""
    data = runs[0].record["data"]
    several = f"{len(splits)} splits, the first {splits[0].name}"
    show(
        Text.assemble((graph.name, "bold"), f": {_size(graph)}"),
        f"split {splits[0].name if len(splits) == 1 else several}: {data['num_train']} training, "
        f"{data['num_val']} validation, {data['num_test']} test nodes\n",
    )
    if len(runs) > 1:
        show(_runs_table(runs), "")
    show(_summary(graph, runs, runs.baseline_runs), "")
    coefficients = [run.coefficients for run in runs if run.coefficients is not None]
    if coefficients:
        mean = f", mean of {len(runs)} runs" if len(runs) > 1 else ""
        show_coefficients(torch.stack(coefficients).mean(0), mean)
    if graph.notes and graph.origin.get("name") != "tables":
        show(f"Before you trust these numbers: adagpr data info {graph.name}\n")
    show(f"run folder  {runs.folder}\npage        {(runs.folder or Path()) / 'report.html'}")


def show_coefficients(coefficients: Tensor, mean: str = "") -> None:
    """Prints the weight of each hop in each layer."""
    shown, caption = hops_that_fit(coefficients.shape[1], taken=8, each=7, rest="record.json")
    zero = "·" if stdout().encoding.startswith("utf") else "."
    show(
        bold(f"How much of each hop each layer uses{mean}"),
        table(
            ["layer", *(f"hop {hop}" for hop in range(shown))],
            (
                [f"{layer:>5}", *(_shade(value, zero) for value in row[:shown])]
                for layer, row in enumerate(coefficients.tolist(), 1)
            ),
            caption=caption,
        ),
        "",
    )


def _size(graph: Graph) -> str:
    loops = int((graph.adj.diagonal() != 0).sum())
    edges = f"{(graph.num_edges + loops) // 2} edges" if graph.is_symmetric else f"{graph.num_edges} directed edges"
    return f"{graph.num_nodes} nodes, {edges}, {graph.num_features} features, {graph.num_classes} classes"


def _runs_table(runs: Sequence[Run]) -> Table:
    return table(
        ["split", "seed", "test accuracy", "validation accuracy", "best epoch", "epochs"],
        (
            [
                run.record["config"]["data"]["split"],
                str(run.record["config"]["training"]["seed"]),
                *(_percent(scores[name]) if name in scores else "" for name in ("test_acc", "val_acc")),
                str(run.best_epoch),
                str(run.num_epochs),
            ]
            for run, scores in ((run, flat_scores(run.record["result"])) for run in runs)
        ),
    )


def _summary(graph: Graph, runs: Sequence[Run], baseline_runs: Sequence[Run]) -> Table:
    summary, other = summarise(runs), summarise(baseline_runs)

    def mean(key: str, values: dict[str, float | int]) -> str:
        spread = f" +- {100 * values[f'{key}_std']:.1f} over {len(runs)} runs" if len(runs) > 1 else ""
        return _percent(values[key]) + spread

    rows: list[tuple[str, str | Text]] = []
    is_own = graph.origin.get("name") == "tables"
    if "test_acc" in summary:
        rows.append(("test accuracy", bold(mean("test_acc", summary))))
        if is_own:
            rows.append(("test macro F1", _macro_f1(runs)))
    if "test_acc" in other:
        rows.append(("without the graph", mean("test_acc", other)))
        if is_own:
            rows.append(("its macro F1", _macro_f1(baseline_runs)))
    if "val_acc" in summary:
        rows.append(("validation accuracy", mean("val_acc", summary)))
    if len(runs) == 1:
        rows.append(("best epoch", f"{runs[0].best_epoch} of {runs[0].num_epochs}"))
        rows.append(("training time", f"{runs[0].record['machine']['seconds']:.1f} s"))
    return facts(rows)


def _macro_f1(runs: Sequence[Run]) -> str:
    return f"{fmean(run.score('test', 'macro_f1') for run in runs):.3f}"


def _shade(value: float, zero: str) -> Text:
    """A coefficient, the brighter the larger; an exact zero is a dot."""
    if value == 0:
        return Text(zero, style="dim")
    style = "bold green" if value >= 0.5 else "green" if value >= 0.1 else ""
    return Text(f"{value:.3f}", style=style)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
