"""Accuracy by depth on Cora's public split, GCN against AdaGPR, ours and printed: one figure and one table.

adagpr reproduce table2 --only table2_gcn_cora --only table2_adagpr_cora --out results --runs runs/catalogue
python benchmarks/depth_figure.py             # writes docs/depth.svg
python benchmarks/depth_figure.py --table     # prints the table for docs/models.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from adagpr.files import read_json, write_text

ROOT = Path(__file__).parent.parent
DEPTHS = (2, 4, 8, 16, 32, 64)
METHODS = {"GCN": ("table2_gcn_cora", "#c0392b"), "AdaGPR": ("table2_adagpr_cora", "#1f6f8b")}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 660, 360, 60, 24, 130, 52


def records(stem: str) -> list[dict[str, Any]]:
    """The recorded cells of a row, by depth."""
    paths = [ROOT / "results" / "catalogue" / f"{stem}-{depth}.json" for depth in DEPTHS]
    return [read_json(path) for path in paths if path.exists()]


def table() -> None:
    """Prints ours and printed by depth."""
    print(f"| method | {' | '.join(str(depth) for depth in DEPTHS)} |")
    print("| --- |" + " --- |" * len(DEPTHS))
    for method, (stem, _) in METHODS.items():
        found = {item["layers"]: item for item in records(stem)}
        ours = [f"{found[depth]['test_acc']:.1f}" if depth in found else "" for depth in DEPTHS]
        printed = [f"{found[depth]['published']:.1f}" if depth in found else "" for depth in DEPTHS]
        print(f"| {method}, ours | {' | '.join(ours)} |")
        print(f"| {method}, printed | {' | '.join(printed)} |")


def place(depth: int, value: float) -> tuple[float, float]:
    """Where a point lies: depth by its logarithm, accuracy from 0 to 100."""
    x = LEFT + (WIDTH - LEFT - RIGHT) * DEPTHS.index(depth) / (len(DEPTHS) - 1)
    return x, TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / 100)


def figure() -> str:
    """The figure as SVG, readable on light and dark pages."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        "<style>text { font-size: 13px }</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for value in range(0, 101, 20):
        _, y = place(2, value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#444444">{value}</text>')
    for depth in DEPTHS:
        x, y = place(depth, 0)
        parts.append(f'<text x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle" fill="#444444">{depth}</text>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle" fill="#222222">layers</text>')
    parts.append(f'<text x="{LEFT}" y="16" fill="#222222">test accuracy on Cora, public split (%)</text>')
    for method, (stem, colour) in METHODS.items():
        found = records(stem)
        for key, dash, label in (("test_acc", "", f"{method}, ours"), ("published", "5 4", f"{method}, printed")):
            points = [place(item["layers"], item[key]) for item in found]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
            )
            if key == "test_acc":
                parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
            # The higher of the two lines has its name above its end, the other below.
            offset = -6 if found[-1][key] == max(found[-1]["test_acc"], found[-1]["published"]) else 12
            parts.append(
                f'<text x="{points[-1][0] + 8:.1f}" y="{points[-1][1] + offset:.1f}" fill="{colour}">{label}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Writes the figure."""
    write_text(ROOT / "docs" / "depth.svg", figure())


if __name__ == "__main__":
    table() if sys.argv[1:] == ["--table"] else main()
