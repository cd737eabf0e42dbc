"""What ``make demo`` prints, as text and as a picture, from a real run.

python benchmarks/demo.py            # writes results/demo.txt and docs/demo.svg
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from adagpr.cli.train_view import show
from adagpr.data import load
from adagpr.files import write_text
from adagpr.training.several import fit_all, without_graph

HERE = Path(__file__).parent.parent


def main() -> None:
    """Trains as the demo does and records its output."""
    graph, splits = load("digits")
    out = Path("runs/demo")
    runs = fit_all(graph, splits, out=out)
    twins = fit_all(graph, splits, out=out / "without-graph", **without_graph("adagpr", {}))
    console = Console(file=io.StringIO(), record=True, width=72, highlight=False, force_terminal=True)
    show(graph, splits, runs, twins, out, console)
    picture = console.export_svg(title="make demo", clear=False)
    # The picture must not reach for fonts on the network.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    text = "\n".join(line.rstrip() for line in console.export_text().splitlines()) + "\n"
    write_text(HERE / "results" / "demo.txt", text)
    write_text(HERE / "docs" / "demo.svg", picture)


if __name__ == "__main__":
    main()
