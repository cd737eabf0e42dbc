"""The charts of a page as matplotlib figures, and as files for a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adagpr.charts import figure, picture_files
from adagpr.errors import InputError, unknown_name
from adagpr.files import make_folder, write_bytes
from adagpr.reporting.charts import SECTIONS
from adagpr.reporting.reported_model import read_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plots:
    """Figures of a run by name, and the files that they were written to."""

    figures: Mapping[str, Figure]
    files: tuple[Path, ...]


def plot(
    run: Path | str, out: Path | str | None = None, *, only: Sequence[str] = (), data_root: Path | str | None = None
) -> Plots:
    """Draws the charts of a run, or of several runs of one model.

    Args:
        run: Folder of a run, or of several.
        out: Folder for the figures as PDF, PNG and SVG; none are written without it.
        only: Which sections: ``coefficients``, ``evolution``, ``training``, ``worth``, ``filter``, ``smoothing``,
            ``trust`` or ``bound``. By default all that there is something to draw for.
        data_root: Folder of the data files; see `adagpr.load`.

    Raises:
        InputError: There is no such section, no complete run, or nothing to draw.
    """
    for name in only:
        if name not in SECTIONS:
            raise unknown_name("picture", name, tuple(SECTIONS))
    model = read_model(run, data_root=data_root)
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
    make_folder(Path(out))
    files = []
    for name, drawn in figures.items():
        for ending, content in picture_files(drawn).items():
            files.append(Path(out) / f"{name}.{ending}")
            write_bytes(files[-1], content)
    return Plots(figures, tuple(files))
