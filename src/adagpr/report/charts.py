"""Charts: a figure as SVG together with the numbers that it shows, which a reader can look at and take away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adagpr.web.svg import figure, frame, line, linear_axis, path, rect, text

__all__ = ["Chart", "bars", "heat_map", "lines", "ramp"]

_WIDTH = 520
_LETTER = 6.6  # width of a letter
# From near to far, or from first to last: of middle lightness, so that they stand out on white and on black.
_STOPS = ("#2f74b5", "#1f9e89", "#8f9c1f", "#d98a1f", "#cf4a3c", "#8a4fa3")
_MOST_CELLS_SHOWN = 1_500


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
        legend: Name and colour of each line, where that is not written in the figure.
    """

    name: str
    kind: str
    title: str
    svg: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()

    @property
    def is_short(self) -> bool:
        """Whether its numbers are few enough to stand in the page as a table."""
        return len(self.rows) * len(self.headings) <= _MOST_CELLS_SHOWN


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
    mark: tuple[float, str] | None = None,
    span: tuple[float, float] | None = None,
    caption: str = "",
    has_legend: bool = True,
    more: Mapping[str, Sequence[Any]] | None = None,
) -> Chart:
    """Lines over one horizontal axis; the pointer or the arrow keys read the values off.

    Args:
        name: Names the file of numbers.
        title: Stands above the figure.
        x: Name and values of the horizontal axis.
        series: Values of each line by its name; none where there is no value.
        colours: Of each line, by default by their order.
        bold: Lines that are drawn thick.
        mark: A place on the horizontal axis to mark, and its words.
        span: What the vertical axis must show at the least.
        caption: What the figure shows.
        has_legend: Whether the names of the lines stand below the figure.
        more: Further columns of the numbers.
    """
    height, left, right, top, bottom = 280, 50, _WIDTH - 12, 14, 236
    values = [value for each in series.values() for value in each if value is not None]
    low, high = min([*values, *(span or ())]), max([*values, *(span or ())])
    margin = 0.04 * (high - low) or 0.1 * abs(low) or 1.0
    y = linear_axis(low - margin, high + margin, bottom, top)
    across = linear_axis(min(x[1]), max(x[1]), left + 6, right - 6, 6)
    colours = colours or [ramp(number, len(series)) for number in range(len(series))]
    parts = frame(y, left, right)
    parts += [text(across(tick), bottom + 18, label, classes="tick") for tick, label in across.ticks]
    if mark is not None:
        at = across(mark[0])
        is_left = at < (left + right) / 2
        parts.append(line(at, top, at, bottom, "mark"))
        parts.append(text(at + (5 if is_left else -5), top + 10, mark[1], "start" if is_left else "end", "mark-text"))
    for (label, each), colour in zip(series.items(), colours, strict=True):
        places = [(across(a), y(b)) for a, b in zip(x[1], each, strict=True) if b is not None]
        if places:
            kind = "line bold" if label in bold else "line"
            parts.append(path(places, kind, f' style="stroke:{colour}"'))
    parts.append(text((left + right) / 2, height - 6, x[0], classes="name"))
    place = f' data-left="{left + 6}" data-right="{right - 6}" data-top="{top}" data-bottom="{bottom}"'
    legend = tuple(zip(series, colours, strict=True)) if has_legend else ()
    drawing = figure(_WIDTH, height, f"{title}. {caption}", parts, f' data-kind="lines"{place}')
    further = more or {}
    rows = tuple(zip(x[1], *series.values(), *further.values(), strict=True))
    return Chart(name, "lines", title, drawing, (x[0], *series, *further), rows, caption, legend)


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
    left = min(max((len(words) for words, _ in rows), default=0) * _LETTER + 16, 220)
    step = 26 if second is None else 40
    room = _WIDTH - left - 74
    others = second[1] if second is not None else []
    largest = most or max([*(value for _, value in rows), *others], default=0) or 1.0
    parts = []
    for number, (words, value) in enumerate(rows):
        y = 4 + number * step
        parts.append(text(left - 8, y + (14 if second is None else 22), _short(words, left), "end", "tick"))
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
    drawing = figure(_WIDTH, 6 + step * max(len(rows), 1), f"{title}. {caption}", parts)
    return Chart(name, "bars", title, drawing, headings, tuple(zip(*numbers, strict=True)), caption, legend)


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
    """Boxes, the darker the larger the value; a value of exactly 0 is a dot.

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
    left = min(max((len(words) for words in row_names), default=0) * _LETTER + 16, 150)
    across = (_WIDTH - left - 8) / max(len(column_names), 1)
    across = min(across, 64.0 if square else 96.0)
    tall = min(across, 40.0) if square else 24.0 if len(row_names) <= 24 else 10.0
    slanted = any(len(words) * _LETTER > across - 4 for words in column_names)
    top = 34 if not slanted else 34 + min(max(len(words) for words in column_names), 16) * _LETTER * 0.7
    has_numbers = tall >= 16 and across >= _LETTER * (digits + 3 if digits else 4)
    every = max(1, round(13 / tall))
    parts = [text(left + across * len(column_names) / 2, 11, column_title, classes="tick")]
    for number, words in enumerate(column_names):
        x = left + across * (number + 0.5)
        tilt = f'<g transform="rotate(-40 {x:g} {top - 6:g})">' if slanted else "<g>"
        label = text(x, top - 6, _short(words, 16 * _LETTER), "start" if slanted else "middle", "tick")
        parts.append(f"{tilt}{label}</g>")
    for number, (words, row) in enumerate(zip(row_names, values, strict=True)):
        y = top + number * tall
        whole = (sum(row) or 1.0) if by_row else 1.0
        if number % every == 0:
            parts.append(text(left - 8, y + tall / 2 + 4, _short(words, left), "end", "tick"))
        for place, value in enumerate(row):
            x, share = left + across * place, min(value / whole, 1.0)
            said = f"{row_title} {words}, {column_title} {column_names[place]}: {value:.{digits + 2 if digits else 0}f}"
            shade = f' style="fill-opacity:{0.06 + 0.94 * share if value else 0:.3f}"'
            parts.append(rect(x + 1, y + 1, across - 2, tall - 2, "cell", said, shade))
            if value == 0 and has_numbers:
                parts.append(text(x + across / 2, y + tall / 2 + 4, "·", classes="tick"))
            elif has_numbers:
                kind = "on-dark" if share > 0.55 else ""
                parts.append(text(x + across / 2, y + tall / 2 + 4, f"{value:.{digits}f}", classes=kind))
    numbers = tuple((words, *row) for words, row in zip(row_names, values, strict=True))
    height = top + tall * len(row_names) + 4
    drawing = figure(_WIDTH, height, f"{title}. {caption}", parts)
    return Chart(name, "heat map", title, drawing, (row_title, *column_names), numbers, caption)


def _short(words: str, room: float) -> str:
    """The words, or as many letters of them as there is room for."""
    most = max(int(room / _LETTER) - 1, 3)
    return words if len(words) <= most else f"{words[: most - 1]}…"
