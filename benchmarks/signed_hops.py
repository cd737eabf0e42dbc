"""Both layers on all splits of a graph, at their defaults or at options that the table names.

    python benchmarks/signed_hops.py [--graphs minesweeper actor]
    python benchmarks/signed_hops.py --table      # prints what the record has

What results/signed_hops.json has is not run again, split by split.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import adagpr
from adagpr.files import read_json, write_json

RECORD = Path(__file__).parents[1] / "results" / "signed_hops.json"
# For each graph what is trained on it; options other than the defaults are in the record and in the table.
RUNS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "minesweeper": [("adagpr", {}), ("adagpr-signed", {})],
    "actor": [("adagpr", {}), ("adagpr-signed", {})],
    "chameleon": [("adagpr-signed", {"num_layers": 2, "own_map": False, "dropout": 0.5})],
    "computers": [("adagpr-signed", {"num_layers": 4})],
    "tolokers": [("adagpr-signed", {"num_layers": 4})],
}
SPLITS = {"chameleon": "geom-gcn"}


def measure(name: str, model: str, options: dict[str, Any], number: int) -> dict[str, Any]:
    """The run on one split, as the record has it."""
    graph, splits = adagpr.load(name, split=SPLITS.get(name))
    run = adagpr.fit(graph, splits[number], model, **options)
    scores = {part: round(run.score(part, run.metric), 4) for part in ("val", "test")}
    chosen = {"best_epoch": run.best_epoch, "num_epochs": run.num_epochs}
    seconds = round(run.record["machine"]["seconds"], 1)
    return {"split": number, **scores, **chosen, "machine": {"seconds": seconds}}


def table(rows: list[dict[str, Any]]) -> str:
    """One line per graph and model."""
    lines = [
        "| graph | model | options | metric | validation | test | splits |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        val, test = ([100 * run[part] for run in row["runs"]] for part in ("val", "test"))
        spread = f" ± {stdev(test):.1f}" if len(test) > 1 else ""
        options = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in row["options"].items()) or "defaults"
        scores = f"{fmean(val):.1f} | {fmean(test):.1f}{spread}"
        lines.append(f"| {row['graph']} | `{row['model']}` | {options} | {row['metric']} | {scores} | {len(test)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Trains what the record does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(RUNS), default=list(RUNS), metavar="GRAPH")
    parser.add_argument("--splits", type=int, default=10, help="how many, from the first on")
    parser.add_argument("--table", action="store_true", help="print the table, run nothing")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = read_json(RECORD)["rows"] if RECORD.exists() else []
    if asked.table:
        sys.stdout.write(table(rows))
        return
    for name in asked.graphs:
        graph, splits = adagpr.load(name, split=SPLITS.get(name))
        for model, options in RUNS[name]:
            known = [row for row in rows if (row["graph"], row["model"], row["options"]) == (name, model, options)]
            if not known:
                metric = "ROC-AUC" if name in ("minesweeper", "tolokers") else "accuracy"
                known = [{"graph": name, "model": model, "options": options, "metric": metric, "runs": []}]
                rows += known
            for number in range(len(known[0]["runs"]), min(asked.splits, len(splits))):
                known[0]["runs"].append(measure(name, model, options, number))
                sys.stderr.write(f"{graph.name} {model} {known[0]['runs'][-1]}\n")
                write_json(RECORD, {"rows": rows})


if __name__ == "__main__":
    main()
