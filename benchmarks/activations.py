"""What keeping activations as bfloat16 does to accuracy; repeating it does what is missing.

python benchmarks/activations.py           # runs, and writes results/activations.json
python benchmarks/activations.py --table   # what is recorded, as Markdown
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from adagpr.data import load
from adagpr.experiments import experiment
from adagpr.files import read_json, write_json
from adagpr.training.several import fit_all

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
        graph, splits = load(row.data.name, row.data.split)
        for dtype in ("float32", "bfloat16"):
            options = {**cell.options, "activations": dtype}
            runs = fit_all(graph, splits, seeds=range(num_seeds), out=RUNS / f"{name}-{dtype}", **options)
            record.setdefault(row.data.name, {})[dtype] = [round(item.test_acc, 4) for item in runs]
            write_json(RECORD, record)


def table() -> None:
    """Prints means, standard deviations and the mean difference of equal runs."""
    print("| data set | runs | float32 | bfloat16 | difference |")
    print("| --- | --- | --- | --- | --- |")
    for name, found in read_json(RECORD).items():
        exact, rounded = found["float32"], found["bfloat16"]
        cells = [f"{100 * fmean(values):.2f} +- {100 * stdev(values):.2f}" for values in (exact, rounded)]
        difference = fmean(100 * (other - one) for one, other in zip(exact, rounded, strict=True))
        print(f"| {name} | {len(exact)} | {cells[0]} | {cells[1]} | {difference:+.2f} |")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print what is recorded")
    table() if parser.parse_args().table else run()


if __name__ == "__main__":
    main()
