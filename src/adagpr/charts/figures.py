"""Charts drawn by matplotlib: figure objects, and their files for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from io import BytesIO
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from adagpr.charts.chart import COLOURS, Axis, Bars, Chart, Dots, HeatMap, Lines, log_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Columns of a figure with several charts, names in a legend, boxes of a heat map with numbers in them, and its columns
# whose names have room for two lines.
_MOST_COLUMNS, _MOST_NAMED, _MOST_WRITTEN, _MOST_TWO_LINES = 4, 12, 300, 8
_ROLES = {"main": COLOURS[0], "faint": "#b5bec8", "soft": "#777777", "text": "black"}
_ROLES |= {"plus": "#2468b0", "minus": "#c03a2b"}
_LEGENDS: dict[str, Any] = {
    "below": {"loc": "outside lower center", "ncols": 4},
    "right": {"loc": "outside right center", "ncols": 1},
}
_DOTS: dict[str, dict[str, Any]] = {
    "complete": {"color": COLOURS[0], "alpha": 0.75, "s": 18},
    "pruned": {"facecolors": "none", "edgecolors": "#777777", "s": 18},
    "best": {"color": COLOURS[1], "s": 45, "zorder": 3},
}


def figure(
    charts: Chart | Sequence[Chart],
    *,
    title: str = "",
    size: tuple[float, float] | None = None,
    legend: Literal["below", "right"] = "below",
) -> Figure:
    """One chart, or several in panels that share their vertical axis and their legend, as a matplotlib figure.

    ``title`` is the line above several charts; ``size`` is width and height in inches, by default by what is drawn.
    """
    from matplotlib.figure import Figure

    several = [charts] if isinstance(charts, Chart) else list(charts)
    columns = min(len(several), _MOST_COLUMNS)
    rows = -(-len(several) // columns)
    default = _size(several[0]) if len(several) == 1 else (3.1 * columns, 2.6 * rows + 0.3)
    drawn = Figure(figsize=size or default, layout="constrained")
    panels = drawn.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for number, (chart, panel) in enumerate(zip(several, panels, strict=False)):
        panel.set_title(chart.title, fontsize=11 if len(several) == 1 else 10)
        _draw(chart, panel)
        if number % columns:
            panel.set_ylabel("")
    _widen(several, list(panels))
    for panel in panels[len(several) :]:
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    if labels:
        drawn.legend(handles, labels, frameon=False, fontsize=8, **_LEGENDS[legend])
    if title:
        drawn.suptitle(title, fontsize=11)
    return drawn


def picture_files(drawn: Figure, endings: Sequence[str] = ("pdf", "png", "svg")) -> dict[str, bytes]:
    """The content of a figure's files by ending; equal figures give equal bytes."""
    import matplotlib

    # Without dates and names of versions, so that equal pictures are equal files.
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None, "Creator": None}}
    contents = {}
    with matplotlib.rc_context({"svg.hashsalt": "adagpr", "svg.fonttype": "none"}):
        for ending in endings:
            buffer = BytesIO()
            drawn.savefig(buffer, format=ending, dpi=160, metadata=metadata.get(ending))
            contents[ending] = buffer.getvalue()
    return contents


def _size(chart: Chart) -> tuple[float, float]:
    height = 3.4 if isinstance(chart, Lines | Dots) else 0.8 + 0.3 * len(chart.rows)
    if isinstance(chart, HeatMap) and chart.signs is not None:
        height += 0.8
    return 5.2, min(max(height, 2.2), 12.0)


def _widen(charts: Sequence[Chart], panels: Sequence[Any]) -> None:
    """Has the vertical axis that panels share show the values below 0 of all of them."""
    shown = [
        panel for chart, panel in zip(charts, panels, strict=False) if isinstance(chart, Lines) and chart.y.has_zero
    ]
    if not shown:
        return
    (low, high), ends = shown[0].get_ylim(), [panel.dataLim.intervaly for panel in shown]
    lowest, highest = min(end[0] for end in ends), max(end[1] for end in ends)
    room = 0.03 * (highest - lowest)
    shown[0].set_ylim(min(low, lowest - room), max(high, highest + room))


@singledispatch
def _draw(chart: Chart, panel: Any) -> None:
    """Draws a chart into a panel."""
    raise NotImplementedError(type(chart).__name__)


def _set_axes(panel: Any, x: Axis, y: Axis) -> None:
    for axis, name in ((x, "x"), (y, "y")):
        panel.set(**{f"{name}label": axis.title})
        if axis.is_log:
            panel.set(**{f"{name}scale": "log"})
        low, high = getattr(panel, f"get_{name}lim")()
        if axis.includes is not None:
            margin = 0.03 * (axis.includes[1] - axis.includes[0])
            low, high = min(low, axis.includes[0] - margin), max(high, axis.includes[1] + margin)
        panel.set(**{f"{name}lim": axis.limits or (low, high)})
        ticks = axis.ticks or (log_ticks(low, high) if axis.is_log else ())
        if ticks:
            getattr(panel, f"set_{name}ticks")(*zip(*ticks, strict=True))
            getattr(panel, f"{name}axis").minorticks_off()
    if y.has_zero:
        panel.axhline(0, color="#555555", linewidth=0.9, zorder=1)
    panel.grid(axis="y", color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)


@_draw.register
def _(chart: Lines, panel: Any) -> None:
    are_few = len(chart.lines) <= _MOST_NAMED
    for line, colour in chart.coloured:
        if pairs := [(a, b) for a, b in zip(chart.at, line.values, strict=True) if b is not None]:
            panel.plot(
                *zip(*pairs, strict=True),
                color=_ROLES.get(colour, colour),
                linewidth=2.2 if line.is_bold else 1.3,
                linestyle="--" if line.is_dashed else "-",
                marker="o" if line.has_dots else None,
                markersize=4,
                label=line.name if are_few or line.is_named else None,
            )
    if chart.sizes is not None:
        line, colour = chart.coloured[0]
        areas = [100 * count / max(chart.sizes[1]) for count in chart.sizes[1]]
        panel.scatter(chart.at, line.values, s=areas, color=_ROLES.get(colour, colour), alpha=0.55)
    if chart.mark is not None:
        panel.axvline(chart.mark[0], color="#999999", linewidth=0.8, linestyle="--")
    if all(value == int(value) for value in chart.at):
        panel.xaxis.get_major_locator().set_params(integer=True)
    _set_axes(panel, chart.x, chart.y)


@_draw.register
def _(chart: Dots, panel: Any) -> None:
    if chart.steps:
        panel.step(*zip(*chart.steps, strict=True), where="post", color=COLOURS[1], linewidth=1.2)
    for kind, style in _DOTS.items():
        if places := [(dot.x, dot.y) for dot in chart.dots if dot.kind == kind]:
            panel.scatter(*zip(*places, strict=True), label=kind, **style)
    _set_axes(panel, chart.x, chart.y)


@_draw.register
def _(chart: Bars, panel: Any) -> None:
    count, places = len(chart.bars), range(len(chart.labels))
    for number, (name, values) in enumerate(chart.bars.items()):
        at = [place + (number - (count - 1) / 2) * 0.4 for place in places]
        colour = _ROLES["faint" if number else "main"]
        panel.barh(at, values, height=0.8 / count, color=colour, label=name if count > 1 else None)
    panel.set_yticks(list(places), list(chart.labels), fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel(chart.axis or next(iter(chart.bars)))


@_draw.register
def _(chart: HeatMap, panel: Any) -> None:
    if chart.signs is None:
        panel.imshow(chart.shades, cmap="Blues", aspect="auto", vmin=0, vmax=1)
    else:
        _draw_signs(chart, panel, chart.signs)
    names = list(chart.column_names)
    # Names of two words are in two lines, or upright where there are many of them.
    is_upright = chart.signs is not None and len(names) > _MOST_TWO_LINES and any(" " in name for name in names)
    if chart.signs is not None and not is_upright:
        names = [name.replace(" ", "\n") for name in names]
    panel.set_xticks(range(len(names)), names, fontsize=8, rotation=90 if is_upright else 0)
    every = max(1, len(chart.row_names) // 32)
    panel.set_yticks(range(0, len(chart.row_names), every), list(chart.row_names[::every]), fontsize=8)
    panel.set_ylabel(chart.row_title)
    panel.set_xlabel(chart.column_title)
    is_written = len(chart.row_names) * len(chart.column_names) <= _MOST_WRITTEN
    for y, (row, shades) in enumerate(zip(chart.values, chart.shades, strict=True)):
        for x, (value, shade) in enumerate(zip(row, shades, strict=True)):
            words = f"{value:d}" if isinstance(value, int) else f"{value:.2f}" if value else "0"
            if chart.signs is not None:
                words = f"{value:+.2f}" if value else "·"
            # Without its dot an absent hop would look like a small one.
            if not is_written and words != "·":
                continue
            colour = "white" if abs(shade) > (0.6 if chart.signs is None else 0.7) else "black"
            panel.text(x, y, words, ha="center", va="center", fontsize=7, color=colour)


def _draw_signs(chart: HeatMap, panel: Any, signs: tuple[str, str]) -> None:
    """Boxes of two colours, with a scale that says what they are, and the caption below."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("signs", [_ROLES["minus"], "white", _ROLES["plus"]])
    image = panel.imshow(chart.values, cmap=colours, aspect="auto", vmin=-chart.largest, vmax=chart.largest)
    above, below = signs
    scale = panel.figure.colorbar(image, ax=panel, fraction=0.05, aspect=30, ticks=[-chart.largest, 0, chart.largest])
    words = f"{-chart.largest:.2f}\n{below}", "0", f"{chart.largest:+.2f}\n{above}"
    labels = scale.ax.set_yticklabels(words, fontsize=8)
    for label, place in zip(labels, ("bottom", "center", "top"), strict=True):
        label.set_verticalalignment(place)
    panel.set_title(chart.title.replace(": ", ":\n"), fontsize=11)
    panel.figure.supxlabel(fill(chart.caption, 92), fontsize=8, color="#444444")
