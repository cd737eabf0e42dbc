"""Figures as SVG. Colours are CSS classes of ``style.css``, so that a figure follows its page into the dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Axis", "circle", "figure", "frame", "line", "linear_axis", "nice_ticks", "path", "rect", "text"]


@dataclass(frozen=True)
class Axis:
    """A way from values to pixels, with the places of its ticks."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[tuple[float, str], ...] = ()
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; values outside are drawn at the edge."""
        inside = min(max(value, self.low), self.high)
        low, high, at = (math.log(item) if self.log else item for item in (self.low, self.high, inside))
        share = 0.5 if high == low else (at - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 1)


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers between two values, about so many."""
    if high <= low:
        return [low]
    raw = (high - low) / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def linear_axis(low: float, high: float, start: float, end: float, count: int = 5, whole: bool = False) -> Axis:
    """An axis with about so many round ticks, only at whole numbers where it counts things."""
    ticks = [tick for tick in nice_ticks(low, high, count) if not whole or tick == int(tick)]
    return Axis(low, high, start, end, tuple((tick, f"{tick:.4g}") for tick in ticks))


def text(x: float, y: float, words: str, anchor: str = "middle", classes: str = "") -> str:
    """A text; ``anchor`` is start, middle or end."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{classes}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{classes}"/>'


def circle(x: float, y: float, radius: float, classes: str, extra: str = "") -> str:
    """A dot; ``extra`` are attributes as they stand."""
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:.3g}" class="{classes}"{extra}/>'


def rect(x: float, y: float, width: float, height: float, classes: str, title: str = "", extra: str = "") -> str:
    """A box, with words that appear when the pointer rests on it; ``extra`` are attributes as they stand."""
    shape = f'<rect x="{x:g}" y="{y:g}" width="{max(width, 0):.4g}" height="{height:.4g}" class="{classes}"{extra}'
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def path(points: Sequence[tuple[float, float]], classes: str, extra: str = "") -> str:
    """A line through points in pixels; points on a level stretch are left out."""
    kept = [
        point
        for number, point in enumerate(points)
        if number in (0, len(points) - 1) or not points[number - 1][1] == point[1] == points[number + 1][1]
    ]
    return f'<path d="M{"L".join(f"{x:g} {y:g}" for x, y in kept)}" class="{classes}"{extra}/>'


def frame(axis: Axis, left: float, right: float) -> list[str]:
    """Horizontal lines at the ticks of a vertical axis, and their numbers."""
    lines = [line(left, axis(tick), right, axis(tick), "grid") for tick, _ in axis.ticks]
    return lines + [text(left - 6, axis(tick) + 4, name, "end", "tick") for tick, name in axis.ticks]


def figure(width: float, height: float, label: str, parts: Sequence[str], extra: str = "") -> str:
    """The whole figure; ``label`` is what a screen reader says of it."""
    head = f'<svg class="main-svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}"{extra}>'
    return "\n".join([head, *parts, "</svg>"])
