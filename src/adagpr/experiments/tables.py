"""Records beside what the paper prints: as rows, and as tables in Markdown, LaTeX, HTML and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from adagpr.data import catalogue as datasets
from adagpr.files import read_toml
from adagpr.statistics import interval

_LATEX = str.maketrans({"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "±": r"$\pm$"})


@dataclass(frozen=True)
class Table:
    """A table for people."""

    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
    title: str = ""
    remark: str = ""  # a sentence between title and table
    optional: Sequence[str] = ()  # headings of columns that a narrow terminal leaves out, in this order

    def to_markdown(self) -> str:
        """The table with its title and remark."""
        above = [f"{text}\n" for text in (self.title and f"### {self.title}", self.remark) if text]
        ruled = [self.headings, ["---"] * len(self.headings), *self.lines]
        return "\n".join([*above, *(f"| {' | '.join(line)} |" for line in ruled)]) + "\n"

    def to_latex(self) -> str:
        """The table for a paper, with its title as a comment; needs the package booktabs."""
        table = (self.headings, *self.lines)
        top, *body = (" & ".join(text.translate(_LATEX) for text in line) + r" \\" for line in table)
        begin = rf"\begin{{tabular}}{{{'l' * len(self.headings)}}}"
        above = [f"% {self.title}"] if self.title else []
        parts = [*above, begin, r"\toprule", top, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
        return "\n".join(parts) + "\n"

    def to_html(self) -> str:
        """The table for a notebook."""
        title = f"<h4>{escape(self.title)}</h4>" if self.title else ""
        remark = f"<p>{escape(self.remark)}</p>" if self.remark else ""
        lines = [_html(self.headings, "th"), *(_html(line, "td") for line in self.lines)]
        return f"{title}{remark}<table>{''.join(lines)}</table>"


def _html(line: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in line)}</tr>"


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """All fields, one line per row; rows have the same keys."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        joined = {key: " ".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()}
        writer.writerow(joined)
    return out.getvalue()


@dataclass(frozen=True)
class Row:
    """One number of the paper and ours; accuracies are in percent."""

    table: int | str  # the table, or the figure's target
    dataset: str
    model: str  # the method as printed
    num_layers: int | None  # as printed, none where none are
    ours: float  # mean test accuracy
    std: float  # over runs
    # 95 % interval of the mean, Student's: over the splits, whose seeds are averaged first, or over the seeds of the
    # only split; the mean itself twice for a single run.
    interval: tuple[float, float]
    num_runs: int
    published: float | str  # what is printed: a number, "OOM" or "unprinted"
    difference: float | None  # ours less the printed value, where there is one
    verdict: str
    settings: str  # whose they are; see `adagpr.experiments.catalogue`
    settings_from: str

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "interval": list(self.interval)}


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "table": lambda row: str(row.table),
    "data set": lambda row: row.dataset,
    "method": lambda row: row.model,
    "layers": lambda row: "" if row.num_layers is None else str(row.num_layers),
    "ours": lambda row: f"{row.ours:.2f} ± {row.std:.2f}" if row.num_runs > 1 else f"{row.ours:.2f}",
    "95 % interval": lambda row: f"{row.interval[0]:.2f} to {row.interval[1]:.2f}" if row.num_runs > 1 else "",
    "runs": lambda row: str(row.num_runs),
    "printed": lambda row: "" if row.published == "unprinted" else str(row.published),
    "difference": lambda row: "" if row.difference is None else f"{row.difference:+.2f}",
    "verdict": lambda row: row.verdict,
    "settings": lambda row: row.settings,
}


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
    """Where the printed value lies relative to our interval, in a word or two."""
    if isinstance(published, str):
        return "trains here" if published == "OOM" else ""
    if num_runs == 1:
        return "one run"
    # Printed values are rounded to one or two digits.
    if low - 0.005 <= published <= high + 0.005:
        return "inside"
    return "ours higher" if published < low else "ours lower"


def accuracy_table(rows: Sequence[Row], remark: str = "") -> Table:
    """Ours beside printed, one line per row."""
    optional = ("settings", "table", "runs", "difference")
    lines = [[show(row) for show in _COLUMNS.values()] for row in rows]
    return Table(list(_COLUMNS), lines, remark=remark, optional=optional)


def coefficient_table(title: str, remark: str, ours: Sequence[Sequence[float]], printed: Sequence[Any]) -> Table:
    """The coefficients of a network, one line per layer, ours and in brackets what is printed."""
    hops = [f"hop {hop}" for hop in range(len(ours[0]))]
    lines = [
        [str(layer), *(f"{a:.3f} ({b:.3f})" for a, b in zip(own, given, strict=True))]
        for layer, (own, given) in enumerate(zip(ours, printed, strict=True), start=1)
    ]
    return Table(("layer", *hops), lines, title, remark, optional=hops[:0:-1])


def property_rows() -> list[dict[str, Any]]:
    """The paper's Table 1 beside the counts of the files, and why the two differ where they do."""
    table1 = read_toml(Path(__file__).parent / "table1.toml")
    found = []
    for name, values in table1["printed"].items():
        counts = datasets()[name].counts
        for what, value in values.items():
            note = table1["notes"].get(f"{name} {what}", "")
            about = {"table": 1, "dataset": name, "what": what}
            found.append({**about, "ours": getattr(counts, what), "published": value, "note": note})
    return found


def property_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Ours beside printed, one line per entry."""
    lines = [[row["dataset"], row["what"], f"{row['ours']:,}", f"{row['published']:,}", row["note"]] for row in rows]
    return Table(("data set", "property", "ours", "printed", "note"), lines)
