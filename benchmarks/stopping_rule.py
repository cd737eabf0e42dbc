"""Which stopping rule is robust, by validation figures alone.

Trains the paper's configurations to the last of 1500 epochs, then replays each rule on the recorded validation losses
and accuracies: where it would have stopped, which epoch it would have chosen, and how far that epoch's validation
objective lies above the lowest one of the whole run. Test nodes play no part: their figures are never read.

    python benchmarks/stopping_rule.py            # resumes; writes results/stopping_rule.json
    python benchmarks/stopping_rule.py --table    # prints it for docs/stopping.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from paper_rows import paper_row

from adagpr.files import read_json, write_json
from adagpr.training import Epoch, Stopping, TrainingConfig, fit

RECORD = Path(__file__).parent.parent / "results" / "stopping_rule.json"
SEEDS = {"cora": range(6), "chameleon": range(2), "cornell": range(2), "texas": range(2), "wisconsin": range(2)}
RULES = [
    (progress, patience) for progress in ("monitor", "validation") for patience in (50, 100, 150, 200, 300, 400, 500)
]


def full_histories(name: str, runs: Path) -> tuple[dict[str, Any], list[list[Epoch]]]:
    """Validation history of every run of a configuration, trained to the end."""
    _, cell, graph, splits = paper_row(name)
    options = {**cell.options, "patience": None}
    histories = []
    for split in splits:
        for seed in SEEDS[name]:
            out = runs / f"{name}-{split.name.replace('/', '-')}-{seed}"
            run = fit(graph, split, seed=seed, out=out, **options)
            columns = run.history.select(["train_loss", "train_acc", "val_loss", "val_acc", "penalty"]).to_pydict()
            histories.append([Epoch(*row) for row in zip(*columns.values(), strict=True)])
            print(f"{out.name}: lowest at epoch {run.best_epoch}", file=sys.stderr, flush=True)
    monitor = {key: options[key] for key in ("monitor", "decay") if key in options}
    return monitor, histories


def replay(history: list[Epoch], training: dict[str, Any], progress: str, patience: int) -> dict[str, float]:
    """What a rule would have done with one run."""
    config = TrainingConfig.model_validate({**training, "progress": progress, "patience": patience})
    stopping = Stopping()
    number = 0
    for number, epoch in enumerate(history, 1):
        stopping.update(number, epoch, config)
        if stopping.is_over(config):
            break
    chosen = history[stopping.best_epoch - 1]
    lowest = min(getattr(epoch, config.monitor) for epoch in history)
    return {"epochs": number, "excess": getattr(chosen, config.monitor) - lowest, "val_acc": chosen.val_acc}


def main() -> None:
    """Trains, replays and records."""
    runs = Path("runs") / "stopping-rule"
    gathered = {name: full_histories(name, runs) for name in SEEDS}
    rows = []
    for progress, patience in RULES:
        for name, (training, histories) in gathered.items():
            outcomes = [replay(history, training, progress, patience) for history in histories]
            rows.append(
                {
                    "progress": progress,
                    "patience": patience,
                    "dataset": name,
                    "num_runs": len(outcomes),
                    "mean_epochs": round(fmean(item["epochs"] for item in outcomes), 1),
                    "mean_val_acc": round(fmean(item["val_acc"] for item in outcomes), 4),
                    "mean_excess": round(fmean(item["excess"] for item in outcomes), 4),
                    "worst_excess": round(max(item["excess"] for item in outcomes), 4),
                }
            )
    write_json(RECORD, rows)


def table() -> None:
    """Prints the record as a Markdown table: worst excess of any run, and mean epochs over the sets."""
    rows = read_json(RECORD)
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    print(f"| progress | patience | {' | '.join(names)} | worst | epochs |")
    print("| --- | --- |" + " --- |" * (len(names) + 2))
    for progress, patience in RULES:
        mine = [row for row in rows if (row["progress"], row["patience"]) == (progress, patience)]
        worst = [row["worst_excess"] for row in mine]
        epochs = fmean(row["mean_epochs"] for row in mine)
        cells = " | ".join(f"{value:.3f}" for value in [*worst, max(worst)])
        print(f"| {progress} | {patience} | {cells} | {epochs:.0f} |")


if __name__ == "__main__":
    table() if sys.argv[1:] == ["--table"] else main()
