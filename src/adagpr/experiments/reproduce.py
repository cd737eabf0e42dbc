"""The paper's tables and figures, each from the records of its tasks, written as files for people and programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from adagpr.experiments.comparison import Comparison, compare
from adagpr.experiments.figures import ablation_figure, evolution_figure
from adagpr.experiments.plan import Task
from adagpr.experiments.runner import Folders, read_record
from adagpr.experiments.tables import Property, Row, accuracy_rows, property_rows, to_csv, to_latex, to_markdown
from adagpr.files import make_folder, read_json, write_json, write_text
from adagpr.training import load_run

__all__ = ["Report", "report"]

# So many points of a training are kept for the figure of its coefficients.
_MOST_POINTS = 300


@dataclass(frozen=True)
class Report:
    """What a target came to.

    Attributes:
        target: Its name.
        rows: The rows of its table, where it is one.
        plain: The same, or what else it found, for JSON.
        text: Markdown.
        files: What was written.
    """

    target: str
    rows: Sequence[Row] | Sequence[Property]
    plain: list[dict[str, Any]]
    text: str
    files: list[Path] = field(default_factory=list)


def report(target: str, tasks: Sequence[Task], folders: Folders, out: Path) -> Report:
    """Makes a target's tables and figures from the records that there are, and writes them under ``out``.

    Args:
        target: One of `adagpr.experiments.plan.TARGETS`.
        tasks: Its tasks.
        folders: Where their records and runs are.
        out: Folder of the files.
    """
    make_folder(out)
    records = [record for task in tasks if (record := read_record(folders, task)) is not None]
    made = _MAKERS.get(target, _accuracies)(target, tasks, records, folders, out)
    texts = {"md": made.text, "json": None}
    if made.rows:
        texts |= {"tex": to_latex(made.rows), "csv": to_csv(made.rows)}
    for kind, text in texts.items():
        path = out / f"{target}.{kind}"
        if text is None:
            write_json(path, made.plain)
        else:
            write_text(path, text)
        made.files.append(path)
    return made


def _accuracies(
    target: str, tasks: Sequence[Task], records: list[dict[str, Any]], folders: Folders, out: Path
) -> Report:
    rows: Sequence[Row] | Sequence[Property] = accuracy_rows(records)
    return Report(target, rows, [row.plain() for row in rows], to_markdown(rows))


def _properties(
    target: str, tasks: Sequence[Task], records: list[dict[str, Any]], folders: Folders, out: Path
) -> Report:
    rows = property_rows()
    return Report(target, rows, [row.plain() for row in rows], to_markdown(rows))


def _coefficients(
    target: str, tasks: Sequence[Task], records: list[dict[str, Any]], folders: Folders, out: Path
) -> Report:
    parts, plain = [], []
    for task in tasks:
        record = read_record(folders, task)
        if record is None or any("coefficients" not in run for run in record["runs"]):
            continue
        each = np.array([run["coefficients"] for run in record["runs"]])
        ours = each.mean(0)
        printed = np.array(task.row.coefficients[str(task.cell.layers)])
        remark = pattern(task.row.data.name, each)
        plain.append(
            {
                "table": target,
                "dataset": task.row.data.name,
                "model": task.row.method,
                "num_layers": task.cell.layers,
                "ours": ours.round(4).tolist(),
                "published": printed.tolist(),
                "largest_difference": round(float(np.abs(ours - printed).max()), 4),
                "num_runs": record["num_runs"],
                "pattern": remark,
            }
        )
        lines = [
            f"### {task.row.data.name}, {task.cell.layers} layers, mean of {record['num_runs']} runs",
            "",
            remark,
            "",
        ]
        hops = [f"hop {hop}" for hop in range(ours.shape[1])]
        lines += [f"| layer | {' | '.join(hops)} |", f"| --- |{' --- |' * len(hops)}"]
        for number, (own, given) in enumerate(zip(ours, printed, strict=True), start=1):
            cells = [f"{a:.3f} ({b:.3f})" for a, b in zip(own, given, strict=True)]
            lines.append(f"| {number} | {' | '.join(cells)} |")
        parts.append("\n".join(lines) + "\n")
    text = "Ours, and in brackets what is printed.\n\n" + "\n".join(parts)
    return Report(target, [], plain, text)


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


def _evolution(
    target: str, tasks: Sequence[Task], records: list[dict[str, Any]], folders: Folders, out: Path
) -> Report:
    rows = accuracy_rows(records)
    text, plain = to_markdown(rows), [row.plain() for row in rows]
    files: list[Path] = []
    learned, fixed = (next((task for task in tasks if task.row.table == table), None) for table in (3, "hop0"))
    if learned is not None and (curve := _curve(learned, folders, out)) is not None:
        title = "Texas, split 0: coefficients over training"
        files = evolution_figure(out / target, title, curve["epochs"], curve["coefficients"], curve["best_epoch"])
        files.append(out / "evolution-texas.json")
    if learned is not None and fixed is not None and len(records) == 2:
        found = compare(folders.record(learned), folders.record(fixed))
        text += f"\n{_claim(found)}\n"
        plain.append({"table": target, "claim": _claim(found), **found.to_plain()})
    return Report(target, rows, plain, text, files)


def _claim(found: Comparison) -> str:
    low, high = found.t_interval
    return (
        f"Learned coefficients against coefficients at hop 0 from the start, paired over {len(found.pairs)} splits: "
        f"{found.mean_difference:+.2f} points (95 % interval {low:+.2f} to {high:+.2f}), p = {found.p_value:.3f}."
    )


def _curve(task: Task, folders: Folders, out: Path) -> dict[str, Any] | None:
    """The coefficients over the training of the first split: from the run, else as kept beside the figure."""
    path = out / "evolution-texas.json"
    record = read_record(folders, task)
    folder = None if record is None else folders.runs / record["runs"][0]["config"]
    if folder is None or not (folder / "record.json").exists():
        return dict(read_json(path)) if path.exists() else None
    run = load_run(folder)
    num_layers, num_hops = np.shape(run.record["coefficients"])
    names = [name for name in run.history.column_names if name.startswith("coeff")]
    values = np.stack([run.history[name].to_numpy() for name in names], axis=1).reshape(-1, num_layers, num_hops)
    step = -(-len(values) // _MOST_POINTS)
    curve = {
        "config": record["runs"][0]["config"] if record else "",
        "best_epoch": run.best_epoch,
        "epochs": list(range(1, len(values) + 1, step)),
        "coefficients": values[::step].round(4).tolist(),
    }
    write_json(path, curve)
    return curve


def _ablation(target: str, tasks: Sequence[Task], records: list[dict[str, Any]], folders: Folders, out: Path) -> Report:
    rows = accuracy_rows(records)
    files = []
    for name in sorted({row.dataset for row in rows}):
        series: dict[str, list[tuple[int, float]]] = {}
        for row in rows:
            if row.dataset == name and row.num_layers is not None:
                series.setdefault(row.model, []).append((row.num_layers, row.ours))
        files += ablation_figure(out / f"{target}-{name}", f"{name.capitalize()}, public split", series)
    return Report(target, rows, [row.plain() for row in rows], to_markdown(rows), files)


_MAKERS: dict[str, Callable[[str, Sequence[Task], list[dict[str, Any]], Folders, Path], Report]] = {
    "table1": _properties,
    "coefficients": _coefficients,
    "evolution": _evolution,
    "ablation": _ablation,
}
