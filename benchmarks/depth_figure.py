"""Accuracy by depth on Cora's public split, GCN against AdaGPR, ours and printed: one figure and one table.

adagpr reproduce table2 --only table2_gcn_cora --only table2_adagpr_cora --out results --runs runs/catalogue
python benchmarks/depth_figure.py             # writes docs/depth.svg
python benchmarks/depth_figure.py --table     # prints the table for docs/models.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from adagpr.charts import COLOURS, Axis, Line, Lines, picture_files
from adagpr.charts import figure as draw
from adagpr.files import read_json, write_text

ROOT = Path(__file__).parent.parent
DEPTHS = (2, 4, 8, 16, 32, 64)
METHODS = {"GCN": ("table2_gcn_cora", COLOURS[1]), "AdaGPR": ("table2_adagpr_cora", COLOURS[0])}
KEYS = ("test_acc", "published")


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


def figure() -> str:
    """The figure as SVG."""
    lines = []
    for method, (stem, colour) in METHODS.items():
        found = {item["layers"]: item for item in records(stem)}
        ours, printed = ([found[depth][key] if depth in found else None for depth in DEPTHS] for key in KEYS)
        lines.append(Line(f"{method}, ours", ours, colour, has_dots=True))
        lines.append(Line(f"{method}, printed", printed, colour, is_dashed=True))
    chart = Lines(
        name="depth",
        title="Cora, public split",
        x=Axis("layers", ticks=tuple((depth, str(depth)) for depth in DEPTHS), is_log=True),
        at=DEPTHS,
        lines=lines,
        y=Axis("test accuracy in %", includes=(0.0, 100.0)),
    )
    return picture_files(draw(chart, size=(6.6, 3.6), legend="right"), ["svg"])["svg"].decode()


def main() -> None:
    """Writes the figure."""
    write_text(ROOT / "docs" / "depth.svg", figure())


if __name__ == "__main__":
    table() if sys.argv[1:] == ["--table"] else main()
