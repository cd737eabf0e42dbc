"""What ``adagpr train`` prints for a person."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from adagpr.graph import Graph, Split
from adagpr.training import Run
from adagpr.training.several import summarise

__all__ = ["show", "show_coefficients"]


def show(
    graph: Graph,
    splits: list[Split],
    runs: list[Run],
    baseline_runs: list[Run],
    folder: Path,
    console: Console | None = None,
) -> None:
    """Prints data, accuracy, coefficients and the folder of one run or several."""
    console = console or Console(highlight=False)
    data = runs[0].record["data"]
    several = f"{len(splits)} splits, the first {splits[0].name}"
    console.print(Text(graph.name, style="bold"), f": {_size(graph)}", sep="", markup=False)
    console.print(
        f"split {splits[0].name if len(splits) == 1 else several}: {data['num_train']} training, "
        f"{data['num_val']} validation, {data['num_test']} test nodes\n",
        markup=False,
    )
    if len(runs) > 1:
        console.print(_runs_table(runs), "")
    console.print(_summary(graph, runs, baseline_runs), "")
    coefficients = [run.coefficients for run in runs if run.coefficients is not None]
    if coefficients:
        mean = f", mean of {len(runs)} runs" if len(runs) > 1 else ""
        show_coefficients(torch.stack(coefficients).mean(0), console, mean)
    if graph.notes and graph.origin.get("name") != "tables":
        console.print(f"Before you trust these numbers: adagpr data info {graph.name}\n", markup=False)
    console.print(f"run folder  {folder}\npage        {folder / 'report.html'}", soft_wrap=True, markup=False)


def show_coefficients(coefficients: Tensor, console: Console, mean: str = "") -> None:
    """Prints the weight of each hop in each layer."""
    console.print(Text(f"How much of each hop each layer uses{mean}", style="bold"))
    console.print(_coefficients(coefficients, console), "")


def _size(graph: Graph) -> str:
    loops = int((graph.adj.diagonal() != 0).sum())
    edges = f"{(graph.num_edges + loops) // 2} edges" if graph.is_symmetric else f"{graph.num_edges} directed edges"
    return f"{graph.num_nodes} nodes, {edges}, {graph.num_features} features, {graph.num_classes} classes"


def _runs_table(runs: list[Run]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("split", "seed", "test accuracy", "validation accuracy", "best epoch", "epochs"):
        table.add_column(name, justify="left" if name == "split" else "right")
    for run in runs:
        result, config = run.record["result"], run.record["config"]
        table.add_row(
            config["data"]["split"],
            str(config["training"]["seed"]),
            _percent(run.test_acc),
            _percent(run.val_acc),
            str(result["best_epoch"]),
            str(result["num_epochs"]),
        )
    return table


def _summary(graph: Graph, runs: list[Run], baseline_runs: list[Run]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    summary = summarise(runs)

    def spread(key: str, values: dict[str, float | int]) -> str:
        return f" +- {100 * values[f'{key}_std']:.1f} over {len(runs)} runs" if len(runs) > 1 else ""

    table.add_row("test accuracy", Text(_percent(summary["test_acc"]) + spread("test_acc", summary), style="bold"))
    is_own = graph.origin.get("name") == "tables"
    if is_own:
        table.add_row("test macro F1", _macro_f1(runs))
    if baseline_runs:
        other = summarise(baseline_runs)
        table.add_row("without the graph", _percent(other["test_acc"]) + spread("test_acc", other))
    if baseline_runs and is_own:
        table.add_row("its macro F1", _macro_f1(baseline_runs))
    table.add_row("validation accuracy", _percent(summary["val_acc"]) + spread("val_acc", summary))
    if len(runs) == 1:
        result = runs[0].record["result"]
        table.add_row("best epoch", f"{result['best_epoch']} of {result['num_epochs']}")
        table.add_row("training time", f"{runs[0].record['machine']['seconds']:.1f} s")
    return table


def _macro_f1(runs: list[Run]) -> str:
    return f"{fmean(run.record['result']['test_macro_f1'] for run in runs):.3f}"


def _coefficients(values: Tensor, console: Console) -> Table:
    shown = min(values.shape[1], max(2, (console.width - 8) // 7))
    zero = "·" if console.encoding.startswith("utf") else "."
    table = Table(box=None, pad_edge=False)
    table.add_column("layer", justify="right")
    for hop in range(shown):
        table.add_column(f"hop {hop}", justify="right")
    for layer, row in enumerate(values.tolist(), 1):
        table.add_row(str(layer), *(_shade(value, zero) for value in row[:shown]))
    if shown < values.shape[1]:
        table.caption = f"hops {shown} to {values.shape[1] - 1} are in record.json"
        table.caption_justify = "left"
    return table


def _shade(value: float, zero: str) -> Text:
    """A coefficient, the brighter the larger; an exact zero is a dot."""
    if value == 0:
        return Text(zero, style="dim")
    style = "bold green" if value >= 0.5 else "green" if value >= 0.1 else ""
    return Text(f"{value:.3f}", style=style)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
