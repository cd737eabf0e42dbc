"""Ours beside printed, and why where they are more than a point apart: the tables of docs/reproduction.md.

adagpr reproduce --out results --runs runs/catalogue     # the records
python benchmarks/reproduction.py                        # writes the tables of docs/reproduction.md
python benchmarks/reproduction.py --table                # prints them
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import fill
from typing import Any

from adagpr.experiments import Row, Table, accuracy_rows
from adagpr.files import read_json, read_toml, write_text

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
START, END = "<!-- tables: written by benchmarks/reproduction.py -->\n", "<!-- end of tables -->\n"
# As the paper orders them.
METHODS = (
    *("GCN", "GCN(Drop)", "GAT", "Geom-GCN-I", "APPNP", "JKNet", "JKNet(Drop)", "IncepGCN"),
    *("IncepGCN(Drop)", "GPR-GNN", "GCNII", "GCNII*", "AdaGPR"),
)
DATASETS = ("cora", "citeseer", "pubmed", "chameleon", "cornell", "texas", "wisconsin")
# Behind a number whose settings are neither the paper's nor the authors'.
MARKS = {"chosen": r"\*", "usual": "°"}
# Points from which on a difference is explained.
APART = 1.0

# The cells of the tables by the names of their records.
Cells = Mapping[str, Row]


def main() -> None:
    """Writes the tables, or prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the tables, write nothing")
    parser.add_argument("--records", type=Path, default=ROOT / "results" / "catalogue")
    parser.add_argument("--reasons", type=Path, default=ROOT / "docs" / "differences.toml")
    asked = parser.parse_args()
    cells = {
        path.stem: row for path in sorted(asked.records.glob("*.json")) for row in accuracy_rows([read_json(path)])
    }
    text = tables(cells, read_toml(asked.reasons)["difference"])
    if asked.table:
        sys.stdout.write(text)
        return
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    write_text(PAGE, f"{before}{START}\n{text}\n{END}{rest.partition(END)[2]}")


def tables(cells: Cells, reasons: Sequence[Mapping[str, Any]]) -> str:
    """All tables and reasons, as Markdown."""
    parts = ["### Table 3: ten fixed splits\n", _table_3(cells)]
    for dataset in DATASETS[:3]:
        parts += [f"### Table 2: {dataset.capitalize()}, public split\n", _table_2(cells, dataset)]
    for dataset in DATASETS[:2]:
        parts += [f"### Ablation: {dataset.capitalize()}, public split\n", _ablation(cells, dataset)]
    return "\n".join([*parts, "### Where they are more than a point apart\n", _reasons(cells, reasons)])


def _is_apart(row: Row) -> bool:
    return row.difference is not None and abs(row.difference) > APART


def _table_3(cells: Cells) -> str:
    found = {(row.model, row.dataset): row for row in cells.values() if row.table == 3}
    return _grid(found, [name for name in DATASETS if any(key[1] == name for key in found)], str.capitalize)


def _table_2(cells: Cells, dataset: str) -> str:
    found = {(row.model, row.num_layers): row for row in cells.values() if (row.table, row.dataset) == (2, dataset)}
    return _grid(found, sorted({layers for _, layers in found if layers}), lambda layers: f"{layers} layers")


def _ablation(cells: Cells, dataset: str) -> str:
    """Learned, equal and no coefficients by depth, with standard deviations; the paper's figures have no numbers."""
    rows = [row for row in cells.values() if row.dataset == dataset and row.table in (2, "ablation")]
    found = {(row.model, row.num_layers): row for row in rows}
    depths = sorted({layers for _, layers in found if layers})
    lines = []
    for method in ("AdaGPR", "GPR with equal coefficients", "GCN"):
        shown = [found.get((method, depth)) for depth in depths]
        lines.append([method, *("" if row is None else f"{row.ours:.1f} ± {row.std:.1f}" for row in shown)])
    return Table(["method", *(f"{depth} layers" for depth in depths)], lines).to_markdown()


def _grid(found: Mapping[tuple[str, Any], Row], columns: Sequence[Any], heading: Callable[[Any], str]) -> str:
    methods = [method for method in METHODS if any(key[0] == method for key in found)]
    lines = [[method, *(_cell(found.get((method, column))) for column in columns)] for method in methods]
    return Table(["method", *map(heading, columns)], lines).to_markdown()


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    digits = 2 if row.table == 3 else 1
    ours = f"{row.ours:.{digits}f}"
    printed = row.published if isinstance(row.published, str) else f"{row.published:.{digits}f}"
    shown = f"**{ours}**" if _is_apart(row) else ours
    return f"{shown}{'¹' if row.num_runs == 1 else ''}{MARKS.get(row.settings, '')} ({printed})"


def _reasons(cells: Cells, reasons: Sequence[Mapping[str, Any]]) -> str:
    """Each reason with the cells that it is about; cells without one, and reasons without a cell, are mistakes."""
    apart = {name: row for name, row in cells.items() if _is_apart(row)}
    explained: set[str] = set()
    lines = []
    for reason in reasons:
        own = [name for name in apart if any(fnmatchcase(name, pattern) for pattern in reason["cells"])]
        if not own:
            sys.exit(f"docs/differences.toml: nothing is more than a point apart any more among {reason['cells']}.")
        explained |= set(own)
        sentence = f"- Table {apart[own[0]].table}: {', '.join(_name(apart[name]) for name in own)}. {reason['why']}"
        lines.append(fill(sentence, 124, subsequent_indent="  ", break_on_hyphens=False))
    missing = [name for name in apart if name not in explained]
    if missing:
        sys.exit(f"docs/differences.toml does not say why these are more than a point apart: {', '.join(missing)}.")
    return "\n".join(lines) + "\n"


def _name(row: Row) -> str:
    depth = "" if row.table == 3 else f" at {row.num_layers} layers"
    return f"{row.model} on {row.dataset.capitalize()}{depth} {row.difference:+.1f}"


if __name__ == "__main__":
    main()
