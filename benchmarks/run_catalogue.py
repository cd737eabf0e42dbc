"""Runs cells of the catalogue and keeps their records under results/catalogue; repeating it does what is missing.

python benchmarks/run_catalogue.py table3_*_texas                  # all cells of the rows that match
python benchmarks/run_catalogue.py table2_gcn_cora:2,4,8           # some depths
python benchmarks/run_catalogue.py table2_adagpr_cora:16 --seeds 3
python benchmarks/run_catalogue.py --table                         # what is recorded, as Markdown
"""

from __future__ import annotations

import argparse
from fnmatch import fnmatch
from pathlib import Path

from adagpr.experiments import catalogue, run_cell
from adagpr.files import read_json

RECORDS = Path(__file__).parent.parent / "results" / "catalogue"
RUNS = Path("runs") / "catalogue"


def run(pattern: str, num_seeds: int) -> None:
    """Runs the cells that a pattern such as ``table2_gcn_*:2,4`` names."""
    name, _, depths = pattern.partition(":")
    wanted = {int(depth) for depth in depths.split(",")} if depths else None
    for row in catalogue().values():
        for cell in row.cells():
            if fnmatch(row.name, name) and (wanted is None or cell.layers in wanted):
                record = run_cell(row, cell, RUNS, RECORDS, range(num_seeds))
                seconds = sum(item["seconds"] for item in record["runs"])
                ours = f"{record['test_acc']:.2f} +- {record['test_acc_std']:.2f}"
                print(f"{row.name} {cell.layers}: {ours}, printed {cell.published}, {seconds:.0f} s", flush=True)


def table() -> None:
    """Prints every record: ours, printed, difference."""
    print("| table | data set | method | layers | ours | runs | printed | difference |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    records = [read_json(path) for path in RECORDS.glob("*.json")]
    for item in sorted(records, key=lambda item: (item["table"], item["dataset"], item["method"], item["layers"] or 0)):
        difference = "" if item["published"] == "OOM" else f"{item['test_acc'] - item['published']:+.2f}"
        ours = f"{item['test_acc']:.2f} +- {item['test_acc_std']:.2f}"
        cells = (item["table"], item["dataset"], item["method"], item["layers"] or "", ours, item["num_runs"])
        print(f"| {' | '.join(str(cell) for cell in cells)} | {item['published']} | {difference} |")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="rows, optionally with :depths")
    parser.add_argument("--seeds", type=int, default=1, help="seeds for each split")
    parser.add_argument("--table", action="store_true", help="print what is recorded")
    arguments = parser.parse_args()
    if arguments.table:
        table()
    for pattern in arguments.patterns:
        run(pattern, arguments.seeds)


if __name__ == "__main__":
    main()
