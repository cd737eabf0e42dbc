"""Charts as plain data: what is shown, apart from how it is drawn. A chart also knows its numbers as a table.

A colour is a hexadecimal one, the same everywhere, or a role that every drawing fills in: ``"main"``, ``"faint"``,
``"soft"`` or ``"text"``; ``"plus"`` is blue and ``"minus"`` red.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

COLOURS = ("#1f6f8b", "#c0392b", "#a8680c", "#6b4c9a", "#2e7d32", "#444444", "#b03a7c")
# From near to far, or from first to last: of middle lightness, to be readable on white and on black.
_STOPS = ("#2f74b5", "#1f9e89", "#8f9c1f", "#d98a1f", "#cf4a3c", "#8a4fa3")


def ramp(number: int, count: int) -> str:
    """The colour of one of ``count`` things that have an order."""
    at = number / max(count - 1, 1) * (len(_STOPS) - 1) if count > len(_STOPS) else number
    low = min(int(at), len(_STOPS) - 2)
    pairs = zip(*(bytes.fromhex(stop.removeprefix("#")) for stop in _STOPS[low : low + 2]), strict=True)
    return "#" + "".join(f"{round(a + (at - low) * (b - a)):02x}" for a, b in pairs)


def log_ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Ticks of a logarithmic axis: powers of ten, with 2 and 5 in between where those are few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    numbers = [factor * 10.0**decade for decade in decades for factor in ((1, 2, 5) if high / low < 500 else (1,))]
    return tuple((number, f"{number:,.6g}") for number in numbers if low <= number <= high)


@dataclass(frozen=True)
class Axis:
    """What an axis says and shows."""

    title: str = ""
    includes: tuple[float, float] | None = None  # a range that it shows at least
    limits: tuple[float, float] | None = None  # the range that it shows exactly; values outside are drawn at its edge
    ticks: tuple[tuple[float, str], ...] | None = None  # marked values and their labels, by default round numbers
    is_log: bool = False
    has_zero: bool = False  # whether a line marks 0, where values are above and below it


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of some kind; its name is also that of its files, and its caption says how to read it."""

    name: str
    title: str
    caption: str = ""

    @property
    def columns(self) -> list[tuple[str, Sequence[Any]]]:
        """Its numbers: name and values of each column."""
        raise NotImplementedError

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Its numbers row by row."""
        return list(zip(*(values for _, values in self.columns), strict=True))

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Name and colour of what is explained below the chart."""
        return ()

    @property
    def summary(self) -> str:
        """What a screen reader says of its values."""
        return ""


@dataclass(frozen=True)
class Line:
    """One line of `Lines`; by default its colour follows from its place among them."""

    name: str
    values: Sequence[float | None]
    colour: str = ""
    is_bold: bool = False
    is_dashed: bool = False
    has_dots: bool = False
    is_named: bool = True  # in the legend


@dataclass(frozen=True, kw_only=True)
class Lines(Chart):
    """Lines over one horizontal axis."""

    x: Axis
    at: Sequence[float]  # the places of the lines' values on the horizontal axis
    lines: Sequence[Line]
    y: Axis = field(default_factory=Axis)
    mark: tuple[float, str] | None = None  # a marked value of the horizontal axis, and its words
    # Name and counts of what each point is made of; the first line then has dots of that size.
    sizes: tuple[str, Sequence[int]] | None = None

    @property
    def coloured(self) -> list[tuple[Line, str]]:
        """The lines with their colours."""
        return [(line, line.colour or ramp(number, len(self.lines))) for number, line in enumerate(self.lines)]

    @property
    def columns(self) -> list[tuple[str, Sequence[Any]]]:
        """The horizontal axis, each line, and the sizes."""
        sizes = [] if self.sizes is None else [self.sizes]
        return [(self.x.title, self.at), *((line.name, line.values) for line in self.lines), *sizes]

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """The lines that are named."""
        return tuple((line.name, colour) for line, colour in self.coloured if line.is_named)

    @property
    def summary(self) -> str:
        """Where each of few lines begins and ends."""
        if len(self.lines) > 4:
            return f"{len(self.lines)} lines over {self.x.title}."
        known = [(line.name, [value for value in line.values if value is not None]) for line in self.lines]
        ends = [f"{name} from {values[0]:.3g} to {values[-1]:.3g}" for name, values in known if values]
        return f"Over {self.x.title} {self.at[0]:g} to {self.at[-1]:g}: {', '.join(ends)}."


@dataclass(frozen=True)
class Dot:
    """A point of `Dots`: its place, its kind (``"complete"``, ``"pruned"`` or ``"best"``) and its words."""

    x: float
    y: float
    kind: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Dots(Chart):
    """Points of several kinds, and a line that goes through their plane in steps."""

    x: Axis
    y: Axis
    dots: Sequence[Dot]  # the last is on top
    steps: Sequence[tuple[float, float]] = ()  # corners of the line; between two of them it is level, then vertical

    @property
    def columns(self) -> list[tuple[str, Sequence[Any]]]:
        """The parts of the points."""
        return [(name, [getattr(dot, name) for dot in self.dots]) for name in ("x", "y", "kind", "label")]


@dataclass(frozen=True, kw_only=True)
class Bars(Chart):
    """Horizontal bars, one or two per row."""

    labels: Sequence[str]
    bars: Mapping[str, Sequence[float]]  # values by name, one or two names; values are not negative
    key: str = "name"  # what the labels of the rows are
    axis: str = ""  # what the values are, by default the first name
    unit: str = ""
    digits: int = 1
    longest: float | None = None  # value of the longest bar, by default the largest
    more: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # further columns of the numbers

    @property
    def columns(self) -> list[tuple[str, Sequence[Any]]]:
        """The words, the bars and the further columns."""
        return [(self.key, self.labels), *self.bars.items(), *self.more.items()]

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """The bars, where there are two per row."""
        return tuple(zip(self.bars, ("main", "faint"), strict=True)) if len(self.bars) == 2 else ()

    @property
    def summary(self) -> str:
        """The first rows."""
        pairs = zip(self.labels, next(iter(self.bars.values())), strict=True)
        shown = [f"{label} {value:.{self.digits}f}{self.unit}" for label, value in pairs]
        return f"{', '.join(shown[:8])}."


@dataclass(frozen=True, kw_only=True)
class HeatMap(Chart):
    """Boxes, the darker the larger the value; with ``signs`` blue above 0 and red below."""

    values: Sequence[Sequence[float]]  # [rows][columns], not negative without ``signs``
    row_names: Sequence[str]
    column_names: Sequence[str]
    row_title: str  # what a row is
    column_title: str
    digits: int = 2  # decimals of a value in its box
    by_row: bool = False  # whether darkness is the share of the row, else the value itself
    square: bool = False
    signs: tuple[str, str] | None = None  # what values above 0 and below it are, in words

    @property
    def columns(self) -> list[tuple[str, Sequence[Any]]]:
        """The rows' names, and the values column by column."""
        values = zip(*self.values, strict=True)
        return [(self.row_title, self.row_names), *zip(self.column_names, values, strict=True)]

    @property
    def largest(self) -> float:
        """The largest size of a value."""
        return max((abs(value) for row in self.values for value in row), default=0.0) or 1.0

    @property
    def shades(self) -> list[list[float]]:
        """How dark each box is, from 0 to 1; with ``signs`` from -1, darkest red, to 1, darkest blue."""
        if self.signs is not None:
            return [[value / self.largest for value in row] for row in self.values]
        wholes = [(sum(row) or 1.0) if self.by_row else 1.0 for row in self.values]
        return [[value / whole for value in row] for row, whole in zip(self.values, wholes, strict=True)]

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """What the two colours are."""
        return () if self.signs is None else tuple(zip(self.signs, ("plus", "minus"), strict=True))
