"""Charts as SVG, and the pages that hold them: one HTML file each, with style, charts and script inside.

Colours are CSS classes and variables of ``style.css``, so that they follow a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from html import escape
from pathlib import Path
from typing import Any

from adagpr.charts.chart import Axis, Bars, Chart, Dots, HeatMap, Lines, log_ticks

_LETTER = 6.6  # width of a letter
_WIDTH, _HEIGHT = 400, 250
# Above the first shade the text in a box is light on a light page, above the second also dark on a dark page.
_DARK, _MIDDLE = 0.85, 0.65


@singledispatch
def svg(chart: Chart, width: float = _WIDTH, height: float = _HEIGHT) -> str:
    """A chart as SVG text, escaped and ready to be part of a page.

    A unit of width and height is about a screen pixel; bars and heat maps are as high as their rows need.
    """
    raise NotImplementedError(type(chart).__name__)


def css_colour(colour: str) -> str:
    """A colour of a chart in CSS; roles are variables of ``style.css``."""
    return colour if colour.startswith("#") else f"var(--{colour})"


@dataclass(frozen=True)
class Scale:
    """The way from values to pixels, with the places of its ticks."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[tuple[float, str], ...] = ()
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; values outside are drawn at the edge."""
        inside = min(max(value, self.low), self.high)
        low, high, at = (math.log(item) if self.is_log else item for item in (self.low, self.high, inside))
        share = 0.5 if high == low else (at - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 1)


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """About ``count`` round numbers between two values."""
    if high <= low:
        return [low]
    raw = (high - low) / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def path(points: Sequence[tuple[float, float]], classes: str, extra: str = "") -> str:
    """A line through points in pixels; points on a level stretch are left out."""
    kept = [
        point
        for number, point in enumerate(points)
        if number in (0, len(points) - 1) or not points[number - 1][1] == point[1] == points[number + 1][1]
    ]
    return f'<path d="M{"L".join(f"{x:g} {y:g}" for x, y in kept)}" class="{classes}"{extra}/>'


def _scale(axis: Axis, values: Sequence[float], start: float, end: float, margin: float) -> Scale:
    """The scale of an axis that shows these values, with ``margin`` of their range to spare on both sides."""
    if axis.limits is not None:
        low, high = axis.limits
    else:
        low, high = min([*values, *(axis.includes or ())]), max([*values, *(axis.includes or ())])
        room = margin * (high - low) or 0.1 * abs(low) or 1.0
        if margin:
            low, high = (low / 1.3, high * 1.3) if axis.is_log else (low - room, high + room)
    if axis.ticks is not None:
        ticks = axis.ticks
    elif axis.is_log:
        ticks = log_ticks(low, high)
    else:
        is_whole = not margin and all(value == int(value) for value in values)
        shown = [tick for tick in nice_ticks(low, high, 5) if not is_whole or tick == int(tick)]
        ticks = tuple((tick, f"{tick:.4g}") for tick in shown)
    return Scale(low, high, start, end, ticks, axis.is_log)


class _Plane:
    """The two scales of a chart and the edges of the area between them."""

    def __init__(self, chart: Lines | Dots, xs: Sequence[float], ys: Sequence[float], width: float, height: float):
        self.top, self.bottom, self.right = 24, height - 42, width - 10
        self.y = _scale(chart.y, ys, self.bottom, self.top, 0.04)
        self.has_zero = chart.y.has_zero and self.y.low <= 0 <= self.y.high
        self.left = max(max(len(label) for _, label in self.y.ticks) * _LETTER + 12, 30)
        self.x = _scale(chart.x, xs, self.left + 6, self.right - 6, 0.0)
        self.name = _text((self.left + self.right) / 2, height - 6, chart.x.title, classes="name")

    def frame(self) -> list[str]:
        """Horizontal lines at the ticks of the vertical scale, and the labels of both."""
        lines = [_line(self.left, self.y(tick), self.right, self.y(tick), "grid") for tick, _ in self.y.ticks]
        if self.has_zero:
            lines.append(_line(self.left, self.y(0.0), self.right, self.y(0.0), "zero"))
        lines += [_text(self.left - 6, self.y(tick) + 4, label, "end", "tick") for tick, label in self.y.ticks]
        needed = sum(_LETTER * (len(label) + 1) for _, label in self.x.ticks)
        shown = self.x.ticks[:: max(math.ceil(needed / (self.right - self.left)), 1)]
        return lines + [_text(self.x(tick), self.bottom + 18, label, classes="tick") for tick, label in shown]


@svg.register
def _(chart: Lines, width: float = _WIDTH, height: float = _HEIGHT) -> str:
    """Lines; the pointer or the arrow keys read their values off where the horizontal axis is linear."""
    values = [value for line in chart.lines for value in line.values if value is not None]
    plane = _Plane(chart, chart.at, values, width, height)
    parts = plane.frame()
    if chart.mark is not None:
        at = plane.x(chart.mark[0])
        anchor = "middle" if plane.left + 50 < at < plane.right - 50 else "start" if at < width / 2 else "end"
        parts.append(_line(at, plane.top, at, plane.bottom, "mark"))
        parts.append(_text(at, plane.top - 8, chart.mark[1], anchor, "mark-text"))
    for line, colour in chart.coloured:
        places = [(plane.x(a), plane.y(b)) for a, b in zip(chart.at, line.values, strict=True) if b is not None]
        classes = "line" + " bold" * line.is_bold + " dashed" * line.is_dashed
        if places:
            parts.append(path(places, classes, f' style="stroke:{css_colour(colour)}"'))
        if line.has_dots:
            parts += [_circle(x, y, 3, "dot", colour) for x, y in places]
    if chart.sizes is not None:
        line, colour = chart.coloured[0]
        for a, b, count in zip(chart.at, line.values, chart.sizes[1], strict=True):
            if b is not None:
                radius = 2 + 6 * math.sqrt(count / max(chart.sizes[1]))
                parts.append(_circle(plane.x(a), plane.y(b), radius, "dot", colour))
    parts.append(plane.name)
    edges = {"left": plane.left + 6, "right": plane.right - 6, "top": plane.top, "bottom": plane.bottom}
    places_of_edges = "".join(f' data-{name}="{edge:g}"' for name, edge in edges.items())
    extra = "" if chart.x.is_log else f' data-kind="lines"{places_of_edges}'
    return _figure(width, height, chart, parts, extra)


@svg.register
def _(chart: Dots, width: float = _WIDTH, height: float = _HEIGHT) -> str:
    plane = _Plane(chart, [dot.x for dot in chart.dots], [dot.y for dot in chart.dots], width, height)
    parts = plane.frame()
    if chart.steps:
        corners = [(plane.x(x), plane.y(y)) for x, y in chart.steps]
        moves = "".join(f"H{x:g}V{y:g}" for x, y in corners[1:])
        parts.append(f'<path d="M{corners[0][0]:g} {corners[0][1]:g}{moves}" class="lowest"/>')
    for dot in chart.dots:
        parts.append(
            f'<circle cx="{plane.x(dot.x):g}" cy="{plane.y(dot.y):g}" r="{5.5 if dot.kind == "best" else 3.5:g}" '
            f'class="{escape(dot.kind)}"><title>{escape(dot.label)}</title></circle>'
        )
    return _figure(width, height, chart, [*parts, plane.name])


@svg.register
def _(chart: Bars, width: float = _WIDTH, height: float = 0) -> str:
    is_double = len(chart.bars) == 2
    left = min(max((len(label) for label in chart.labels), default=0) * _LETTER + 16, 0.45 * width)
    step = 40 if is_double else 26
    longest = chart.longest or max((value for values in chart.bars.values() for value in values), default=0) or 1.0
    parts = []
    for number, (label, *values) in enumerate(zip(chart.labels, *chart.bars.values(), strict=True)):
        y = 4 + number * step
        parts.append(_text(left - 8, y + (22 if is_double else 14), _short(label, left - 16), "end", "tick"))
        for which, value in enumerate(values):
            top = y + which * 17
            length = max((width - left - 60) * max(value, 0) / longest, 1)
            parts.append(_rect(left, top, length, 15, "bar other" if which else "bar", extra=' rx="2"'))
            words = f"{value:.{chart.digits}f}{chart.unit}"
            parts.append(_text(left + length + 6, top + 12, words, "start", "tick"))
    return _figure(width, 6 + step * max(len(chart.labels), 1), chart, parts)


@svg.register
def _(chart: HeatMap, width: float = _WIDTH, height: float = 0) -> str:
    """Boxes. Where they are too small for numbers a scale is below them."""
    longest = max(max((len(name) for name in chart.row_names), default=0), len(chart.row_title))
    left = min(longest * _LETTER + 16, 120)
    names = [_short(name, 14 * _LETTER) for name in chart.column_names]
    widest = max((len(name) for name in names), default=0) * _LETTER
    across = min((width - left - 8) / max(len(names), 1), 64.0 if chart.square else 84.0)
    is_slanted = widest > across - 4
    if is_slanted:
        across = min(across, (width - left - 8 - 0.77 * widest) / len(names))
    tall = min(across, 36.0) if chart.square else 24.0 if len(chart.row_names) <= 24 else 10.0
    top = 34 + (widest * 0.66 if is_slanted else 0)
    letters = (chart.digits + 2 if chart.digits else 3) + (chart.signs is not None)
    has_numbers = tall >= 15 and across >= _LETTER * letters
    every = math.ceil(13 / tall)
    parts = [_text(left + across * len(names) / 2, 11, chart.column_title, classes="tick")]
    parts.append(_text(left - 8, top - 6, chart.row_title, "end", "tick"))
    for number, name in enumerate(names):
        x = left + across * (number + 0.5)
        tilt = f'<g transform="rotate(-40 {x:g} {top - 6:g})">' if is_slanted else "<g>"
        parts.append(f"{tilt}{_text(x, top - 6, name, 'start' if is_slanted else 'middle', 'tick')}</g>")
    digits = chart.digits + 2 if chart.digits else 0
    for number, (name, row, shades) in enumerate(zip(chart.row_names, chart.values, chart.shades, strict=True)):
        y = top + number * tall
        if number % every == 0:
            parts.append(_text(left - 8, y + tall / 2 + 4, _short(name, left - 16), "end", "tick"))
        for place, (value, shade) in enumerate(zip(row, shades, strict=True)):
            column = f"{chart.column_title} {chart.column_names[place]}"
            words = f"{chart.row_title} {name}, {column}: {value:.{digits}f}"
            colour = _cell_class(chart, shade)
            parts.append(_box(left + across * place, y, across, tall, min(abs(shade), 1.0), words, colour))
            if has_numbers:
                parts.append(_number(left + across * (place + 0.5), y + tall / 2 + 4, value, abs(shade), chart))
    height = top + tall * len(chart.row_names) + 4
    if not has_numbers:
        for number, shade in enumerate((0, 0.25, 0.5, 0.75, 1) if chart.signs is None else (-1, -0.5, 0, 0.5, 1)):
            words = f"{shade:g}" if chart.signs is None else f"{shade * chart.largest:.2g}"
            colour = _cell_class(chart, shade)
            parts.append(_box(left + number * 56, height + 6, 14, 14, abs(shade), "", colour))
            parts.append(_text(left + number * 56 + 17, height + 17, words, "start", "tick"))
        height += 26
    return _figure(width, height, chart, parts)


def _cell_class(chart: HeatMap, shade: float) -> str:
    return "cell" if chart.signs is None else "cell minus" if shade < 0 else "cell plus"


def _box(x: float, y: float, width: float, height: float, shade: float, words: str, classes: str) -> str:
    style = f' style="fill-opacity:{0.06 + 0.94 * shade if shade else 0:.3f}"'
    return _rect(x + 1, y + 1, width - 2, height - 2, classes, words, style)


def _number(x: float, y: float, value: float, shade: float, chart: HeatMap) -> str:
    """A value in its box: a dot for exactly 0, and never a number that only looks like it."""
    if value == 0:
        return _text(x, y, "·", classes="tick")
    words = f"{value:.{chart.digits}f}" if chart.signs is None else f"{value:+.{chart.digits}f}"
    if float(words) == 0:
        words = f"<.{'0' * (chart.digits - 1)}1"
    return _text(x, y, words, classes="on-dark" if shade > _DARK else "on-middle" if shade > _MIDDLE else "")


def _short(words: str, room: float) -> str:
    """The words, or as many letters of them as there is room for."""
    most = max(int(room / _LETTER), 3)
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _text(x: float, y: float, words: str, anchor: str = "middle", classes: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{classes}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{classes}"/>'


def _circle(x: float, y: float, radius: float, classes: str, colour: str) -> str:
    style = f' style="fill:{css_colour(colour)}"'
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:.3g}" class="{classes}"{style}/>'


def _rect(x: float, y: float, width: float, height: float, classes: str, title: str = "", extra: str = "") -> str:
    """A box, with words that appear when the pointer rests on it; ``extra`` are attributes as they are."""
    shape = f'<rect x="{x:g}" y="{y:g}" width="{max(width, 0):.4g}" height="{height:.4g}" class="{classes}"{extra}'
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def _figure(width: float, height: float, chart: Chart, parts: Sequence[str], extra: str = "") -> str:
    """The whole; its label is what a screen reader says of it."""
    label = escape(" ".join(part for part in (f"{chart.title}.", chart.summary, chart.caption) if part))
    head = f'<svg class="main-svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}"{extra}>'
    return "\n".join([head, *parts, "</svg>"])


def render(template: Path, **values: Any) -> str:
    """The page of a template that extends ``base.html`` and may include the files beside it.

    Every value is escaped, and a name without one is an error; ``svg(chart)`` draws a chart.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # What `svg` prints is escaped already.
    environment.globals.update(svg=lambda *chart: Markup(svg(*chart)), css_colour=css_colour)  # noqa: S704
    return environment.get_template(template.name).render(**values)
