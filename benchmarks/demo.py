"""What ``make demo`` prints, as text, and a picture of the page that it writes, from a real run.

python benchmarks/demo.py     # writes results/demo.txt and docs/report.png; needs Debian's chromium and playwright
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from pathlib import Path
from shutil import which

from PIL import Image
from playwright.sync_api import sync_playwright

from adagpr.cli.train_view import show_runs
from adagpr.data import load
from adagpr.files import write_atomically, write_text
from adagpr.reporting import report
from adagpr.training import fit_all

HERE = Path(__file__).parent.parent
WIDTH, HEIGHT = 1000, 1130


def main() -> None:
    """Trains as the demo does and records its output."""
    graph, splits = load("digits")
    out = Path("runs/demo")
    runs = fit_all(graph, splits, out=out, without_graph=True)
    os.environ["COLUMNS"] = "72"
    with redirect_stdout(io.StringIO()) as printed:
        show_runs(graph, splits, runs)
    text = "\n".join(line.rstrip() for line in printed.getvalue().splitlines()) + "\n"
    write_text(HERE / "results" / "demo.txt", text)
    page = report([out], out / "one.html", graph=graph, splits=splits)
    write_atomically(HERE / "docs" / "report.png", lambda path: picture(page, path))
    page.unlink()


def picture(page: Path, path: Path) -> None:
    """Draws the top of a page in a browser, in few colours."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=which("chromium"), chromium_sandbox=False)
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector(".main-svg")
        shot = tab.screenshot()
        browser.close()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(64).save(path, format="png", optimize=True)


if __name__ == "__main__":
    main()
