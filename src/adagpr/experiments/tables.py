"""Records beside what the paper prints: as rows, and as tables in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from adagpr.data import catalogue as datasets
from adagpr.files import read_toml
from adagpr.statistics import interval

__all__ = [
    "Property",
    "Row",
    "Table",
    "accuracy_rows",
    "accuracy_table",
    "coefficient_table",
    "property_rows",
    "property_table",
    "to_csv",
]


@dataclass(frozen=True)
class Table:
    """A table for people.

    Attributes:
        headings: One a column.
        lines: One text a column.
        title: Stands above it.
        remark: A sentence between the two.
        spare: Headings of columns that a narrow terminal does without, the first to go first.
    """

    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
    title: str = ""
    remark: str = ""
    spare: Sequence[str] = ()

    def to_markdown(self) -> str:
        """The table with its title and remark."""
        above = [*([f"### {self.title}", ""] if self.title else []), *([self.remark, ""] if self.remark else [])]
        ruled = [self.headings, ["---"] * len(self.headings), *self.lines]
        return "\n".join([*above, *(f"| {' | '.join(line)} |" for line in ruled)]) + "\n"

    def to_latex(self) -> str:
        """The table for a paper, with its title as a comment; needs the package booktabs."""
        top, *body = (" & ".join(map(_escaped, line)) + r" \\" for line in (self.headings, *self.lines))
        begin = rf"\begin{{tabular}}{{{'l' * len(self.headings)}}}"
        above = [f"% {self.title}"] if self.title else []
        parts = [*above, begin, r"\toprule", top, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
        return "\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    for sign in ("%", "&", "_", "#"):
        text = text.replace(sign, rf"\{sign}")
    return text.replace("±", r"$\pm$")


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """All fields, one line a row; rows have the same keys."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _one_cell(value) for key, value in row.items()})
    return out.getvalue()


def _one_cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


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
        interval: 95 % interval of the mean, Student's: over the splits, whose seeds are averaged first, or over the
            seeds of the only split; the mean itself twice for a single run.
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
    low, high = interval(_independent(record["runs"]))
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


def _independent(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """Accuracies in percent that are independent of each other, as seeds of one of several splits are not."""
    by_split: dict[str, list[float]] = {}
    for run in runs:
        by_split.setdefault(run["split"], []).append(100 * run["test_acc"])
    first, *others = by_split.values()
    return [fmean(values) for values in (first, *others)] if others else first


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


def accuracy_table(rows: Sequence[Row], remark: str = "") -> Table:
    """Ours beside printed, a line a row."""
    headings = (
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
    return Table(
        headings, [_cells(row) for row in rows], remark=remark, spare=("settings", "table", "runs", "difference")
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


def coefficient_table(title: str, remark: str, ours: Sequence[Sequence[float]], printed: Sequence[Any]) -> Table:
    """The coefficients of a network, a line a layer, ours and in brackets what is printed."""
    hops = [f"hop {hop}" for hop in range(len(ours[0]))]
    lines = [
        [str(layer), *(f"{a:.3f} ({b:.3f})" for a, b in zip(own, given, strict=True))]
        for layer, (own, given) in enumerate(zip(ours, printed, strict=True), start=1)
    ]
    return Table(("layer", *hops), lines, title, remark, spare=hops[:0:-1])


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


def property_table(rows: Sequence[Property]) -> Table:
    """Ours beside printed, a line an entry."""
    lines = [[row.dataset, row.what, f"{row.ours:,}", f"{row.published:,}", row.note] for row in rows]
    return Table(("data set", "property", "ours", "printed", "note"), lines)


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
