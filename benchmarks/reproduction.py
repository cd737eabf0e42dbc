"""Ours beside printed, and why where they are more than a point apart: the tables of docs/reproduction.md.

adagpr reproduce --out results --runs runs/catalogue     # the records
python benchmarks/reproduction.py                        # writes the tables of docs/reproduction.md
python benchmarks/reproduction.py --table                # prints them
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import fill
from typing import Any

from adagpr.files import read_json, read_toml, write_text

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
START, END = "<!-- tables: written by benchmarks/reproduction.py -->\n", "<!-- end of tables -->\n"
# As the paper orders them.
METHODS = (
    *("GCN", "GCN(Drop)", "GAT", "Geom-GCN-I", "Scattering GCN", "APPNP", "JKNet", "JKNet(Drop)", "IncepGCN"),
    *("IncepGCN(Drop)", "GPR-GNN", "GCNII", "GCNII*", "AdaGPR"),
)
DATASETS = ("cora", "citeseer", "pubmed", "chameleon", "cornell", "texas", "wisconsin")
# Behind a number whose settings are neither the paper's nor the authors'.
MARKS = {"chosen": r"\*", "usual": "°"}
# Points from which on a difference is explained.
APART = 1.0

Record = Mapping[str, Any]


def main() -> None:
    """Writes the tables, or prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the tables, write nothing")
    parser.add_argument("--records", type=Path, default=ROOT / "results" / "catalogue")
    parser.add_argument("--reasons", type=Path, default=ROOT / "docs" / "differences.toml")
    asked = parser.parse_args()
    records = {path.stem: read_json(path) for path in sorted(asked.records.glob("*.json"))}
    text = tables(records, read_toml(asked.reasons)["difference"])
    if asked.table:
        sys.stdout.write(text)
        return
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    write_text(PAGE, f"{before}{START}\n{text}\n{END}{rest.partition(END)[2]}")


def tables(records: Mapping[str, Record], reasons: Sequence[Mapping[str, Any]]) -> str:
    """All tables and reasons, as Markdown."""
    parts = ["### Table 3: ten fixed splits\n", _table_3(records)]
    for dataset in DATASETS[:3]:
        parts += [f"### Table 2: {dataset.capitalize()}, public split\n", _table_2(records, dataset)]
    return "\n".join([*parts, "### Where they are more than a point apart\n", _reasons(records, reasons)])


def difference(record: Record) -> float | None:
    """Ours less printed, where a number is printed."""
    return None if isinstance(record["published"], str) else record["test_acc"] - record["published"]


def _is_apart(record: Record) -> bool:
    found = difference(record)
    return found is not None and abs(found) > APART


def _table_3(records: Mapping[str, Record]) -> str:
    found = {(record["method"], record["dataset"]): record for record in records.values() if record["table"] == 3}
    return _grid(found, [name for name in DATASETS if any(key[1] == name for key in found)], str.capitalize)


def _table_2(records: Mapping[str, Record], dataset: str) -> str:
    found = {
        (record["method"], record["layers"]): record
        for record in records.values()
        if record["table"] == 2 and record["dataset"] == dataset
    }
    return _grid(found, sorted({layers for _, layers in found}), lambda layers: f"{layers} layers")


def _grid(found: Mapping[tuple[str, Any], Record], columns: Sequence[Any], heading: Any) -> str:
    methods = [method for method in METHODS if any(key[0] == method for key in found)]
    lines = [["method", *map(heading, columns)], ["---"] * (len(columns) + 1)]
    lines += [[method, *(_cell(found.get((method, column))) for column in columns)] for method in methods]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(record: Record | None) -> str:
    if record is None:
        return ""
    digits, printed = (2 if record["table"] == 3 else 1), record["published"]
    ours, said = f"{record['test_acc']:.{digits}f}", printed if isinstance(printed, str) else f"{printed:.{digits}f}"
    shown = f"**{ours}**" if _is_apart(record) else ours
    return f"{shown}{'¹' if record['num_runs'] == 1 else ''}{MARKS.get(record['settings'], '')} ({said})"


def _reasons(records: Mapping[str, Record], reasons: Sequence[Mapping[str, Any]]) -> str:
    """Each reason with the cells that it is about; cells without one, and reasons without a cell, are mistakes."""
    apart = [name for name, record in records.items() if _is_apart(record)]
    explained: set[str] = set()
    lines = []
    for reason in reasons:
        cells = [name for name in apart if any(fnmatchcase(name, pattern) for pattern in reason["cells"])]
        if not cells:
            sys.exit(f"docs/differences.toml: nothing is more than a point apart any more among {reason['cells']}.")
        explained |= set(cells)
        table, shown = records[cells[0]]["table"], ", ".join(_name(records[name]) for name in cells)
        lines.append(
            fill(f"- Table {table}: {shown}. {reason['why']}", 124, subsequent_indent="  ", break_on_hyphens=False)
        )
    missing = [name for name in apart if name not in explained]
    if missing:
        sys.exit(f"docs/differences.toml does not say why these are more than a point apart: {', '.join(missing)}.")
    return "\n".join(lines) + "\n"


def _name(record: Record) -> str:
    depth = "" if record["table"] == 3 else f" at {record['layers']} layers"
    return f"{record['method']} on {record['dataset'].capitalize()}{depth} {difference(record):+.1f}"


if __name__ == "__main__":
    main()
