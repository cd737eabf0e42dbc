"""Both layers over the development graphs, the second on a small grid: the study behind the defaults of adagpr-signed.

    python benchmarks/layer_defaults.py [--graphs cora texas] [--out results/layer_defaults.json]
    python benchmarks/layer_defaults.py --table      # mean ranks and the best of each layer, from the record

Every run is on the first split of its graph, at the model's other defaults, and is judged by its data set's metric on
the validation nodes alone. What is recorded is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import adagpr
from adagpr.files import read_json, write_json

# Cheapest first, with the largest number of epochs.
GRAPHS: dict[str, dict[str, Any]] = {
    "texas": {"split": "geom-gcn"},
    "cornell": {"split": "geom-gcn"},
    "wisconsin": {"split": "geom-gcn"},
    "chameleon-filtered": {},
    "cora": {"split": "geom-gcn"},
    "citeseer": {"split": "geom-gcn"},
    "chameleon": {"split": "geom-gcn"},
    "actor": {},
    "minesweeper": {},
    "pubmed": {"split": "geom-gcn"},
    "computers": {},
    "tolokers": {},
}
EPOCHS = {"computers": 300, "tolokers": 200}
GRID = [
    ("adagpr", {}),
    *(
        ("adagpr-signed", {"num_layers": num_layers, "dropout": dropout, "own_map": own_map})
        for own_map, num_layers, dropout in itertools.product((True, False), (2, 4, 8, 12), (0.2, 0.5))
    ),
]


def named(model: str, options: dict[str, Any]) -> str:
    """A setting as a text."""
    return " ".join([model, *(f"{key}={value}" for key, value in options.items())])


def measure(name: str, model: str, options: dict[str, Any]) -> dict[str, Any]:
    """One run, as the record has it."""
    graph, splits = adagpr.load(name, **GRAPHS[name])
    began = time.perf_counter()
    limit = {"max_epochs": EPOCHS.get(name, 1500)}
    run = adagpr.fit(graph, splits[0], model, **{**limit, **options})
    score = run.score("val", run.metric)
    return {
        "graph": name,
        "setting": named(model, options),
        "metric": run.metric,
        "val": round(score, 4),
        "best_epoch": run.best_epoch,
        "num_epochs": run.num_epochs,
        "machine": {"seconds": round(time.perf_counter() - began, 1)},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """For each graph the best of both layers, and for each setting its mean rank over the graphs that have all."""
    by_graph: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        by_graph[row["graph"]][row["setting"]] = row["val"]
    lines = ["| graph | adagpr | adagpr-signed, best of the grid | with |", "| --- | --- | --- | --- |"]
    ranks: dict[str, list[int]] = defaultdict(list)
    for name, found in by_graph.items():
        signed = {setting: value for setting, value in found.items() if setting.startswith("adagpr-signed")}
        if len(found) < len(GRID):
            continue
        best = max(signed, key=signed.__getitem__)
        with_ = best.removeprefix("adagpr-signed ")
        lines.append(f"| {name} | {100 * found['adagpr']:.1f} | {100 * signed[best]:.1f} | {with_} |")
        for setting, value in signed.items():
            ranks[setting].append(1 + sum(other > value for other in signed.values()))
    lines += ["", "| setting | mean rank |", "| --- | --- |"]
    ordered = sorted(ranks, key=lambda setting: fmean(ranks[setting]))
    lines += [f"| {setting.removeprefix('adagpr-signed ')} | {fmean(ranks[setting]):.2f} |" for setting in ordered]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs what the record does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS), metavar="GRAPH")
    parser.add_argument("--table", action="store_true", help="print the tables, run nothing")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "layer_defaults.json")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = read_json(asked.out)["runs"] if asked.out.exists() else []
    if asked.table:
        sys.stdout.write(table(rows))
        return
    for name in asked.graphs:
        for model, options in GRID:
            if any((row["graph"], row["setting"]) == (name, named(model, options)) for row in rows):
                continue
            rows.append(measure(name, model, options))
            sys.stderr.write(f"{rows[-1]}\n")
            write_json(asked.out, {"runs": rows})


if __name__ == "__main__":
    main()
