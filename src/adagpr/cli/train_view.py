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
from adagpr.task import METRICS, flat_name, flat_scores, primary_of, scores_of_result
from adagpr.training import Run, Runs, scaling_sentence, summarise


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
        *_scaled(runs[0].record),
        "",
    )
    is_own = graph.origin.get("name") == "tables"
    if len(runs) > 1:
        _show_each(runs)
    _show_means(runs, runs.baseline_runs, is_own)
    coefficients = [run.coefficients for run in runs if run.coefficients is not None]
    if coefficients:
        mean = f", mean of {len(runs)} runs" if len(runs) > 1 else ""
        model = runs[0].model
        values = torch.stack(coefficients).mean(0).tolist()
        _show_coefficients(values, model.hop_names(), mean, signed=model.capabilities.signed)
    if graph.notes and not is_own:
        show(f"Before you trust these numbers: adagpr data info {graph.name}", "")
    show(f"run folder  {runs.folder}", f"page        {(runs.folder or Path()) / 'report.html'}")


def show_partition_run(record: dict[str, Any], folder: Path) -> None:
    """Prints size, accuracy, coefficients and the folder of a run on a partition."""
    data, result, machine = record["data"], record["result"], record["machine"]
    scores = scores_of_result(result)
    metric = primary_of(result)
    names = {"test": f"test {METRICS[metric].title}", "val": "validation"}
    measured = [f"{names[key]} {_percent(scores[key][metric])}" for key in names if metric in scores.get(key, {})]
    if metric != "accuracy" and "test" in scores:
        measured.append(f"test accuracy {_percent(scores['test']['accuracy'])}")
    how = "batches of parts, approximate" if data.get("is_approximate") else "exact"
    size = f"{data['num_nodes']:,} nodes, {data['num_edges']:,} edges"
    parts, ranks = pluralize(record["config"]["scale"]["parts"], "part"), pluralize(machine.get("ranks", 1), "rank")
    show(
        f"{data['name']}: {size} in {parts}; {how}, {ranks}",
        *_scaled(record),
        "",
        f"{', '.join(measured)}, "
        f"best epoch {result['best_epoch']} of {result['num_epochs']}, {machine['seconds']:.0f} s",
        "",
    )
    if "coefficients" in record:
        found = record["coefficients"]
        hops = [f"hop {hop}" for hop in range(len(found[0]))]
        _show_coefficients(found, hops, signed=min(map(min, found)) < 0)
    show(f"run folder  {folder}", f"page        adagpr report {folder}")


def _scaled(record: dict[str, Any]) -> list[str]:
    """What was done to the features, if anything was asked for."""
    sentence = scaling_sentence(record)
    return [] if sentence is None else [sentence]


def _show_coefficients(
    layers: Sequence[Sequence[float]], names: Sequence[str], mean: str = "", signed: bool = False
) -> None:
    """Prints the weight of each hop in each layer; the columns are the hops of these names."""
    hops, caption = hops_that_fit(names, taken=8, each=7, rest="record.json")
    zero = "·" if open_console().encoding.startswith("utf") else "."
    shade = _shade_of_sign if signed else _shade
    rows = [
        (Text(f"{layer:>5}"), *(shade(value, zero) for value in row[: len(hops)]))
        for layer, row in enumerate(layers, 1)
    ]
    sentences = [
        "Above 0, blue, a layer adds a hop; below 0, red, it subtracts it. A row with both takes the difference "
        "between what is near and what is farther away."
    ]
    heading, drawn = f"How much of each hop each layer uses{mean}", table(["layer", *hops], rows, caption=caption)
    show_section(heading, drawn, *(sentences if min(map(min, layers)) < 0 else []))


def _show_each(runs: Sequence[Run]) -> None:
    """Prints one row per run."""
    rows, title = [], METRICS[runs[0].metric].title
    for run in runs:
        config, scores = run.record["config"], flat_scores(run.record["result"])
        names = [flat_name(split, run.metric) for split in ("test", "val")]
        measured = (_percent(scores[name]) if name in scores else "" for name in names)
        seed = str(config["training"]["seed"])
        rows.append((config["data"]["split"], seed, *measured, str(run.best_epoch), str(run.num_epochs)))
    show(table(["split", "seed", f"test {title}", f"validation {title}", "best epoch", "epochs"], rows), "")


def _show_means(runs: Sequence[Run], baseline_runs: Sequence[Run], is_own: bool) -> None:
    """Prints mean scores, their spread over several runs, and of a single run its epochs and time."""
    rows: list[tuple[str, str | Text]] = []
    metric = runs[0].metric
    title = METRICS[metric].title
    for name, split, group in (
        (f"test {title}", "test", runs),
        ("without the graph", "test", baseline_runs),
        (f"validation {title}", "val", runs),
    ):
        summary, key = summarise(group), flat_name(split, metric)
        if key not in summary and flat_name(split, "accuracy") in summary:
            where = "test" if split == "test" else "validation"
            rows.append((name, f"undefined: the {where} nodes of a split are all of one class"))
        if key in summary:
            spread = f" +- {100 * summary[f'{key}_std']:.1f} over {len(runs)} runs" if len(runs) > 1 else ""
            mean = _percent(summary[key]) + spread
            rows.append((name, bold(mean) if name == f"test {title}" else mean))
        if group and split == "test":
            words = "its" if group is baseline_runs else "test"
            rows += [(f"{words} {METRICS[other].title}", shown) for other, shown in _others(group, is_own)]
    if len(runs) == 1:
        rows.append(("best epoch", f"{runs[0].best_epoch} of {runs[0].num_epochs}"))
        rows.append(("training time", f"{runs[0].record['machine']['seconds']:.1f} s"))
    show(facts(rows), "")


def _others(runs: Sequence[Run], is_own: bool) -> list[tuple[str, str]]:
    """Test scores besides the metric of the runs: of a person's own tables, and of two classes, all that there are."""
    scores = [scores_of_result(run.record["result"]).get("test", {}) for run in runs]
    of_two = any(METRICS[name].for_two_classes for each in scores for name in each if name in METRICS)
    found = []
    for name in METRICS:
        values = [each[name] for each in scores if name in each]
        is_wanted = METRICS[name].for_two_classes or is_own or name == "accuracy" or (of_two and name != "macro_f1")
        if values and is_wanted and name != runs[0].metric:
            found.append((name, f"{fmean(values):.3f}" if name == "macro_f1" else _percent(fmean(values))))
    return found


def _shade(value: float, zero: str) -> Text:
    """A coefficient, the brighter the larger; an exact zero is a dot."""
    if value == 0:
        return Text(zero, style="dim")
    style = "bold green" if value >= 0.5 else "green" if value >= 0.1 else ""
    return Text(f"{value:.3f}", style=style)


def _shade_of_sign(value: float, zero: str) -> Text:
    """A coefficient of either sign, blue above 0 and red below."""
    if value == 0:
        return Text(zero, style="dim")
    colour = "bright_blue" if value > 0 else "red"
    return Text(f"{value:+.3f}", style=f"bold {colour}" if abs(value) >= 0.5 else colour)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
