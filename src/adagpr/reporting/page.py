"""The page of a run or several: one HTML file that opens with no network and holds every number that it shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adagpr.charts import render
from adagpr.errors import InputError
from adagpr.files import make_folder, to_toml, write_bytes, write_text
from adagpr.graph import Graph, Split
from adagpr.insight import Comparison, compare
from adagpr.reporting.charts import SECTIONS
from adagpr.reporting.reported_model import ReportedModel, read_model
from adagpr.reporting.sentences import headline, paired_sentence, sentences
from adagpr.training import Run


def report(
    runs: Sequence[Path | str | Sequence[Run]],
    out: Path | str = "report.html",
    *,
    names: Sequence[str] | None = None,
    graph: Graph | None = None,
    splits: Sequence[Split] = (),
    data_root: Path | str | None = None,
) -> Path:
    """Writes the page of runs.

    Args:
        runs: For each model its runs, or the folder of a run or of several; models are shown side by side.
        out: The HTML file, which is also returned. Where it is not in a run's folder, the run's history is copied to a
            file beside it.
        names: What to call each, by default by data set and model.
        graph: The graph of the runs, where it is at hand.
        splits: Its splits, likewise.
        data_root: Folder of the data files; see `adagpr.load`.

    Raises:
        InputError: A folder holds no complete run, or runs of more than one model.
    """
    if not runs:
        raise InputError("report: name the folder of at least one run.")
    if names is not None and len(names) != len(runs):
        raise InputError(f"report: {len(runs)} folders need as many names, got {len(names)}.")
    target = Path(out)
    if target.is_dir():
        raise InputError(f"report: {target} is a folder; name a file such as {target / 'report.html'}.")
    called: Sequence[str | None] = names or [None] * len(runs)
    models = _told_apart(
        [read_model(each, name, graph, splits, data_root) for each, name in zip(runs, called, strict=True)]
    )
    make_folder(target.parent)
    histories = [_history_beside(model, target, number) for number, model in enumerate(models)]
    write_text(target, page(models, histories))
    return target


def page(models: Sequence[ReportedModel], histories: Sequence[str | None]) -> str:
    """The page as text; ``histories`` are the files of the full histories, as links from the page."""
    charts = {anchor: [list(draw(model)) for model in models] for anchor, (_, draw) in SECTIONS.items()}
    return render(
        Path(__file__).parent / "page.html",
        title=" · ".join(dict.fromkeys(model.name for model in models)),
        models=models,
        headlines=[headline(model) for model in models],
        sentences=[sentences(model) for model in models],
        comparisons=_comparisons(models),
        sections=[(anchor, SECTIONS[anchor][0], drawings) for anchor, drawings in charts.items() if any(drawings)],
        notes=_notes(models),
        configs=[to_toml(model.record["config"]) for model in models],
        records=[json.dumps(model.record, indent=2, ensure_ascii=False) for model in models],
        histories=histories,
        cell=_cell,
        pairs=_pairs,
        paired_sentence=paired_sentence,
    )


def _told_apart(models: list[ReportedModel]) -> list[ReportedModel]:
    """Models of one name get their folders' names added."""
    names = [model.name for model in models]
    return [
        replace(model, name=f"{model.name} ({model.folder.resolve().name})") if names.count(model.name) > 1 else model
        for model in models
    ]


def _notes(models: Sequence[ReportedModel]) -> list[str]:
    """What the data and the explanation warn of, each once."""
    notes = [note for model in models for note in model.record["data"].get("notes", ())]
    remarks = [remark for model in models if model.explanation for remark in model.explanation.remarks]
    return list(dict.fromkeys([*notes, *remarks]))


def _comparisons(models: Sequence[ReportedModel]) -> list[Comparison | str]:
    """The first against each other one, or the sentence that says why the two cannot be compared."""
    found: list[Comparison | str] = []
    for other in models[1:]:
        try:
            found.append(compare(models[0].runs, other.runs))
        except InputError as error:
            found.append(f"A is {models[0].name}, B is {other.name}: {error}")
    return found


def _pairs(found: Comparison, one: str, other: str) -> tuple[list[str], list[list[Any]]]:
    """Headings and rows of the paired differences, with seeds where a pair is a seed."""
    headings = ["split", "seed", f"{one}, test %", f"{other}, test %", "difference in points"]
    rows: list[list[Any]] = [[pair.split, pair.seed, pair.a, pair.b, pair.difference] for pair in found.pairs]
    if all(row[1] is None for row in rows):
        return [headings[0], *headings[2:]], [[row[0], *row[2:]] for row in rows]
    return headings, rows


def _history_beside(model: ReportedModel, target: Path, number: int) -> str | None:
    """The file of the first run's whole history, relative to the page; copied there unless it is below it."""
    folder = model.first.folder
    if folder is None:
        return None
    source = (folder / "history.parquet").resolve()
    beside = target.resolve().parent
    if source.is_relative_to(beside):
        return source.relative_to(beside).as_posix()
    copy = target.with_name(f"{target.stem}-history{'' if number == 0 else f'-{number + 1}'}.parquet")
    write_bytes(copy, source.read_bytes())
    return copy.name


def _cell(value: Any) -> str:
    """A number of a table as people write it."""
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
