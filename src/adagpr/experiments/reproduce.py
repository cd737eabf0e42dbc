"""The paper's tables and figures, each from the records of its cells, written as files for people and programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adagpr.experiments.catalogue import Cell
from adagpr.experiments.figures import ablation_figure, evolution_figure
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
from adagpr.files import make_folder, read_json, write_json, write_text
from adagpr.insight import Comparison, compare
from adagpr.training import load_run
from adagpr.training.run import coefficient_column

__all__ = ["Report", "report"]

# A cell and its record.
Found = tuple[Cell, dict[str, Any]]

# So many points of a training are kept for the figure of its coefficients.
_MOST_POINTS = 300
_CURVE = "evolution-texas.json"


@dataclass(frozen=True)
class Report:
    """What a target came to.

    Attributes:
        target: Its name.
        tables: For people.
        rows: The same for programs, a line of CSV each.
        plain: The same, or what else it found, for JSON.
        draw: Draws its figures into a folder and returns the files.
    """

    target: str
    tables: Sequence[Table]
    rows: Sequence[dict[str, Any]]
    plain: Sequence[dict[str, Any]]
    draw: Callable[[Path], list[Path]] = lambda out: []

    @property
    def text(self) -> str:
        """The tables as Markdown."""
        return "\n".join(table.to_markdown() for table in self.tables)

    def save(self, out: Path) -> list[Path]:
        """Writes tables and figures below ``out`` and returns the files."""
        make_folder(out)
        files = self.draw(out)
        latex = "\n".join(table.to_latex() for table in self.tables)
        for kind, text in {"md": self.text, "tex": latex, "csv": to_csv(self.rows)}.items():
            files.append(out / f"{self.target}.{kind}")
            write_text(files[-1], text)
        files.append(out / f"{self.target}.json")
        write_json(files[-1], self.plain)
        return files


def report(target: str, cells: Sequence[Cell], folders: Folders) -> Report:
    """Makes a target's tables from the records that there are.

    Args:
        target: One of `adagpr.experiments.plan.TARGETS`.
        cells: Its cells, or some of them.
        folders: Where their records and runs are.
    """
    found = [(cell, record) for cell in cells if (record := read_record(folders, cell)) is not None]
    return _MAKERS.get(target, _accuracies)(target, found, folders)


def _accuracies(target: str, found: Sequence[Found], folders: Folders) -> Report:
    return _of_rows(target, accuracy_rows(record for _, record in found))


def _of_rows(target: str, rows: Sequence[Row], draw: Callable[[Path], list[Path]] = lambda out: []) -> Report:
    plain = [row.plain() for row in rows]
    return Report(target, [accuracy_table(rows)], plain, plain, draw)


def _properties(target: str, found: Sequence[Found], folders: Folders) -> Report:
    rows = property_rows()
    plain = [row.plain() for row in rows]
    return Report(target, [property_table(rows)], plain, plain)


def _coefficients(target: str, found: Sequence[Found], folders: Folders) -> Report:
    tables: list[Table] = []
    rows: list[dict[str, Any]] = []
    plain: list[dict[str, Any]] = []
    for cell, record in found:
        if any("coefficients" not in run for run in record["runs"]):
            continue
        each = np.array([run["coefficients"] for run in record["runs"]])
        ours = each.mean(0)
        printed = np.array(cell.coefficients)
        remark = pattern(cell.row.dataset, each)
        about = {
            "table": target,
            "dataset": cell.row.dataset,
            "model": cell.row.method,
            "num_layers": cell.layers,
            "num_runs": record["num_runs"],
        }
        plain.append(
            {
                **about,
                "ours": ours.round(4).tolist(),
                "published": printed.tolist(),
                "largest_difference": round(float(np.abs(ours - printed).max()), 4),
                "pattern": remark,
            }
        )
        rows += [
            {**about, "layer": layer + 1, "hop": hop, "ours": round(float(value), 4), "published": printed[layer, hop]}
            for (layer, hop), value in np.ndenumerate(ours)
        ]
        title = f"{cell.row.dataset}, {cell.layers} layers, mean of {record['num_runs']} runs (printed in brackets)"
        tables.append(coefficient_table(title, remark, ours.tolist(), printed.tolist()))
    return Report(target, tables, rows, plain)


def pattern(dataset: str, coeffs: np.ndarray) -> str:
    """In how many runs the coefficients have the pattern that the paper describes for a data set, in a sentence.

    Args:
        dataset: Name of the data set.
        coeffs: The coefficients, ``[runs, layers, hops]``.
    """
    first, last = coeffs[..., 0], coeffs[..., -1]
    holds: Any
    if dataset == "chameleon":
        said, holds = "Layer 1 at hop 0 and layer 2 at hop 1", (first[:, 0] > 0.5) & (coeffs[:, 1, 1] > 0.5)
    elif dataset == "texas":
        said, holds = "All layers at hop 0 alone", (first > 0.99).all(1)
    elif dataset == "citeseer":
        said, holds = "Hop 0 grows with every layer from layer 8 on", (np.diff(first[:, 7:]) > 0).all(1)
    elif dataset == "cornell":
        said = "Less of hop 1 in layer 2 than in layer 1, none of it in later layers"
        holds = (last[:, 0] > last[:, 1]) & (first[:, 2:] > 0.99).all(1)
    else:
        said = "Every layer uses all hops, and the last hop weighs less in layer 7 than in layer 1"
        holds = (coeffs > 0).all((1, 2)) & (last[:, -2] < last[:, 0])
    return f"{said}: so in {int(holds.sum())} of {len(holds)} runs."


def _evolution(target: str, found: Sequence[Found], folders: Folders) -> Report:
    rows = accuracy_rows(record for _, record in found)
    plain, claim = [row.plain() for row in rows], ""
    tested: list[dict[str, Any]] = []
    by_table = {cell.row.table: (cell, record) for cell, record in found}
    if len(by_table) == 2:
        (learned, _), (fixed, _) = by_table[3], by_table["hop0"]
        compared = compare(folders.record(learned), folders.record(fixed))
        claim = _claim(compared)
        tested.append({"table": target, "claim": claim, **compared.to_plain()})
    curve = _curve(by_table[3][1], folders) if 3 in by_table else None

    def draw(out: Path) -> list[Path]:
        if curve is None:
            return []
        write_json(out / _CURVE, curve)
        title = "Texas, split 0: coefficients over training"
        files = evolution_figure(out / target, title, curve["epochs"], curve["coefficients"], curve["best_epoch"])
        return [*files, out / _CURVE]

    return Report(target, [accuracy_table(rows, claim)], plain, [*plain, *tested], draw)


def _claim(found: Comparison) -> str:
    spread = ""
    if found.t_interval is not None:
        low, high = found.t_interval
        spread = f" (95 % interval {low:+.2f} to {high:+.2f})"
    return (
        f"Learned coefficients against coefficients at hop 0 from the start, paired over {len(found.pairs)} splits: "
        f"{found.mean_difference:+.2f} points{spread}, p = {found.p_value:.3f}."
    )


def _curve(record: dict[str, Any], folders: Folders) -> dict[str, Any] | None:
    """The coefficients over the training of the first split: from the run, else as kept beside the records."""
    kept = folders.records.parent / _CURVE
    folder = folders.runs / record["runs"][0]["config"]
    if not (folder / "record.json").exists():
        curve: dict[str, Any] = read_json(kept) if kept.exists() else {}
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


def _ablation(target: str, found: Sequence[Found], folders: Folders) -> Report:
    rows = accuracy_rows(record for _, record in found)

    def draw(out: Path) -> list[Path]:
        files = []
        for name in sorted({row.dataset for row in rows}):
            series: dict[str, list[tuple[int, float]]] = {}
            for row in rows:
                if row.dataset == name and row.num_layers is not None:
                    series.setdefault(row.model, []).append((row.num_layers, row.ours))
            files += ablation_figure(out / f"{target}-{name}", f"{name.capitalize()}, public split", series)
        return files

    return _of_rows(target, rows, draw)


_MAKERS: dict[str, Callable[[str, Sequence[Found], Folders], Report]] = {
    "table1": _properties,
    "coefficients": _coefficients,
    "evolution": _evolution,
    "ablation": _ablation,
}
