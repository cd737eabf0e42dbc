"""Flame graphs: a profiler's events folded into stacks, and stacks drawn as SVG.

A box is a function or an operation, as wide as the time that it and all above it took; it stands on the one that called
it. Equal stacks are one box, so that the layers of a network lie on each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any

__all__ = ["Stack", "flame_svg", "fold"]

Stack = tuple[str, ...]

WIDTH, ROW, MARGIN, TOP = 1200, 21, 12, 72
NARROWEST = 0.4  # pixels; thinner boxes are not drawn
LETTER = 6.7  # width of a letter of the labels

COLOURS = {
    "sparse products": "#57adc2",
    "dense products": "#a9d8e2",
    "dropout": "#f0b254",
    "activation": "#e07b5a",
    "optimiser": "#bda3d3",
    "other operations": "#c3d18f",
    "overhead": "#e8e6e1",
}
OTHER_COLOUR = "#c9b7a8"


def fold(
    events: Iterable[Any], root: str, entry: Callable[[Any], str | None]
) -> tuple[dict[Stack, float], dict[Stack, int]]:
    """Seconds by stack, in order of first appearance, and from how many events they come.

    Args:
        events: A tree of `torch.profiler` events.
        root: First entry of every stack.
        entry: How an event appears, or none where its time goes to the entry below. Time outside of all entries is left
            out; inside an operation of torch (``aten::...``) nothing else appears.
    """
    stacks: dict[Stack, float] = {}
    counts: dict[Stack, int] = {}

    def add(event: Any, stack: Stack, end: int, is_open: bool) -> int:
        # A range that torch marks by hand may end after the call that began it.
        nanoseconds: int = max(min(event.start_time_ns + event.duration_time_ns, end) - event.start_time_ns, 0)
        name = entry(event) if is_open else None
        own = stack if name is None else (*stack, name)
        stacks.setdefault(own, 0.0)
        counts[own] = counts.get(own, 0) + 1
        is_open = is_open and not (name or "").startswith("aten::")
        inner = sum(add(child, own, event.start_time_ns + nanoseconds, is_open) for child in event.children)
        stacks[own] += max(nanoseconds - inner, 0) / 1e9
        return nanoseconds

    for event in events:
        add(event, (root,), event.start_time_ns + event.duration_time_ns, True)
    stacks.pop((root,), None)
    counts.pop((root,), None)
    return stacks, counts


@dataclass
class _Box:
    """A node of the tree of stacks: its own seconds, and the boxes that stand on it."""

    stack: Stack
    own: float = 0.0
    above: dict[str, _Box] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.own + sum(box.seconds for box in self.above.values())

    @property
    def height(self) -> int:
        return 1 + max((box.height for box in self.above.values()), default=0)


def flame_svg(stacks: dict[Stack, float], category: Callable[[Stack], str]) -> str:
    """Draws stacks as a flame graph, in their given order from left to right.

    Args:
        stacks: Seconds of each stack, without those of the stacks that go on from it.
        category: The category of a stack or of its beginning, which gives a box its colour.

    Returns:
        A whole SVG file without scripts; pointing at a box shows its time.
    """
    root = _Box(())
    totals: dict[str, float] = dict.fromkeys(COLOURS, 0.0)
    for stack, seconds in stacks.items():
        box = root
        for depth, name in enumerate(stack, start=1):
            box = box.above.setdefault(name, _Box(stack[:depth]))
        box.own += seconds
        totals[category(stack)] = totals.get(category(stack), 0.0) + seconds
    whole = root.seconds
    height = TOP + root.height * ROW + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        "<style>text { font-size: 12px; fill: #222222 } .box { font: 11px monospace } "
        "rect { stroke: #ffffff; stroke-width: 0.6 }</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(totals, whole),
    ]

    def draw(box: _Box, x: float, row: int) -> None:
        width = (WIDTH - 2 * MARGIN) * box.seconds / whole
        if width < NARROWEST:
            return
        y = height - MARGIN - (row + 1) * ROW
        name = box.stack[-1] if box.stack else "epoch"
        colour = COLOURS.get(category(box.stack), OTHER_COLOUR) if box.stack else COLOURS["overhead"]
        parts.append(_drawn(name, x, y, width, colour, box.seconds, whole))
        for child in box.above.values():
            draw(child, x, row + 1)
            x += (WIDTH - 2 * MARGIN) * child.seconds / whole

    draw(root, MARGIN, 0)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _drawn(name: str, x: float, y: float, width: float, colour: str, seconds: float, whole: float) -> str:
    label = re.sub(r"^(.*/)?(\w+)\.py: ", r"\2.", name).removeprefix("aten::")
    room = int((width - 6) / LETTER)
    if len(label) > room:
        label = f"{label[: room - 1]}…" if room > 3 else ""
    text = f'<text class="box" x="{x + 4:.2f}" y="{y + 14}">{escape(label)}</text>' if label else ""
    return (
        f"<g><title>{escape(name)}: {1e3 * seconds:.3f} ms, {seconds / whole:.1%}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW}" rx="1.5" fill="{colour}"/>{text}</g>'
    )


def _legend(totals: dict[str, float], whole: float) -> list[str]:
    hint = "Width is time. A box stands on the one that called it."
    parts = [
        f'<text x="{MARGIN}" y="25" style="font-size: 16px">One epoch: {1e3 * whole:.1f} ms</text>',
        f'<text x="{WIDTH - MARGIN}" y="25" text-anchor="end" style="fill: #666666">{hint}</text>',
    ]
    x = float(MARGIN)
    for name, seconds in totals.items():
        if seconds > 0:
            label = f"{name} {seconds / whole:.1%}"
            colour = COLOURS.get(name, OTHER_COLOUR)
            parts.append(f'<rect x="{x:.1f}" y="40" width="14" height="14" rx="2" fill="{colour}"/>')
            parts.append(f'<text x="{x + 20:.1f}" y="52">{escape(label)}</text>')
            x += 44 + LETTER * len(label)
    return parts
