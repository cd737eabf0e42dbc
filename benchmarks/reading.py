"""Writes ``docs/reading.md``, the page that reads three real runs aloud.

``python benchmarks/reading.py explain`` explains runs of the catalogue, trained again where they are not in
``runs/catalogue``, into ``results/reading.json``, and draws their pictures.
``python benchmarks/reading.py`` writes the page from that record and ``benchmarks/reading.md``, its words; with
``--table`` it prints it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from paper_rows import paper_row

from adagpr import bounds, explain, fit
from adagpr.files import read_json, write_json, write_text
from adagpr.reporting import plot

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "reading.json"
PAGE = ROOT / "docs" / "reading.md"
PICTURES = {
    "cora": ("coefficients", "filter", "smoothing"),
    "chameleon": ("evolution", "filter"),
    "texas": ("evolution",),
}


def read_run(name: str) -> dict[str, Any]:
    """What the page quotes of one run; its pictures are drawn beside the page."""
    row, cell, graph, splits = paper_row(name)
    first = read_json(ROOT / "results" / "catalogue" / f"{row.name}-{cell.layers}.json")["runs"][0]
    folder = ROOT / "runs" / "catalogue" / first["config"]
    run = fit(graph, splits[0], seed=first["seed"], num_threads=1, out=folder, **cell.options)
    pictures = ROOT / "docs" / "reading"
    for file in plot(folder, pictures / name, only=PICTURES[name]).files:
        if file.suffix == ".svg":
            file.replace(pictures / f"{name}-{file.name}")
        else:
            file.unlink()
    (pictures / name).rmdir()
    found = explain(run).to_plain()
    theory = bounds(run)
    return {
        "config": first["config"],
        "split": first["split"],
        "result": run.record["result"],
        "num_test": run.record["data"]["num_test"],
        **{key: found[key] for key in ("num_val", "val_acc", "reach", "ablations", "groups", "smoothing")},
        "layers": [{key: part[key] for key in ("layer", "coefficients", "mean_hop")} for part in found["layers"]],
        "network_response": [found["network_response"][place] for place in (0, -1)],
        "bound": {
            "run": theory.total("run").log10_printed,
            "gcnii": theory.total("gcnii").log10_printed,
            "gap": theory.transductive.log10_total,
            "error_gap": theory.transductive.error_gap,
        },
    }


def page() -> str:
    """The page from the record and its words."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)  # noqa: S701 - Markdown
    words = (Path(__file__).parent / "reading.md").read_text(encoding="utf-8")
    command = [sys.executable, str(Path(__file__).parent / "spectra.py"), "--table"]
    spectra = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text: str = environment.from_string(words).render(**read_json(RECORD), spectra=spectra)
    return text.rstrip("\n") + "\n"


if __name__ == "__main__":
    if "explain" in sys.argv[1:]:
        write_json(RECORD, {name: read_run(name) for name in PICTURES})
    if "--table" in sys.argv[1:]:
        sys.stdout.write(page())
    else:
        write_text(PAGE, page())
