"""What ``adagpr train`` prints for a person."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.text import Text

from adagpr.cli.console import bold, facts, hops_that_fit, open_console, pluralize, show, show_section, table
from adagpr.graph import Graph, Split
from adagpr.task import flat_scores, scores_of_result
from adagpr.training import Run, Runs, summarise


def show_runs(graph: Graph, splits: Sequence[Split], runs: Runs) -> None:
    """Prints data, accuracy, coefficients and the folder of one run or several."""
    data = runs[0].record["data"]
    several = f"{len(splits)} splits, the first {splits[0].name}"
    loops = int((graph.adj.diagonal() != 0).sum())
    edges = f"{(graph.num_edges + loops) // 2} edges" if graph.is_symmetric else f"{graph.num_edges} directed edges"
    size = f"{graph.num_nodes} nodes, {edges}, {graph.num_features} features, {graph.num_classes} classes"
    show(
        Text.assemble(bold(graph.name), f": {size}"),
        f"split {splits[0].name if len(splits) == 1 else several}: {data['num_train']} training, "
        f"{data['num_val']} validation, {data['num_test']} test nodes",
        "",
    )
    is_own = graph.origin.get("name") == "tables"
    if len(runs) > 1:
        _show_each(runs)
    _show_means(runs, runs.baseline_runs, with_f1=is_own)
    coefficients = [run.coefficients for run in runs if run.coefficients is not None]
    if coefficients:
        mean = f", mean of {len(runs)} runs" if len(runs) > 1 else ""
        _show_coefficients(torch.stack(coefficients).mean(0).tolist(), mean)
    if graph.notes and not is_own:
        show(f"Before you trust these numbers: adagpr data info {graph.name}", "")
    show(f"run folder  {runs.folder}", f"page        {(runs.folder or Path()) / 'report.html'}")


def show_partition_run(record: dict[str, Any], folder: Path) -> None:
    """Prints size, accuracy, coefficients and the folder of a run on a partition."""
    data, result, machine = record["data"], record["result"], record["machine"]
    scores = scores_of_result(result)
    names = {"test": "test accuracy", "val": "validation"}
    measured = [f"{names[key]} {_percent(scores[key]['accuracy'])}" for key in names if key in scores]
    how = "batches of parts, approximate" if data.get("is_approximate") else "exact"
    size = f"{data['num_nodes']:,} nodes, {data['num_edges']:,} edges"
    parts, ranks = pluralize(record["config"]["scale"]["parts"], "part"), pluralize(machine.get("ranks", 1), "rank")
    show(
        f"{data['name']}: {size} in {parts}; {how}, {ranks}",
        "",
        f"{', '.join(measured)}, "
        f"best epoch {result['best_epoch']} of {result['num_epochs']}, {machine['seconds']:.0f} s",
        "",
    )
    if "coefficients" in record:
        _show_coefficients(record["coefficients"])
    show(f"run folder  {folder}", f"page        adagpr report {folder}")


def _show_coefficients(layers: Sequence[Sequence[float]], mean: str = "") -> None:
    """Prints the weight of each hop in each layer."""
    shown, caption = hops_that_fit(len(layers[0]), taken=8, each=7, rest="record.json")
    zero = "·" if open_console().encoding.startswith("utf") else "."
    rows = [
        (Text(f"{layer:>5}"), *(_shade(value, zero) for value in row[:shown])) for layer, row in enumerate(layers, 1)
    ]
    headings = ["layer", *(f"hop {hop}" for hop in range(shown))]
    show_section(f"How much of each hop each layer uses{mean}", table(headings, rows, caption=caption))


def _show_each(runs: Sequence[Run]) -> None:
    """Prints one row per run."""
    rows = []
    for run in runs:
        config, scores = run.record["config"], flat_scores(run.record["result"])
        measured = (_percent(scores[name]) if name in scores else "" for name in ("test_acc", "val_acc"))
        seed = str(config["training"]["seed"])
        rows.append((config["data"]["split"], seed, *measured, str(run.best_epoch), str(run.num_epochs)))
    show(table(["split", "seed", "test accuracy", "validation accuracy", "best epoch", "epochs"], rows), "")


def _show_means(runs: Sequence[Run], baseline_runs: Sequence[Run], with_f1: bool) -> None:
    """Prints accuracies, their spread over several runs, and of a single run its epochs and time."""
    rows: list[tuple[str, str | Text]] = []
    for name, f1_name, key, group in (
        ("test accuracy", "test macro F1", "test_acc", runs),
        ("without the graph", "its macro F1", "test_acc", baseline_runs),
        ("validation accuracy", "", "val_acc", runs),
    ):
        summary = summarise(group)
        if key in summary:
            spread = f" +- {100 * summary[f'{key}_std']:.1f} over {len(runs)} runs" if len(runs) > 1 else ""
            mean = _percent(summary[key]) + spread
            rows.append((name, bold(mean) if name == "test accuracy" else mean))
            if with_f1 and f1_name:
                rows.append((f1_name, f"{fmean(run.score('test', 'macro_f1') for run in group):.3f}"))
    if len(runs) == 1:
        rows.append(("best epoch", f"{runs[0].best_epoch} of {runs[0].num_epochs}"))
        rows.append(("training time", f"{runs[0].record['machine']['seconds']:.1f} s"))
    show(facts(rows), "")


def _shade(value: float, zero: str) -> Text:
    """A coefficient, the brighter the larger; an exact zero is a dot."""
    if value == 0:
        return Text(zero, style="dim")
    style = "bold green" if value >= 0.5 else "green" if value >= 0.1 else ""
    return Text(f"{value:.3f}", style=style)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
