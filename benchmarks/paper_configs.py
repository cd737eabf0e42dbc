"""The paper's configurations, as they are and with one thing changed: the stopping rule, or how coefficients are made.

python benchmarks/paper_configs.py default                # resumes; writes results/paper_configs/default.json
python benchmarks/paper_configs.py --table                # prints all records side by side
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from paper_rows import paper_row

from adagpr.files import make_folder, read_json, write_json
from adagpr.training import Run, fit_all, summarise

RECORDS = Path(__file__).parent.parent / "results" / "paper_configs"
SEEDS = {"cora": range(3), "texas": range(1), "cornell": range(1), "chameleon": range(1), "wisconsin": range(1)}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper-stopping": {"patience": 100, "progress": "monitor"},
    "sparsemax": {"projection": "sparsemax"},
    "softmax": {"projection": "softmax"},
    "entmax-1.5": {"projection": "entmax-1.5"},
    "sphericalmax": {"projection": "sphericalmax"},
    "uniform": {"projection": "fixed"},
}


def runs_of(dataset: str, variant: str) -> list[Run]:
    """All runs of one configuration with the variant's change."""
    _, cell, graph, splits = paper_row(dataset)
    options = cell.options | VARIANTS[variant]
    if variant == "uniform" and isinstance(options["weight_decay"], dict):
        options["weight_decay"] = {key: value for key, value in options["weight_decay"].items() if key != "coeffs"}
    out = Path("runs") / "paper-configs" / variant / dataset
    return fit_all(graph, splits, seeds=SEEDS[dataset], out=out, **options)


def row_of(run: Run) -> dict[str, Any]:
    """What is kept of one run."""
    result = run.record["result"]
    return {
        "split": run.record["data"]["split"],
        "seed": run.record["config"]["training"]["seed"],
        "test_acc": round(run.test_acc, 4),
        "val_acc": round(run.val_acc, 4),
        "val_loss": round(run.score("val", "loss"), 4),
        "best_epoch": run.best_epoch,
        "num_epochs": result["num_epochs"],
        "coefficients": [[round(value, 3) for value in layer] for layer in run.record["coefficients"]],
    }


def table() -> None:
    """Prints all records as a Markdown table: mean test accuracy, and the mean validation loss in brackets."""
    records = {name: read_json(RECORDS / f"{name}.json") for name in VARIANTS if (RECORDS / f"{name}.json").exists()}
    print(f"| variant | {' | '.join(SEEDS)} |")
    print("| --- |" + " --- |" * len(SEEDS))
    for variant, record in records.items():
        cells = []
        for item in record.values():
            loss = fmean(run["val_loss"] for run in item["runs"])
            cells.append(f"{100 * item['test_acc']:.2f} +- {100 * item['test_acc_std']:.2f} ({loss:.3f})")
        print(f"| {variant} | {' | '.join(cells)} |")


def main(variants: list[str]) -> None:
    """Runs and records the variants named."""
    make_folder(RECORDS)
    for variant in variants:
        record = {}
        for dataset in SEEDS:
            runs = runs_of(dataset, variant)
            record[dataset] = {**summarise(runs), "change": VARIANTS[variant], "runs": [row_of(run) for run in runs]}
            print(variant, dataset, {key: round(value, 4) for key, value in summarise(runs).items()}, flush=True)
        write_json(RECORDS / f"{variant}.json", record)


if __name__ == "__main__":
    table() if sys.argv[1:] == ["--table"] else main(sys.argv[1:])
