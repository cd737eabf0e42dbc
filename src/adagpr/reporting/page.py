"""The page of a run or several: one HTML file that opens with no network and holds every number that it shows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adagpr.errors import InputError
from adagpr.files import make_folder, to_toml, write_atomically, write_text
from adagpr.graph import Graph, Split
from adagpr.insight import Comparison, compare
from adagpr.reporting.charts import Chart
from adagpr.reporting.parts import PARTS
from adagpr.reporting.subject import ReportedModel, read_subject
from adagpr.reporting.words import headline, paired_sentence, sentences
from adagpr.web.page import drawn, render

__all__ = ["page", "write_report"]


def write_report(
    folders: Sequence[Path | str],
    out: Path | str,
    *,
    names: Sequence[str] | None = None,
    graph: Graph | None = None,
    splits: Sequence[Split] = (),
    data_root: Path | str | None = None,
) -> Path:
    """Writes the page of runs.

    Args:
        folders: Folders of a run or of several runs of one model; several of them stand side by side.
        out: The HTML file. Where it is not in a run's folder, the run's history is copied to a file beside it.
        names: What to call each, by default by data set and model.
        graph: The graph of the runs, where it is at hand.
        splits: Its splits, likewise.
        data_root: Folder of the data files; see `adagpr.load`.

    Returns:
        The file.

    Raises:
        InputError: A folder holds no complete run, or runs of more than one model.
    """
    if not folders:
        raise InputError("report: name the folder of at least one run.")
    if names is not None and len(names) != len(folders):
        raise InputError(f"report: {len(folders)} folders need as many names, got {len(names)}.")
    target = Path(out)
    if target.is_dir():
        raise InputError(f"report: {target} is a folder; name a file such as {target / 'report.html'}.")
    called: Sequence[str | None] = names or [None] * len(folders)
    subjects = _told_apart(
        [read_subject(folder, name, graph, splits, data_root) for folder, name in zip(folders, called, strict=True)]
    )
    make_folder(target.parent)
    histories = [_history_beside(subject, target, number) for number, subject in enumerate(subjects)]
    write_text(target, page(subjects, histories))
    return target


def page(subjects: Sequence[ReportedModel], histories: Sequence[str | None] | None = None) -> str:
    """The page as text; ``histories`` are the files of the full histories, as links from the page."""
    drawings: list[tuple[str, str, list[list[Chart]]]] = []
    for anchor, heading, draw in PARTS:
        charts = [draw(subject) for subject in subjects]
        if any(charts):
            drawings.append((anchor, heading, charts))
    return render(
        Path(__file__).parent / "page.html",
        title=_title(subjects),
        subjects=subjects,
        headlines=[headline(subject) for subject in subjects],
        sentences=[sentences(subject) for subject in subjects],
        comparisons=_comparisons(subjects),
        parts=drawings,
        notes=_notes(subjects),
        configs=[to_toml(subject.record["config"]) for subject in subjects],
        records=[json.dumps(subject.record, indent=2, ensure_ascii=False) for subject in subjects],
        histories=histories or [None] * len(subjects),
        drawn=drawn,
        cell=_cell,
        pairs=_pairs,
        paired_sentence=paired_sentence,
    )


def _title(subjects: Sequence[ReportedModel]) -> str:
    return " · ".join(dict.fromkeys(subject.name for subject in subjects))


def _told_apart(subjects: list[ReportedModel]) -> list[ReportedModel]:
    """Subjects of one name get their folders' names added."""
    names = [subject.name for subject in subjects]
    return [
        replace(subject, name=f"{subject.name} ({subject.folder.resolve().name})")
        if names.count(subject.name) > 1
        else subject
        for subject in subjects
    ]


def _notes(subjects: Sequence[ReportedModel]) -> list[str]:
    """What the data and the explanation warn of, each once."""
    notes = [note for subject in subjects for note in subject.record["data"].get("notes", ())]
    remarks = [remark for subject in subjects if subject.explanation for remark in subject.explanation.remarks]
    return list(dict.fromkeys([*notes, *remarks]))


def _comparisons(subjects: Sequence[ReportedModel]) -> list[Comparison | str]:
    """The first against each other one, or the sentence that says why the two cannot be compared."""
    found: list[Comparison | str] = []
    for other in subjects[1:]:
        try:
            found.append(compare(subjects[0].folder, other.folder))
        except InputError as error:
            found.append(f"A is {subjects[0].name}, B is {other.name}: {error}")
    return found


def _pairs(found: Comparison, one: str, other: str) -> tuple[list[str], list[list[Any]]]:
    """Headings and rows of the paired differences, with seeds where a pair is a seed."""
    headings = ["split", "seed", f"{one}, test %", f"{other}, test %", "difference in points"]
    rows: list[list[Any]] = [[pair.split, pair.seed, pair.a, pair.b, pair.difference] for pair in found.pairs]
    if all(row[1] is None for row in rows):
        return [headings[0], *headings[2:]], [[row[0], *row[2:]] for row in rows]
    return headings, rows


def _history_beside(subject: ReportedModel, target: Path, number: int) -> str | None:
    """The file of the first run's whole history, relative to the page; copied there unless it is below it."""
    folder = subject.first.folder
    if folder is None:
        return None
    source = (folder / "history.parquet").resolve()
    beside = target.resolve().parent
    if source.is_relative_to(beside):
        return source.relative_to(beside).as_posix()
    copy = target.with_name(f"{target.stem}-history{'' if number == 0 else f'-{number + 1}'}.parquet")

    def write(temporary: Path) -> None:
        shutil.copyfile(source, temporary)

    write_atomically(copy, write)
    return copy.name


def _cell(value: Any) -> str:
    """A number of a table as people write it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)
