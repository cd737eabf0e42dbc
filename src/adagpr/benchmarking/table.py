"""Records of the benchmark as a Markdown table and as figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import cycle, pairwise
from typing import Any

from adagpr.benchmarking.cases import OURS
from adagpr.benchmarking.rivals import RIVALS

__all__ = ["loglog_svg", "markdown"]

Point = tuple[float, float]

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 420, 70, 44, 150, 56
COLOURS = ("#1f6f8b", "#c0392b", "#a8680c", "#6b4c9a", "#2e7d32", "#444444", "#b03a7c")
_LINE, _LETTER = 15.0, 7.2


def markdown(records: Iterable[Mapping[str, Any]]) -> str:
    """One row for each case and way: threads, time of an epoch and its ratio to ours with quartiles, and memory."""
    lines = [
        "| case | way | threads | ms an epoch | times ours | step MB | process MB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for record in records:
        for way, entry in record["ways"].items():
            seconds, memory = entry.get("seconds"), entry.get("memory_mb", {})
            time = _spread({key: 1000 * value for key, value in seconds.items()}) if seconds else ""
            if entry["status"] != "measured":
                time = entry["status"]
            cells = [record["case"]["name"], way, str(entry.get("num_threads", "")), time]
            cells += [_spread(entry["ratio"]) if "ratio" in entry else ""]
            cells += [f"{memory[key]:.0f}" if key in memory else "" for key in ("step", "total")]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _spread(values: Mapping[str, float]) -> str:
    return f"{_number(values['median'])} ({_number(values['lower'])} to {_number(values['upper'])})"


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"


def loglog_svg(title: str, xlabel: str, ylabel: str, series: Mapping[str, Sequence[Point]]) -> str:
    """A figure with both axes logarithmic, one line a series, each with its name at its end.

    Args:
        title: Stands above the figure.
        xlabel: Stands below it.
        ylabel: Stands above the vertical axis.
        series: Points ``(x, y)`` by name, all above 0, in the order of ``x``.
    """
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [y for points in series.values() for _, y in points]
    low, high = _limits(ys)
    columns = xs if len(xs) <= 8 else _steps(xs[0], xs[-1])

    def place(point: Point) -> Point:
        across = (math.log(point[0]) - math.log(xs[0])) / (math.log(xs[-1] / xs[0]) or 1.0)
        up = (math.log(point[1]) - math.log(low)) / math.log(high / low)
        return LEFT + (WIDTH - LEFT - RIGHT) * across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        "<style>text { font-size: 13px; fill: #444444 }</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="16" font-weight="bold">{escape(title)}</text>',
        f'<text x="{LEFT}" y="34">{escape(ylabel)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(xlabel)}</text>',
    ]
    for value in _steps(low, high):
        _, y = place((xs[0], value))
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,.6g}</text>')
    for value in columns:
        x, y = place((value, low))
        parts.append(f'<text x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle">{value:,.7g}</text>')
    lines = {name: [place(point) for point in points] for name, points in series.items()}
    colours = _colours(lines)
    for name, points in lines.items():
        colour = colours[name]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    for name, (x, y, anchor) in _label_places(lines).items():
        style = f"fill: {colours[name]}; stroke: #ffffff; stroke-width: 4px; paint-order: stroke"
        text = f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}" style="{style}">{escape(name)}</text>'
        parts.append(text)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _limits(values: Sequence[float]) -> Point:
    """The values' range with some room, at least a factor of ten."""
    low, high = min(values) / 1.3, max(values) * 1.3
    missing = max(1.0, math.sqrt(10 * low / high))
    return low / missing, high * missing


def _steps(low: float, high: float) -> list[float]:
    """Round numbers between ``low`` and ``high``: powers of ten, with 2 and 5 in between where those are few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 500 else (1,)
    return [factor * 10.0**decade for decade in decades for factor in factors if low <= factor * 10.0**decade <= high]


def _colours(names: Iterable[str]) -> dict[str, str]:
    """The ways of the benchmark have the same colour in every figure; other series take what is left."""
    own = dict(zip((OURS, *RIVALS), COLOURS, strict=True))
    names = list(names)
    rest = cycle([colour for name, colour in own.items() if name not in names])
    return {name: own[name] if name in own else next(rest) for name in names}


def _label_places(lines: Mapping[str, Sequence[Point]]) -> dict[str, tuple[float, float, str]]:
    """Where each name stands: beside its line's end, moved until it is off all lines and below the names above it.

    Lines that end at the right have their names in the margin; names of the others may stand on either side.
    """
    taken = [point for points in lines.values() for point in _dense(points)]
    margin = max(points[-1][0] for points in lines.values())
    boxes: list[tuple[float, float, float]] = []
    places: dict[str, tuple[float, float, str]] = {}
    for name in sorted(lines, key=lambda item: lines[item][-1][1]):
        (x, y), width = lines[name][-1], _LETTER * len(name)
        best: tuple[float, float, float, str] | None = None
        for anchor, left in (("start", x + 9), ("end", x - 9 - width))[: 1 if x == margin else 2]:
            above = [top for start, end, top in boxes if start < left + width and left < end]
            under = [top for across, top in taken if left < across < left + width]
            for shift in (3.0 * step for step in range(-30, 40)):
                is_free = all(y + shift >= top + _LINE for top in above)
                is_free = is_free and all(abs(y + shift - top) >= _LINE / 2 + 2 for top in under)
                if is_free and y + shift >= TOP and (best is None or abs(shift) < abs(best[0])):
                    best = (shift, left, y + shift, anchor)
        _, left, height, anchor = best or (0.0, x + 9, y, "start")
        boxes.append((left, left + width, height))
        places[name] = (left if anchor == "start" else left + width, height, anchor)
    return places


def _dense(points: Sequence[Point]) -> list[Point]:
    """Points along a line, close to each other."""
    found = list(points)
    for (x, y), (to_x, to_y) in pairwise(points):
        count = max(1, round(math.hypot(to_x - x, to_y - y) / 4))
        found += [(x + (to_x - x) * i / count, y + (to_y - y) * i / count) for i in range(count)]
    return found
