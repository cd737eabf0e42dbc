"""Records beside what the paper prints, as rows, and the rows as Markdown, LaTeX, CSV and plain data."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from adagpr.data import catalogue as datasets
from adagpr.files import read_toml
from adagpr.statistics import interval

__all__ = ["Property", "Row", "accuracy_rows", "grid", "property_rows", "to_csv", "to_latex", "to_markdown"]


@dataclass(frozen=True)
class Row:
    """One number of the paper and ours.

    Attributes:
        table: The table, or the figure's target.
        dataset: Name of the data set.
        model: The method as printed.
        num_layers: Layers as printed, none where none are.
        ours: Mean test accuracy in percent.
        std: Standard deviation over runs.
        interval: 95 % interval of the mean, Student's; the mean itself twice for a single run.
        num_runs: Every run counts.
        published: What is printed: percent, ``"OOM"`` or ``"unprinted"``.
        difference: Ours less the printed value, where there is one.
        verdict: See `verdict`.
        settings: Whose the settings are; see `adagpr.experiments.catalogue`.
        settings_from: Where they come from.
    """

    table: int | str
    dataset: str
    model: str
    num_layers: int | None
    ours: float
    std: float
    interval: tuple[float, float]
    num_runs: int
    published: float | str
    difference: float | None
    verdict: str
    settings: str
    settings_from: str

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "interval": list(self.interval)}


def accuracy_rows(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of records, by table, data set, method and depth."""
    rows = [_row(record) for record in records]
    return sorted(rows, key=lambda row: (str(row.table), row.dataset, row.model, row.num_layers or 0))


def _row(record: Mapping[str, Any]) -> Row:
    low, high = interval([100 * run["test_acc"] for run in record["runs"]])
    published = record["published"]
    return Row(
        record["table"],
        record["dataset"],
        record["method"],
        record["layers"],
        record["test_acc"],
        record["test_acc_std"],
        (round(low, 2), round(high, 2)),
        record["num_runs"],
        published,
        None if isinstance(published, str) else round(record["test_acc"] - published, 2),
        verdict(published, low, high, record["num_runs"]),
        record["settings"],
        record["settings_from"],
    )


def verdict(published: float | str, low: float, high: float, num_runs: int) -> str:
    """How the printed value stands to our interval, in a word or two."""
    if isinstance(published, str):
        return "trains here" if published == "OOM" else ""
    if num_runs == 1:
        return "one run"
    # Printed values are rounded to one or two digits.
    if low - 0.005 <= published <= high + 0.005:
        return "inside"
    return "ours higher" if published < low else "ours lower"


HEADINGS = (
    "table",
    "data set",
    "method",
    "layers",
    "ours",
    "95 % interval",
    "runs",
    "printed",
    "difference",
    "verdict",
    "settings",
)


def _cells(row: Row) -> list[str]:
    return [
        str(row.table),
        row.dataset,
        row.model,
        "" if row.num_layers is None else str(row.num_layers),
        f"{row.ours:.2f} ± {row.std:.2f}" if row.num_runs > 1 else f"{row.ours:.2f}",
        f"{row.interval[0]:.2f} to {row.interval[1]:.2f}" if row.num_runs > 1 else "",
        str(row.num_runs),
        "" if row.published == "unprinted" else str(row.published),
        "" if row.difference is None else f"{row.difference:+.2f}",
        row.verdict,
        row.settings,
    ]


def to_markdown(rows: Sequence[Row] | Sequence[Property]) -> str:
    """A table for people."""
    headings, lines = grid(rows)
    ruled = [f"| {' | '.join(headings)} |", f"| {' | '.join('---' for _ in headings)} |"]
    return "\n".join([*ruled, *(f"| {' | '.join(line)} |" for line in lines)]) + "\n"


def to_latex(rows: Sequence[Row] | Sequence[Property]) -> str:
    """A table for a paper; needs the package booktabs."""
    headings, lines = grid(rows)
    body = [" & ".join(_escaped(cell) for cell in line) + r" \\" for line in lines]
    top = " & ".join(_escaped(heading) for heading in headings) + r" \\"
    columns = "l" * len(headings)
    parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", top, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(parts) + "\n"


def to_csv(rows: Sequence[Row] | Sequence[Property]) -> str:
    """All fields, one line a row."""
    out = io.StringIO()
    writer: Any = None
    for row in rows:
        plain = {key: _one_cell(value) for key, value in row.plain().items()}
        if writer is None:
            writer = csv.DictWriter(out, list(plain), lineterminator="\n")
            writer.writeheader()
        writer.writerow(plain)
    return out.getvalue()


def _one_cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def grid(rows: Sequence[Row] | Sequence[Property]) -> tuple[Sequence[str], list[list[str]]]:
    """Headings and cells as text."""
    if rows and isinstance(rows[0], Property):
        return PROPERTY_HEADINGS, [_property_cells(row) for row in rows if isinstance(row, Property)]
    return HEADINGS, [_cells(row) for row in rows if isinstance(row, Row)]


def _escaped(text: str) -> str:
    for sign in ("%", "&", "_", "#"):
        text = text.replace(sign, rf"\{sign}")
    return text.replace("±", r"$\pm$")


@dataclass(frozen=True)
class Property:
    """One entry of the paper's table of data sets, and what the files hold.

    Attributes:
        table: 1.
        dataset: Name of the data set.
        what: ``"classes"``, ``"nodes"``, ``"edges"`` or ``"features"``.
        ours: What the files hold.
        published: What is printed.
        note: Where the two differ: why.
    """

    table: int
    dataset: str
    what: str
    ours: int
    published: int
    note: str

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


PROPERTY_HEADINGS = ("data set", "property", "ours", "printed", "note")


def _property_cells(row: Property) -> list[str]:
    return [row.dataset, row.what, f"{row.ours:,}", f"{row.published:,}", row.note]


def property_rows() -> list[Property]:
    """The paper's Table 1 beside the counts of the files."""
    printed = _printed_properties()
    return [
        Property(
            1, name, what, getattr(datasets()[name].counts, what), value, printed["notes"].get(f"{name} {what}", "")
        )
        for name, values in printed["printed"].items()
        for what, value in values.items()
    ]


@cache
def _printed_properties() -> dict[str, Any]:
    return read_toml(Path(__file__).parent / "table1.toml")
