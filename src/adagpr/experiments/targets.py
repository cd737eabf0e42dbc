"""The paper's tables and figures, each from the records of its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adagpr.charts import COLOURS, Axis, Line, Lines, figure, picture_files
from adagpr.experiments.catalogue import Cell
from adagpr.experiments.runner import Folders, read_record
from adagpr.experiments.tables import (
    Row,
    Table,
    accuracy_rows,
    accuracy_table,
    coefficient_table,
    property_rows,
    property_table,
    to_csv,
)
from adagpr.files import make_folder, write_bytes, write_json, write_text
from adagpr.insight import Comparison, compare
from adagpr.schemas import CoefficientCurve, read_json
from adagpr.training import coefficient_column, load_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Found = tuple[Cell, dict[str, Any]]  # a cell and its record

# So many points of a training are kept for the figure of its coefficients.
_MOST_POINTS = 300
_CURVE = "evolution-texas.json"


@dataclass(frozen=True)
class TargetReport:
    """What a target came to."""

    target: str
    tables: Sequence[Table]  # for people
    rows: Sequence[dict[str, Any]]  # the same for programs, one line of CSV each
    plain: Sequence[dict[str, Any]]  # the same, and what else it found, for JSON
    drawings: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)  # what draws its figures, by name
    data: Mapping[str, Any] = field(default_factory=dict)  # further JSON files by name

    @property
    def text(self) -> str:
        """The tables as Markdown."""
        return "\n".join(table.to_markdown() for table in self.tables)

    def save(self, out: Path) -> list[Path]:
        """Writes tables and figures below ``out`` and returns the files."""
        make_folder(out)
        files = []
        for name, draw in self.drawings.items():
            for ending, content in picture_files(draw()).items():
                files.append(out / f"{name}.{ending}")
                write_bytes(files[-1], content)
        latex = "\n".join(table.to_latex() for table in self.tables)
        for ending, text in {"md": self.text, "tex": latex, "csv": to_csv(self.rows)}.items():
            files.append(out / f"{self.target}.{ending}")
            write_text(files[-1], text)
        for name, plain in {**self.data, f"{self.target}.json": self.plain}.items():
            files.append(out / name)
            write_json(files[-1], plain)
        return files


def report_target(target: str, cells: Sequence[Cell], folders: Folders) -> TargetReport:
    """Makes the tables of one of `adagpr.experiments.TARGETS` from the records that there are of these cells."""
    found = [(cell, record) for cell in cells if (record := read_record(folders.record(cell), cell)) is not None]
    if target == "table1":
        properties = property_rows()
        return TargetReport(target, [property_table(properties)], properties, properties)
    if target == "coefficients":
        return _coefficients(found)
    rows = accuracy_rows(record for _, record in found)
    if target == "evolution":
        return _evolution(rows, found, folders)
    drawings = _depth_figures(rows) if target == "ablation" else {}
    plain = [row.to_plain() for row in rows]
    return TargetReport(target, [accuracy_table(rows)], plain, plain, drawings)


def _coefficients(found: Sequence[Found]) -> TargetReport:
    tables: list[Table] = []
    rows: list[dict[str, Any]] = []
    plain: list[dict[str, Any]] = []
    for cell, record in found:
        if any("coefficients" not in run for run in record["runs"]):
            continue
        each = np.array([run["coefficients"] for run in record["runs"]])
        ours, printed = each.mean(0), np.array(cell.coefficients)
        remark = pattern(cell.row.dataset, each)
        about: dict[str, Any] = {"table": "coefficients", "dataset": cell.row.dataset, "model": cell.row.method}
        about |= {"num_layers": cell.layers, "num_runs": record["num_runs"]}
        largest = round(float(np.abs(ours - printed).max()), 4)
        values = {"ours": ours.round(4).tolist(), "published": printed.tolist(), "largest_difference": largest}
        plain.append({**about, **values, "pattern": remark})
        rows += [
            {**about, "layer": layer + 1, "hop": hop, "ours": round(float(value), 4), "published": printed[layer, hop]}
            for (layer, hop), value in np.ndenumerate(ours)
        ]
        title = f"{cell.row.dataset}, {cell.layers} layers, mean of {record['num_runs']} runs (printed in brackets)"
        tables.append(coefficient_table(title, remark, ours.tolist(), printed.tolist()))
    return TargetReport("coefficients", tables, rows, plain)


def pattern(dataset: str, coeffs: np.ndarray) -> str:
    """In how many runs ``coeffs``, ``[runs, layers, hops]``, have the pattern that the paper describes."""
    first, last = coeffs[..., 0], coeffs[..., -1]
    holds: Any
    if dataset == "chameleon":
        claim, holds = "Layer 1 at hop 0 and layer 2 at hop 1", (first[:, 0] > 0.5) & (coeffs[:, 1, 1] > 0.5)
    elif dataset == "texas":
        claim, holds = "All layers at hop 0 alone", (first > 0.99).all(1)
    elif dataset == "citeseer":
        claim, holds = "Hop 0 grows with every layer from layer 8 on", (np.diff(first[:, 7:]) > 0).all(1)
    elif dataset == "cornell":
        claim = "Less of hop 1 in layer 2 than in layer 1, none of it in later layers"
        holds = (last[:, 0] > last[:, 1]) & (first[:, 2:] > 0.99).all(1)
    else:
        claim = "Every layer uses all hops, and the last hop weighs less in layer 7 than in layer 1"
        holds = (coeffs > 0).all((1, 2)) & (last[:, -2] < last[:, 0])
    return f"{claim}: so in {int(holds.sum())} of {len(holds)} runs."


def _evolution(rows: Sequence[Row], found: Sequence[Found], folders: Folders) -> TargetReport:
    plain, claim = [row.to_plain() for row in rows], ""
    tested: list[dict[str, Any]] = []
    by_table = {cell.row.table: (cell, record) for cell, record in found}
    if len(by_table) == 2:
        (learned, _), (fixed, _) = by_table[3], by_table["hop0"]
        compared = compare(folders.record(learned), folders.record(fixed))
        claim = _claim(compared)
        tested.append({"table": "evolution", "claim": claim, **compared.to_plain()})
    curve = _curve(by_table[3][1], folders) if 3 in by_table else None
    drawings = {} if curve is None else {"evolution": partial(_curve_figure, curve)}
    data = {} if curve is None else {_CURVE: curve}
    return TargetReport("evolution", [accuracy_table(rows, claim)], plain, [*plain, *tested], drawings, data)


def _claim(found: Comparison) -> str:
    interval = found.t_interval
    spread = "" if interval is None else f" (95 % interval {interval[0]:+.2f} to {interval[1]:+.2f})"
    return (
        f"Learned coefficients against coefficients at hop 0 from the start, paired over {len(found.pairs)} splits: "
        f"{found.mean_difference:+.2f} points{spread}, p = {found.p_value:.3f}."
    )


def _curve(record: dict[str, Any], folders: Folders) -> dict[str, Any] | None:
    """The coefficients over the training of the first split: from the run, else as kept beside the records."""
    kept = folders.records.parent / _CURVE
    folder = folders.runs / record["runs"][0]["config"]
    if not (folder / "record.json").exists():
        curve = read_json(kept, CoefficientCurve, "Remove the file to leave the curve out.") if kept.exists() else {}
        return curve if curve.get("config") == folder.name else None
    run = load_run(folder)
    num_layers, num_hops = np.shape(run.record["coefficients"])
    names = [coefficient_column(layer, hop) for layer in range(1, num_layers + 1) for hop in range(num_hops)]
    values = np.stack([run.history[name].to_numpy() for name in names], axis=1).reshape(-1, num_layers, num_hops)
    step = -(-len(values) // _MOST_POINTS)
    return {
        "config": folder.name,
        "best_epoch": run.best_epoch,
        "epochs": list(range(1, len(values) + 1, step)),
        "coefficients": values[::step].round(4).tolist(),
    }


def _curve_figure(curve: dict[str, Any]) -> Figure:
    """Every coefficient over training, one panel per layer, with the epoch that validation chose."""
    coeffs = np.array(curve["coefficients"])
    panels = [
        Lines(
            name=f"layer-{layer + 1}",
            title=f"layer {layer + 1}",
            x=Axis("epoch"),
            at=curve["epochs"],
            lines=[Line(f"hop {hop}", coeffs[:, layer, hop].tolist(), COLOURS[hop]) for hop in range(coeffs.shape[2])],
            y=Axis("coefficient", includes=(0.0, 1.0)),
            mark=(curve["best_epoch"], "best epoch"),
        )
        for layer in range(coeffs.shape[1])
    ]
    return figure(panels, title="Texas, split 0: coefficients over training", legend="right")


def _depth_figures(rows: Sequence[Row]) -> dict[str, Callable[[], Figure]]:
    """Accuracy over depth, one figure per data set and one line per method."""
    found: dict[str, Callable[[], Figure]] = {}
    for dataset in sorted({row.dataset for row in rows}):
        values = {(row.model, row.num_layers): row.ours for row in rows if row.dataset == dataset and row.num_layers}
        depths = sorted({layers for _, layers in values if layers})
        methods = dict.fromkeys(method for method, _ in values)
        chart = Lines(
            name=f"ablation-{dataset}",
            title=f"{dataset.capitalize()}, public split",
            x=Axis("layers", is_log=True, ticks=tuple((depth, str(depth)) for depth in depths)),
            at=depths,
            lines=[
                Line(method, [values.get((method, depth)) for depth in depths], COLOURS[number], has_dots=True)
                for number, method in enumerate(methods)
            ],
            y=Axis("test accuracy in %"),
        )
        found[chart.name] = partial(figure, chart)
    return found
