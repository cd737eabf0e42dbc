"""Charts: a figure as SVG together with the numbers that it shows, which a reader can look at and take away."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adagpr.web.svg import Axis, circle, figure, frame, line, linear_axis, path, rect, text

__all__ = ["Chart", "bars", "heat_map", "lines", "ramp"]

_WIDTH = 400
_LETTER = 6.6  # width of a letter
# From near to far, or from first to last: of middle lightness, so that they stand out on white and on black.
_STOPS = ("#2f74b5", "#1f9e89", "#8f9c1f", "#d98a1f", "#cf4a3c", "#8a4fa3")
# From this share on the text in a box is light on a light page, and from the second on also dark on a dark page.
_DARK, _MIDDLE = 0.85, 0.65


@dataclass(frozen=True)
class Chart:
    """A figure and its numbers.

    Attributes:
        name: Names its files.
        kind: ``"lines"``, ``"bars"`` or ``"heat map"``.
        title: Stands above it.
        svg: The figure.
        headings: Names of the columns of its numbers.
        rows: The numbers.
        caption: What it shows and how to read it.
        legend: Name and colour of each line that is named below the figure.
        num_series: How many columns behind the first are drawn.
        bold: Lines that are drawn thick.
        mark: A place on the horizontal axis that is marked, and its words.
        span: What the vertical axis shows at the least.
        column_title: What a column of a heat map is.
        by_row: Whether the darkness of a heat map is by share of the row.
    """

    name: str
    kind: str
    title: str
    svg: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    num_series: int = 1
    bold: tuple[str, ...] = ()
    mark: tuple[float, str] | None = None
    span: tuple[float, float] | None = None
    column_title: str = ""
    by_row: bool = False


def ramp(number: int, count: int) -> str:
    """The colour of one of ``count`` things that have an order."""
    at = number / max(count - 1, 1) * (len(_STOPS) - 1) if count > len(_STOPS) else number
    low = min(int(at), len(_STOPS) - 2)
    shares = zip(_channels(_STOPS[low]), _channels(_STOPS[low + 1]), strict=True)
    return "#" + "".join(f"{round(a + (at - low) * (b - a)):02x}" for a, b in shares)


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[start : start + 2], 16) for start in (1, 3, 5))


def lines(
    name: str,
    title: str,
    x: tuple[str, Sequence[float]],
    series: Mapping[str, Sequence[float | None]],
    *,
    colours: Sequence[str] | None = None,
    bold: Sequence[str] = (),
    dashed: Sequence[str] = (),
    named: Sequence[str] | None = None,
    mark: tuple[float, str] | None = None,
    span: tuple[float, float] | None = None,
    caption: str = "",
    sizes: tuple[str, Sequence[int]] | None = None,
) -> Chart:
    """Lines over one horizontal axis; the pointer or the arrow keys read the values off.

    Args:
        name: Names the file of numbers.
        title: Stands above the figure.
        x: Name and values of the horizontal axis.
        series: Values of each line by its name; none where there is no value.
        colours: Of each line, by default by their order.
        bold: Lines that are drawn thick.
        dashed: Lines that are drawn with gaps.
        named: Lines whose names stand below the figure, by default all.
        mark: A place on the horizontal axis to mark, and its words.
        span: What the vertical axis must show at the least.
        caption: What the figure shows.
        sizes: Name and counts of what stands behind each point; the first line then has dots of that size.
    """
    values = [value for each in series.values() for value in each if value is not None]
    low, high = min([*values, *(span or ())]), max([*values, *(span or ())])
    margin = 0.04 * (high - low) or 0.1 * abs(low) or 1.0
    height, top, bottom, right = 250, 24, 208, _WIDTH - 10
    y = linear_axis(low - margin, high + margin, bottom, top)
    left = max(max(len(label) for _, label in y.ticks) * _LETTER + 12, 30)
    is_whole = all(value == int(value) for value in x[1])
    across = linear_axis(min(x[1]), max(x[1]), left + 6, right - 6, 5, is_whole)
    colours = colours or [ramp(number, len(series)) for number in range(len(series))]
    parts = frame(y, left, right)
    parts += [text(across(tick), bottom + 18, label, classes="tick") for tick, label in across.ticks]
    if mark is not None:
        parts.append(line(across(mark[0]), top, across(mark[0]), bottom, "mark"))
    for (label, each), colour in zip(series.items(), colours, strict=True):
        places = [(across(a), y(b)) for a, b in zip(x[1], each, strict=True) if b is not None]
        kind = "line" + " bold" * (label in bold) + " dashed" * (label in dashed)
        if places:
            parts.append(path(places, kind, f' style="stroke:{colour}"'))
    if sizes is not None:
        parts += _dots(across, y, x[1], next(iter(series.values())), sizes[1], colours[0])
    if mark is not None:
        at = across(mark[0])
        anchor = "middle" if left + 50 < at < right - 50 else "start" if at < _WIDTH / 2 else "end"
        parts.append(text(at, top - 8, mark[1], anchor, "mark-text"))
    parts.append(text((left + right) / 2, height - 6, x[0], classes="name"))
    place = f' data-left="{left + 6:g}" data-right="{right - 6:g}" data-top="{top}" data-bottom="{bottom}"'
    shown = list(series) if named is None else [label for label in series if label in named]
    legend = tuple((label, colour) for label, colour in zip(series, colours, strict=True) if label in shown)
    further = {} if sizes is None else {sizes[0]: sizes[1]}
    return Chart(
        name,
        "lines",
        title,
        figure(_WIDTH, height, f"{title}. {_in_words(x, series)} {caption}", parts, f' data-kind="lines"{place}'),
        (x[0], *series, *further),
        tuple(zip(x[1], *series.values(), *further.values(), strict=True)),
        caption,
        legend,
        len(series),
        tuple(bold),
        mark,
        span,
    )


def _dots(
    across: Axis, y: Axis, x: Sequence[float], values: Sequence[float | None], counts: Sequence[int], colour: str
) -> list[str]:
    largest = max(counts)
    return [
        circle(across(a), y(b), 2 + 6 * math.sqrt(count / largest), "dot", f' style="fill:{colour}"')
        for a, b, count in zip(x, values, counts, strict=True)
        if b is not None
    ]


def _in_words(x: tuple[str, Sequence[float]], series: Mapping[str, Sequence[float | None]]) -> str:
    """What a screen reader says of a figure with few lines: where each begins and ends."""
    if len(series) > 4:
        return f"{len(series)} lines over {x[0]}."
    said = []
    for label, each in series.items():
        known = [value for value in each if value is not None]
        if known:
            said.append(f"{label} from {known[0]:.3g} to {known[-1]:.3g}")
    return f"Over {x[0]} {x[1][0]:g} to {x[1][-1]:g}: {', '.join(said)}."


def bars(
    name: str,
    title: str,
    rows: Sequence[tuple[str, float]],
    *,
    unit: str = "",
    second: tuple[str, Sequence[float]] | None = None,
    first: str = "value",
    most: float | None = None,
    key: str = "",
    caption: str = "",
    more: Mapping[str, Sequence[Any]] | None = None,
) -> Chart:
    """Horizontal bars, one a row or two.

    Args:
        name: Names the file of numbers.
        title: Stands above the figure.
        rows: Words and value of each row; values are not negative.
        unit: Stands behind each value.
        second: Name and values of a second bar in each row.
        first: Name of the first bar.
        most: Value of the longest bar, by default the largest.
        key: Name of the column of words.
        caption: What the figure shows.
        more: Further columns of the numbers.
    """
    left = min(max((len(words) for words, _ in rows), default=0) * _LETTER + 16, 180)
    step = 26 if second is None else 40
    room = _WIDTH - left - 60
    others = second[1] if second is not None else []
    largest = most or max([*(value for _, value in rows), *others], default=0) or 1.0
    parts = []
    for number, (words, value) in enumerate(rows):
        y = 4 + number * step
        parts.append(text(left - 8, y + (14 if second is None else 22), _short(words, left - 16), "end", "tick"))
        for which, amount in enumerate([value, *([others[number]] if second is not None else [])]):
            top = y + which * 17
            length = room * max(amount, 0) / largest
            parts.append(rect(left, top, max(length, 1), 15, "bar other" if which else "bar", extra=' rx="2"'))
            parts.append(text(left + max(length, 1) + 6, top + 12, f"{amount:.1f}{unit}", "start", "tick"))
    headings: tuple[str, ...] = (key or "name", first)
    numbers: list[Sequence[Any]] = [[words for words, _ in rows], [value for _, value in rows]]
    legend: tuple[tuple[str, str], ...] = ()
    if second is not None:
        headings, numbers = (*headings, second[0]), [*numbers, list(others)]
        legend = ((first, "var(--main)"), (second[0], "var(--faint)"))
    headings, numbers = (*headings, *(more or {})), [*numbers, *(more or {}).values()]
    said = ", ".join(f"{words} {value:.1f}{unit}" for words, value in rows[:8])
    drawing = figure(_WIDTH, 6 + step * max(len(rows), 1), f"{title}. {said}. {caption}", parts)
    table = tuple(zip(*numbers, strict=True))
    return Chart(name, "bars", title, drawing, headings, table, caption, legend, 1 if second is None else 2)


def heat_map(
    name: str,
    title: str,
    values: Sequence[Sequence[float]],
    row_names: Sequence[str],
    column_names: Sequence[str],
    *,
    row_title: str,
    column_title: str,
    digits: int = 2,
    by_row: bool = False,
    square: bool = False,
    caption: str = "",
) -> Chart:
    """Boxes, the darker the larger the value. Where boxes are too small for numbers a scale stands below.

    Args:
        name: Names the file of numbers.
        title: Stands above the figure.
        values: The values, not negative, ``[rows][columns]``.
        row_names: Name of each row.
        column_names: Name of each column.
        row_title: What a row is.
        column_title: What a column is.
        digits: Decimals of a value in its box.
        by_row: Whether darkness is by share of the row, else by the value itself.
        square: Whether boxes are as high as wide.
        caption: What the figure shows.
    """
    longest = max(max((len(words) for words in row_names), default=0), len(row_title))
    left = min(longest * _LETTER + 16, 120)
    names = [_short(words, 14 * _LETTER) for words in column_names]
    widest = max((len(words) for words in names), default=0) * _LETTER
    across = min((_WIDTH - left - 8) / max(len(names), 1), 64.0 if square else 84.0)
    slanted = widest > across - 4
    if slanted:
        across = min(across, (_WIDTH - left - 8 - 0.77 * widest) / len(names))
    tall = min(across, 36.0) if square else 24.0 if len(row_names) <= 24 else 10.0
    top = 34 + (widest * 0.66 if slanted else 0)
    has_numbers = tall >= 15 and across >= _LETTER * (digits + 2 if digits else 3)
    every = math.ceil(13 / tall)
    parts = [text(left + across * len(names) / 2, 11, column_title, classes="tick")]
    parts.append(text(left - 8, top - 6, row_title, "end", "tick"))
    for number, words in enumerate(names):
        x = left + across * (number + 0.5)
        tilt = f'<g transform="rotate(-40 {x:g} {top - 6:g})">' if slanted else "<g>"
        parts.append(f"{tilt}{text(x, top - 6, words, 'start' if slanted else 'middle', 'tick')}</g>")
    for number, (words, row) in enumerate(zip(row_names, values, strict=True)):
        y = top + number * tall
        whole = (sum(row) or 1.0) if by_row else 1.0
        if number % every == 0:
            parts.append(text(left - 8, y + tall / 2 + 4, _short(words, left - 16), "end", "tick"))
        for place, value in enumerate(row):
            said = f"{row_title} {words}, {column_title} {column_names[place]}: {value:.{digits + 2 if digits else 0}f}"
            parts += _box(left + across * place, y, across, tall, value, min(value / whole, 1.0), said)
            if has_numbers:
                parts.append(_number(left + across * (place + 0.5), y + tall / 2 + 4, value, value / whole, digits))
    height = top + tall * len(row_names) + 4
    if not has_numbers:
        for number, share in enumerate((0, 0.25, 0.5, 0.75, 1)):
            parts += _box(left + number * 56, height + 6, 14, 14, share, share, "")
            parts.append(text(left + number * 56 + 17, height + 17, f"{share:g}", "start", "tick"))
        height += 26
    headings = (row_title, *column_names)
    numbers = tuple((words, *row) for words, row in zip(row_names, values, strict=True))
    drawing = figure(_WIDTH, height, f"{title}. {caption}", parts)
    return Chart(name, "heat map", title, drawing, headings, numbers, caption, column_title=column_title, by_row=by_row)


def _box(x: float, y: float, width: float, height: float, value: float, share: float, said: str) -> list[str]:
    shade = f' style="fill-opacity:{0.06 + 0.94 * share if value else 0:.3f}"'
    return [rect(x + 1, y + 1, width - 2, height - 2, "cell", said, shade)]


def _number(x: float, y: float, value: float, share: float, digits: int) -> str:
    """A value in its box: a dot for exactly 0, and never a number that only looks like it."""
    if value == 0:
        return text(x, y, "·", classes="tick")
    words = f"{value:.{digits}f}"
    if float(words) == 0:
        words = f"<.{'0' * (digits - 1)}1"
    return text(x, y, words, classes="on-dark" if share > _DARK else "on-middle" if share > _MIDDLE else "")


def _short(words: str, room: float) -> str:
    """The words, or as many letters of them as there is room for."""
    most = max(int(room / _LETTER), 3)
    return words if len(words) <= most else f"{words[: most - 1]}…"
