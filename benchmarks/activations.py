"""What keeping activations as bfloat16 does to accuracy; repeating it does what is missing.

python benchmarks/activations.py    # writes results/activations.json, which benchmarks/speed.py makes a table of
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adagpr.data import load
from adagpr.experiments import experiment
from adagpr.files import write_json
from adagpr.training import fit_all

RECORD = Path(__file__).parent.parent / "results" / "activations.json"
RUNS = Path("runs") / "activations"
# Row of the catalogue, printed layers, seeds.
CELLS = (("table2_adagpr_cora", 8, 5), ("table3_adagpr_texas", 4, 1), ("table3_adagpr_chameleon", 2, 1))


def run() -> None:
    """Trains every cell in both precisions."""
    record: dict[str, Any] = {}
    for name, layers, num_seeds in CELLS:
        row = experiment(name)
        cell = next(cell for cell in row.cells() if cell.layers == layers)
        graph, splits = load(row.dataset, row.split)
        for dtype in ("float32", "bfloat16"):
            options = {**cell.options, "activations": dtype}
            runs = fit_all(graph, splits, seeds=range(num_seeds), out=RUNS / f"{name}-{dtype}", **options)
            record.setdefault(row.dataset, {})[dtype] = [round(item.test_acc, 4) for item in runs]
            write_json(RECORD, record)


if __name__ == "__main__":
    run()
