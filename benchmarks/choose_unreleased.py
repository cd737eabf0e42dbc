"""Settings for rows of the tables, or depths of them, whose authors released none: chosen by validation accuracy alone.

For each row every setting of a small grid is run, on all ten splits or with two seeds on a public one, and the one with
the highest mean validation accuracy is recorded. The test figures of the runs are not read here.

    python benchmarks/choose_unreleased.py table3_appnp_texas         # resumes; writes results/chosen/
    python benchmarks/choose_unreleased.py table2_adagpr_cora:64      # one depth of a row
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from adagpr.data import load
from adagpr.experiments import experiment
from adagpr.files import make_folder, write_json
from adagpr.training import config_digest, fit, resolve

RECORDS = Path(__file__).parent.parent / "results" / "chosen"
RUNS = Path("runs") / "catalogue"
GRIDS: dict[str, dict[str, list[Any]]] = {
    "adagpr": {"dropout": [0.5, 0.6], "monitor": ["val_objective", "val_acc"]},
    "appnp": {"alpha": [0.1, 0.3, 0.5, 0.7, 0.9], "lr": [0.01, 0.05]},
    "gprgnn": {"init_alpha": [0.1, 0.5, 0.9, 1.0], "lr": [0.01, 0.05]},
    "jknet": {"lr": [0.001, 0.01, 0.05], "dropout": [0.3, 0.5, 0.7], "weight_decay": [0.0005, 0.005]},
    "incepgcn": {"lr": [0.004, 0.01], "dropout": [0.3, 0.5, 0.8], "weight_decay": [0.00005, 0.0005, 0.005]},
}


def main(names: list[str]) -> None:
    """Chooses for each row named."""
    make_folder(RECORDS)
    for name in names:
        row, depth = experiment(name.partition(":")[0]), name.partition(":")[2]
        cell = next(cell for cell in row.cells() if depth in ("", str(cell.layers)))
        model, grid = row.model, GRIDS[row.model]
        graph, splits = load(row.dataset, row.split)
        seeds = (0,) if len(splits) > 1 else (0, 1)
        tried = []
        for values in product(*grid.values()):
            change = dict(zip(grid, values, strict=True))
            accuracies = []
            for split, seed in product(splits, seeds):
                options = {**cell.options, **change, "seed": seed, "num_threads": 1}
                out = RUNS / config_digest(resolve(graph, split, model, options).plain)
                accuracies.append(fit(graph, split, model, out=out, **options).val_acc)
            tried.append({**change, "val_acc": round(100 * fmean(accuracies), 2)})
            print(name, tried[-1], flush=True)
        best = max(tried, key=lambda item: item["val_acc"])
        write_json(RECORDS / f"{name.replace(':', '-')}.json", {"chosen": best, "tried": tried})


if __name__ == "__main__":
    main(sys.argv[1:])
