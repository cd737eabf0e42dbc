"""The page of a run or several: one HTML file that opens with no network and holds every number that it shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adagpr.charts import render
from adagpr.errors import InputError
from adagpr.files import make_folder, tidied, to_toml, write_all
from adagpr.graph import Graph, Split
from adagpr.insight import Comparison, DatasetFiles, Explanation, compare
from adagpr.reporting.charts import SECTIONS
from adagpr.reporting.reported_model import ReportedModel, read_model
from adagpr.task import METRICS, scores_of_result
from adagpr.training import Run, scaling_sentence


def report(
    runs: Sequence[Path | str | Sequence[Run]],
    out: Path | str = "report.html",
    *,
    names: Sequence[str] | None = None,
    graph: Graph | None = None,
    splits: Sequence[Split] = (),
    data_root: Path | str | None = None,
    dataset: DatasetFiles = None,
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
        dataset: The runs' file, or two tables; see `adagpr.explain`.

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
    named = zip(runs, called, strict=True)
    models = _told_apart([read_model(each, name, graph, splits, data_root, dataset) for each, name in named])
    with tidied(target.parent):
        make_folder(target.parent)
        places = [_history_beside(model, target, number) for number, model in enumerate(models)]
        content = page(models, [link for link, _ in places]).encode()
        copies = {copy: source.read_bytes() for _, sources in places for copy, source in sources.items()}
        write_all({**copies, target: content})
    return target


def page(models: Sequence[ReportedModel], histories: Sequence[str | None]) -> str:
    """The page as text; ``histories`` are the files of the full histories, as links from the page."""
    charts = {anchor: [list(draw(model)) for model in models] for anchor, (_, draw) in SECTIONS.items()}
    return render(
        Path(__file__).parent / "page.html",
        title=" · ".join(dict.fromkeys(model.name for model in models)),
        models=models,
        headlines=[_headline(model) for model in models],
        sentences=[_sentences(model) for model in models],
        comparisons=_comparisons(models),
        sections=[(anchor, SECTIONS[anchor][0], drawings) for anchor, drawings in charts.items() if any(drawings)],
        notes=_notes(models),
        configs=[to_toml(model.record["config"]) for model in models],
        records=[json.dumps(model.record, indent=2, ensure_ascii=False) for model in models],
        histories=histories,
        cell=_cell,
        titles={name: item.title for name, item in METRICS.items()},
        score_of=lambda run, part: scores_of_result(run.record["result"]).get(part, {}).get(run.metric),
        pairs=_pairs,
        paired_sentence=_paired_sentence,
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
    what = "test" if found.metric == "accuracy" else f"test {METRICS[found.metric].title}"
    headings = ["split", "seed", f"{one}, {what} %", f"{other}, {what} %", "difference in points"]
    rows: list[list[Any]] = [[pair.split, pair.seed, pair.a, pair.b, pair.difference] for pair in found.pairs]
    if all(row[1] is None for row in rows):
        return [headings[0], *headings[2:]], [[row[0], *row[2:]] for row in rows]
    return headings, rows


def _history_beside(model: ReportedModel, target: Path, number: int) -> tuple[str | None, dict[Path, Path]]:
    """The link to the first run's whole history, and its copy with its source unless it is below the page's folder."""
    folder = model.first.folder
    if folder is None:
        return None, {}
    source = (folder / "history.parquet").resolve()
    beside = target.resolve().parent
    if source.is_relative_to(beside):
        return source.relative_to(beside).as_posix(), {}
    copy = target.with_name(f"{target.stem}-history{'' if number == 0 else f'-{number + 1}'}.parquet")
    return copy.name, {copy: source}


def _cell(value: Any) -> str:
    """A number of a table as people write it."""
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _headline(model: ReportedModel) -> list[tuple[str, str]]:
    """The numbers at the top of the page, each with what it is."""
    is_single, data, metric = len(model.runs) == 1, model.record["data"], model.metric
    title, numbers = METRICS[metric].title, []
    # Older runs were not measured by all metrics, and some are undefined on nodes of one class.
    tested = {name: score for name in METRICS if (score := model.mean_score("test", name)) is not None}
    if metric in tested:
        over = f"on {data['num_test']} test nodes" if is_single else f"over {len(model.runs)} runs"
        numbers.append((_percent(tested.pop(metric)), f"test {title} {over}"))
        if (found := model.interval("test", metric)) is not None:
            numbers.append((f"{100 * found[0]:.1f} to {100 * found[1]:.1f}", "its 95 % interval"))
    if "accuracy" in tested:
        numbers.append((_percent(tested.pop("accuracy")), "test accuracy"))
    if "macro_f1" in tested:
        numbers.append((f"{tested.pop('macro_f1'):.3f}", "test macro F1: every class counts the same"))
    validated = model.mean_score("val", metric)
    if validated is not None:
        words = f"on {data['num_val']} validation nodes" if is_single else f"validation {title}"
        numbers.append((_percent(validated), words))
    numbers += [(_percent(score), f"test {METRICS[name].title}") for name, score in tested.items()]
    if is_single:
        epochs = f"{model.first.best_epoch} of {model.first.num_epochs}"
        numbers.append((epochs, "epochs: chosen by validation, trained"))
    return numbers


def _percent(score: float) -> str:
    return f"{100 * score:.1f} %"


def _sentences(model: ReportedModel) -> list[str]:
    """What the page says about the graph, for somebody who reads nothing else of it."""
    messages = []
    found = model.explanation
    if len(model.runs) > 1:
        split, seed = model.record["data"]["split"], model.record["config"]["training"]["seed"]
        messages.append(
            f"What follows, sentences and pictures, is split {split} with seed {seed}, the first of "
            f"{len(model.runs)} runs, unless it says mean."
        )
    if found is not None:
        idle = [part.layer for part in found.layers if not part.uses_graph]
        if len(idle) == len(found.layers):
            messages.append("No layer uses the graph: every prediction reads nothing but its own node.")
        else:
            some = f"{len(found.layers) - len(idle)} of {len(found.layers)} layers use"
            which, reach = some if idle else "Every layer uses", found.reach
            share = 100 * reach.mean_nodes / reach.num_nodes
            messages.append(
                f"{which} the graph. Together they look {reach.total_hops} hop{'s' * (reach.total_hops != 1)} far, "
                f"where a prediction can read {share:.0f} % of all nodes on average."
            )
            if found.signed:
                messages.append(_differences(found))
            if found.ablations:
                messages.append(_worth(found))
    if model.bounds is not None:
        gap = model.bounds.transductive
        says = "which says nothing about a gap of at most 1" if gap.log10_total >= 0 else "which says something"
        messages.append(
            f"Test less training error is {100 * gap.error_gap:+.1f} points; the paper's bound allows "
            f"10^{gap.log10_total:.1f}, {says}."
        )
    scaled = scaling_sentence(model.record)
    return [*messages, *([] if scaled is None else [scaled]), *model.left_out]


def _differences(found: Explanation) -> str:
    """How many layers subtract hops from others, and which does so most."""
    both = [part for part in found.layers if min(part.coefficients) < 0 < max(part.coefficients)]
    if not both:
        return "No layer takes a difference of hops: within each their weights have one sign."
    most = min(both, key=lambda part: min(part.coefficients))
    value = min(most.coefficients)
    return (
        f"{len(both)} of {len(found.layers)} layers take a difference: they add some hops and subtract others, most of "
        f"all layer {most.layer} with {value:.2f} of {found.hop_names[most.coefficients.index(value)]}."
    )


def _worth(found: Explanation) -> str:
    """What the validation nodes lose without the graph."""
    without = found.ablations[0]
    if not (without.right_only_with or without.right_only_without):
        return "Taking the graph away from the trained weights changes no validation node from right to wrong or back."
    verb = "costs" if without.difference >= 0 else "gains"
    return (
        f"Taking the graph away from the trained weights {verb} {abs(without.difference):.1f} points on the validation "
        f"nodes: {without.right_only_with} are right only with it, {without.right_only_without} only without it."
    )


def _paired_sentence(found: Comparison, one: str, other: str) -> str:
    """What the paired differences of two models say."""
    spread = ""
    if found.t_interval is not None:
        low, high = found.t_interval
        spread = f" (95 % interval {low:+.1f} to {high:+.1f}, p = {found.p_value:.3f}, {len(found.pairs)} pairs)"
    node = "" if found.node_points is None else f" One test node is {found.node_points:.1f} points."
    ahead = "ahead of" if found.mean_difference >= 0 else "behind"
    verdicts = {"A is better": f"{one} is better", "B is better": f"{other} is better"}
    verdict = verdicts.get(found.verdict, found.verdict) if spread else "one pair shows no more than itself"
    difference = f"{abs(found.mean_difference):.1f} points {ahead} {other}{spread}"
    return f"In test {METRICS[found.metric].title} {one} is {difference}: {verdict}.{node}"
