"""The figures of a study's page as SVG. Colours are CSS classes, so that they follow the page into the dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from adagpr.web.svg import Axis, figure, frame, linear_axis, nice_ticks, text

__all__ = ["history_svg", "importance_svg", "slice_svg"]

# Values further above the lowest than this many times the median's distance are drawn at the upper edge.
_FAR = 3.0
_LETTER = 7.0  # width of a letter


def _value_axis(trials: Sequence[dict[str, Any]], top: float, bottom: float) -> Axis:
    """The axis of losses, from a little below the lowest up to where nearly all are."""
    values = sorted(trial["value"] for trial in trials if trial["value"] is not None)
    low, middle, most = values[0], values[len(values) // 2], values[-1]
    high = min(most, low + _FAR * (middle - low)) if middle > low else most
    margin = 0.06 * (high - low) or 0.1 * abs(low) or 1.0
    return linear_axis(low - margin, high + margin, bottom, top)


def _dot(trial: dict[str, Any], x: float, y: float, best: int) -> str:
    """A trial as a dot: filled where it is complete, hollow where it was pruned, large where it is the best."""
    radius, classes = (5.5, "best") if trial["number"] == best else (3.5, trial["state"])
    params = ", ".join(f"{name} {value}" for name, value in trial["params"].items())
    title = f"trial {trial['number']}, {trial['state']}: {trial['value']:.4f} ({params})"
    return f'<circle cx="{x}" cy="{y}" r="{radius}" class="{classes}"><title>{escape(title)}</title></circle>'


def _dots(trials: Sequence[dict[str, Any]], best: int, place: Callable[[dict[str, Any]], float], y: Axis) -> list[str]:
    """The dots of all trials that have a value, the best on top."""
    valued = [trial for trial in trials if trial["value"] is not None]
    ordered = sorted(valued, key=lambda trial: trial["number"] == best)
    return [_dot(trial, place(trial), y(trial["value"]), best) for trial in ordered]


def history_svg(trials: Sequence[dict[str, Any]], best: int) -> str:
    """The value of each trial, in the order they began, and the lowest so far."""
    width, height, left, right, top, bottom = 520, 300, 52, 508, 12, 262
    last = max(trial["number"] for trial in trials)
    ticks = tuple((tick, f"{tick:g}") for tick in nice_ticks(0, last, 6) if tick == int(tick))
    x, y = Axis(0, last, left + 8, right - 8, ticks), _value_axis(trials, top, bottom)
    parts = frame(y, left, right)
    parts += [text(x(tick), bottom + 18, name, classes="tick") for tick, name in ticks]
    lowest, path = math.inf, ""
    for trial in sorted(trials, key=lambda item: item["number"]):
        if trial["state"] == "complete" and trial["value"] < lowest:
            before, lowest = lowest, trial["value"]
            at = f"{x(trial['number'])}"
            path += f"M{at} {y(lowest)}" if math.isinf(before) else f"H{at}V{y(lowest)}"
    parts.append(f'<path d="{path}H{x(last)}" class="lowest"/>')
    parts += _dots(trials, best, lambda trial: x(trial["number"]), y)
    parts.append(text((left + right) / 2, height - 4, "trial", classes="name"))
    return figure(width, height, "Validation loss of each trial and the lowest so far", parts)


def importance_svg(importance: dict[str, float]) -> str:
    """A bar for each parameter."""
    width, row, left = 520, 30, 168
    parts = []
    for number, (name, share) in enumerate(importance.items()):
        y = 6 + number * row
        length = round(share * (width - left - 60), 1)
        parts.append(text(left - 8, y + 16, name, "end", "tick"))
        parts.append(f'<rect x="{left}" y="{y}" width="{max(length, 1)}" height="{row - 8}" rx="2" class="bar"/>')
        parts.append(text(left + max(length, 1) + 6, y + 16, f"{100 * share:.0f} %", "start", "tick"))
    return figure(width, 8 + row * max(len(importance), 1), "Importance of each parameter", parts) if parts else ""


def slice_svg(trials: Sequence[dict[str, Any]], best: int, name: str, parameter: dict[str, Any]) -> str:
    """The values of all trials over one parameter."""
    width, height, left, right, top, bottom = 300, 210, 48, 292, 12, 168
    y = _value_axis(trials, top, bottom)
    place, ticks = _places(parameter, left + 10, right - 10)
    parts = frame(y, left, right)
    parts += [text(at, bottom + 16, words, classes="tick") for at, words in _thinned(ticks, right - left)]
    tried = [trial for trial in trials if name in trial["params"]]
    parts += _dots(tried, best, lambda trial: place(trial["params"][name]), y)
    parts.append(text((left + right) / 2, height - 6, name, classes="name"))
    return figure(width, height, f"Validation loss over {name}", parts)


def _places(
    parameter: dict[str, Any], start: float, end: float
) -> tuple[Callable[[Any], float], list[tuple[float, str]]]:
    """Where a parameter's values are on the horizontal axis, and its ticks: choices side by side, ranges to scale."""
    if "choices" in parameter:
        choices = list(parameter["choices"])
        if all(isinstance(choice, int | float) for choice in choices):
            choices.sort()
        row = Axis(0, len(choices) - 1, start, end, ())
        return (
            lambda value: row(choices.index(value)),
            [(row(number), _short(choice)) for number, choice in enumerate(choices)],
        )
    low, high, log = float(parameter["low"]), float(parameter["high"]), bool(parameter.get("log", False))
    axis = Axis(low, high, start, end, (), log)
    if log:
        powers = [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
        shown = powers if len(powers) > 1 else [low, high]
    else:
        shown = nice_ticks(low, high, 5)
    return axis, [(axis(tick), _short(tick)) for tick in shown]


def _thinned(ticks: list[tuple[float, str]], width: float) -> list[tuple[float, str]]:
    """Every tick, or every second or third, such that their texts do not touch."""
    needed = sum(_LETTER * (len(words) + 1) for _, words in ticks)
    return ticks[:: math.ceil(needed / width)] if ticks else []


def _short(value: Any) -> str:
    """A value in few letters: 0.0005 as 5e-4."""
    if not isinstance(value, float):
        return str(value)
    mantissa, _, power = f"{value:.2e}".partition("e")
    return f"{value:.3g}" if value == 0 or abs(value) >= 0.01 else f"{float(mantissa):g}e{int(power)}"
