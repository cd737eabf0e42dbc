"""The pictures of a page as files for a paper: PDF, PNG and SVG from the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from adagpr.errors import InputError, unknown_name
from adagpr.experiments.figures import COLOURS, evolution_figure, new_figure, save_figure
from adagpr.files import make_folder
from adagpr.reporting.charts import Chart, ramp
from adagpr.reporting.parts import PARTS
from adagpr.reporting.subject import ReportedModel, read_subject

__all__ = ["PICTURES", "write_figures"]

# A legend has at most so many names, and a heat map with numbers in it at most so many boxes.
_MOST_NAMED, _MOST_WRITTEN = 12, 300

PICTURES = tuple(anchor for anchor, _, _ in PARTS)


def write_figures(
    folder: Path | str,
    out: Path | str,
    *,
    only: tuple[str, ...] = (),
    data_root: Path | str | None = None,
) -> list[Path]:
    """Draws the pictures of a run, or of several runs of one model.

    Args:
        folder: Folder of a run, or of several.
        out: Folder of the pictures.
        only: Which of `PICTURES`, by default all that there is something to draw for.
        data_root: Folder of the data files; see `adagpr.load`.

    Returns:
        The files.

    Raises:
        InputError: There is no such picture, no complete run, or nothing to draw.
    """
    for name in only:
        if name not in PICTURES:
            raise unknown_name("picture", name, PICTURES)
    subject = read_subject(folder, data_root=data_root)
    drawn: list[tuple[str, list[Chart]]] = []
    for anchor, _, draw in PARTS:
        charts = draw(subject) if not only or anchor in only else []
        if charts:
            drawn.append((anchor, charts))
    if not drawn:
        raise InputError(f"There is nothing to draw of {folder}. {' '.join(subject.left_out)}".strip())
    target = Path(out)
    make_folder(target)
    files: list[Path] = []
    for anchor, charts in drawn:
        if anchor == "evolution":
            files += _evolution(subject, charts, target)
        else:
            files += [file for chart in charts for file in _save(chart, target)]
    return files


def _evolution(subject: ReportedModel, charts: list[Chart], out: Path) -> list[Path]:
    epochs = [row[0] for row in charts[0].rows]
    coeffs = [[chart.rows[place][1:] for chart in charts] for place in range(len(epochs))]
    return evolution_figure(out / "evolution", subject.name, epochs, coeffs, subject.first.best_epoch)


def _save(chart: Chart, out: Path) -> list[Path]:
    height = 3.4 if chart.kind == "lines" else 0.8 + 0.3 * len(chart.rows)
    figure, pyplot = new_figure(width=5.2, height=min(max(height, 2.2), 12.0))
    panel = figure.subplots()
    _DRAWERS[chart.kind](panel, chart)
    panel.set_title(chart.title, fontsize=11)
    return save_figure(figure, pyplot, out / chart.name)


def _lines(panel: Any, chart: Chart) -> None:
    x = [row[0] for row in chart.rows]
    for number, name in enumerate(chart.headings[1 : chart.num_series + 1]):
        pairs = [(a, row[number + 1]) for a, row in zip(x, chart.rows, strict=True) if row[number + 1] is not None]
        colour, width = ("black", 2.2) if name in chart.bold else (ramp(number, chart.num_series), 1.3)
        label = name if chart.num_series <= _MOST_NAMED or name in chart.bold else None
        if pairs:
            panel.plot(*zip(*pairs, strict=True), color=colour, linewidth=width, label=label)
    if chart.mark is not None:
        panel.axvline(chart.mark[0], color="#999999", linewidth=0.8, linestyle="--")
    low, high = panel.get_ylim()
    if chart.span is not None:
        panel.set_ylim(min(low, chart.span[0]), max(high, chart.span[1]))
    panel.set_xlabel(chart.headings[0])
    panel.figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=4)


def _bars(panel: Any, chart: Chart) -> None:
    count = chart.num_series
    places = range(len(chart.rows))
    for number in range(count):
        at = [place + (number - (count - 1) / 2) * 0.4 for place in places]
        values = [row[number + 1] for row in chart.rows]
        colour = COLOURS[0] if number == 0 else "#b5bec8"
        panel.barh(at, values, height=0.8 / count, color=colour, label=chart.headings[number + 1])
    panel.set_yticks(list(places), [str(row[0]) for row in chart.rows], fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel(chart.headings[1] if count == 1 else "accuracy in %")
    if count > 1:
        panel.figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=count)


def _heat_map(panel: Any, chart: Chart) -> None:
    values = [list(row[1:]) for row in chart.rows]
    shares = [[value / (sum(row) or 1) for value in row] if chart.by_row else row for row in values]
    panel.imshow(shares, cmap="Blues", aspect="auto", vmin=0, vmax=1)
    panel.set_xticks(range(len(chart.headings) - 1), chart.headings[1:], fontsize=8)
    every = max(1, len(chart.rows) // 32)
    panel.set_yticks(range(0, len(chart.rows), every), [str(row[0]) for row in chart.rows[::every]], fontsize=8)
    panel.set_ylabel(chart.headings[0])
    panel.set_xlabel(chart.column_title)
    if len(values) * len(values[0]) <= _MOST_WRITTEN:
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                words = f"{value:d}" if isinstance(value, int) else f"{value:.2f}" if value else "0"
                colour = "white" if shares[y][x] > 0.6 else "black"
                panel.text(x, y, words, ha="center", va="center", fontsize=7, color=colour)


_DRAWERS: dict[str, Callable[[Any, Chart], None]] = {"lines": _lines, "bars": _bars, "heat map": _heat_map}
