"""``adagpr export``: a trained network without what it does not use, in a file that runs elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Option

import adagpr
from adagpr.cli.console import show_result, table
from adagpr.cli.options import AsJson, DataRoot, RunFiles, TrainedRun

if TYPE_CHECKING:
    from adagpr.exporting import ExportFormat, ExportReport, LayerUse


def export(
    run: TrainedRun,
    format: Annotated[  # noqa: A002 - the name of the flag
        str, Option(metavar="FORMAT", help="Kind of file: safetensors, onnx or torch (a .pt2 program).")
    ] = "safetensors",
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="FILE", help="The file to write. Default: exported.* in the run.")
    ] = None,
    dataset: RunFiles = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Export a run without the hops and layers that it does not use, and show how much that saves.

    For example: adagpr export runs/texas-adagpr-0123 --format onnx -o texas.onnx
    """
    report = adagpr.export(run, cast("ExportFormat", format), out, dataset=dataset, data_root=data_root)
    layers = [
        (
            str(item.layer),
            _hops(item) if item.kept else "left out",
            *(str(item.products), str(item.products_left)),
        )
        for item in report.layers
    ]
    show_result(
        as_json,
        report.to_plain(),
        table(("layer", "hops used", "products", "left"), layers),
        "",
        table(("", "as trained", "exported", "saved"), _savings(report)),
        "",
        *_sentences(report),
    )


def _hops(layer: LayerUse) -> str:
    """The hops that a layer uses; where edges are read both ways, those of each."""
    forward, backward = (", ".join(map(str, hops or ())) or "none" for hops in (layer.hops, layer.backward_hops))
    return forward if layer.backward_hops is None else f"{forward} forward; {backward} backward"


def _savings(report: ExportReport) -> list[tuple[str, ...]]:
    before, after = report.before, report.after
    costs = [
        ("sparse products", before.sparse_products, after.sparse_products),
        ("multiply-adds per node", before.per_node, after.per_node),
        ("multiply-adds per edge", before.per_edge, after.per_edge),
    ]
    if report.measured is not None:
        costs.append(("multiply-adds per pass", report.measured.multiply_adds, report.measured.multiply_adds_left))
    costs.append(("parameters", before.parameters, after.parameters))
    # The z turns a rounded -0.0 into 0.0.
    return [
        (name, f"{old:,}", f"{new:,}", f"{100 * (1 - new / old):z.1f} %" if old else "") for name, old, new in costs
    ]


def _sentences(report: ExportReport) -> list[str]:
    sentences = [*report.remarks, "As trained, every hop of every layer is counted; features count as dense."]
    if (seen := report.measured) is not None:
        sentences.append(
            f"A pass goes over the run's own graph: {seen.num_nodes} nodes, {seen.num_entries} entries of its operator."
            f" No logit differs there by more than {seen.max_difference:.1e}; the largest is {seen.max_logit:.3g}."
        )
    taken = ", ".join(f"{item.name} [{' x '.join(map(str, item.shape))}] {item.dtype}" for item in report.inputs)
    sentences.append(f"It takes {taken}.")
    if report.needs_graph:
        loops = "with" if report.self_loops else "without"
        both = " that is divided at both ends of an edge, read both ways" if report.directions == "both" else ""
        edges = "" if report.format == "safetensors" else "; adagpr.edge_inputs gives its edges"
        sentences.append(f"The operator is that of direction '{report.direction}' {loops} self loops{both}{edges}.")
    else:
        sentences.append("No layer uses the graph, so it runs without one.")
    return [*sentences, f"Written: {report.path} ({report.num_bytes:,} bytes)"]
