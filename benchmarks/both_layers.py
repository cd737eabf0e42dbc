"""Both layers over the development graphs: the study behind the defaults of adagpr-signed, and what they reach.

    python benchmarks/both_layers.py grid       # settings of the second layer, judged by validation nodes alone
    python benchmarks/both_layers.py models     # every model at its defaults, on the first split
    python benchmarks/both_layers.py splits     # both layers on all splits, at their defaults and tuned
    python benchmarks/both_layers.py page       # writes the tables of docs/signed.md

Options: ``--graphs cora texas``, ``--jobs 2``, ``--out results/both_layers.json``. What the record has is not
run again, and several of these commands may run at the same time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from operator import eq, gt, itemgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from filelock import FileLock

import adagpr
from adagpr.data import catalogue
from adagpr.errors import AdaGPRError
from adagpr.files import read_json, write_json, write_text
from adagpr.nn import MODELS
from adagpr.nn.adagpr_signed import NODES_PER_FEATURE

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "signed.md"
START, END = "<!-- tables: written by benchmarks/both_layers.py -->\n", "<!-- end of tables -->\n"
# Cheapest first.
GRAPHS = (
    "texas", "cornell", "wisconsin", "chameleon-filtered", "cora", "citeseer", "chameleon", "actor", "minesweeper",
    "twitch", "pubmed", "computers", "tolokers",
)  # fmt: skip
TEN_SPLITS = ("texas", "cornell", "wisconsin", "cora", "citeseer", "chameleon", "pubmed")
# Epochs at most where more would take days: for the grid, and for the other models.
GRID_EPOCHS = {"actor": 300, "minesweeper": 600, "twitch": 100, "pubmed": 100, "computers": 100, "tolokers": 100}
MODEL_EPOCHS = {"twitch": 500, "pubmed": 500, "computers": 500, "tolokers": 300}
OWN = ("adagpr", "adagpr-signed")
# On graphs so small that one split has some dozens of test nodes, all models are trained on all splits.
SMALL = ("texas", "cornell", "wisconsin", "chameleon-filtered")
# What is trained on all splits beside the defaults of both layers.
SPLITS = ("minesweeper", "tolokers", "actor", "computers", "chameleon")
# Options of the second layer beside its defaults, chosen on the validation nodes of the first split.
TUNED: dict[str, dict[str, Any]] = {
    "chameleon": {
        "num_layers": 12, "norm": "batch", "dropout": 0.0, "feature_dropout": 0.0, "own_map": False, "shrinkage": 0.1,
        "weight_decay": 0.0, "directions": "one",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One run. ``shows_test`` is false where runs are compared in order to choose one."""

    graph: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    split: int = 0
    shows_test: bool = True

    def is_done(self, rows: list[dict[str, Any]]) -> bool:
        """Whether the record has it."""
        wanted = asdict(self)
        del wanted["shows_test"]
        shown = [row for row in rows if not self.shows_test or "test" in row or "error" in row]
        return any(all(row[key] == value for key, value in wanted.items()) for row in shown)


def load(name: str) -> tuple[adagpr.Graph, list[adagpr.Split]]:
    """A graph with the splits of this study."""
    return adagpr.load(name, split="geom-gcn" if name in TEN_SPLITS else None)


def grid(name: str) -> Iterator[Job]:
    """Settings of the second layer, and the first at its defaults."""
    limit = {"max_epochs": GRID_EPOCHS[name]} if name in GRID_EPOCHS else {}
    yield Job(name, "adagpr", limit, shows_test=False)
    for num_layers, norm, feature_dropout in itertools.product((2, 12), ("batch", "layer"), (0.0, 0.5)):
        options = {"num_layers": num_layers, "norm": norm, "feature_dropout": feature_dropout, **limit}
        yield Job(name, "adagpr-signed", options, shows_test=False)


def models(name: str) -> Iterator[Job]:
    """Every model at its defaults."""
    limit = {"max_epochs": MODEL_EPOCHS[name]} if name in MODEL_EPOCHS else {}
    for split in range(10 if name in SMALL else 1):
        for model in MODELS:
            yield Job(name, model, {} if model in OWN else limit, split)


def splits(name: str) -> Iterator[Job]:
    """Both layers at their defaults, and the second with the options that `TUNED` has for a graph."""
    if name not in SPLITS:
        return
    for number in range(3 if name == "computers" else 10):
        for model in OWN:
            yield Job(name, model, split=number)
        if name in TUNED:
            yield Job(name, "adagpr-signed", TUNED[name], number)


PLANS = {"grid": grid, "models": models, "splits": splits}


def run(job: Job) -> dict[str, Any]:
    """The run, as the record has it."""
    graph, found = load(job.graph)
    row = asdict(job)
    del row["shows_test"]
    try:
        result = adagpr.fit(graph, found[job.split], job.model, **{"num_threads": 1, **job.options})
    except AdaGPRError as error:
        return {**row, "error": str(error)}
    parts = ("val", "test") if job.shows_test else ("val",)
    return {
        **row,
        "metric": result.metric,
        **{part: round(result.score(part), 4) for part in parts},
        "best_epoch": result.best_epoch,
        "num_epochs": result.num_epochs,
        "machine": {"seconds": round(result.record["machine"]["seconds"], 1)},
    }


def add(row: dict[str, Any], path: Path) -> None:
    """Writes a row into the record, where others may write at the same time."""
    with FileLock(f"{path}.lock"):
        rows = read_json(path)["runs"] if path.exists() else []
        write_json(path, {"runs": [*rows, row]})
    sys.stderr.write(f"{json.dumps(row)}\n")


def percent(value: float) -> str:
    """A share as the tables have it."""
    return f"{100 * value:.1f}"


def options_text(row: dict[str, Any]) -> str:
    """The options of a row, without the limit of epochs that all rows of its graph share."""
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in row["options"].items() if key != "max_epochs")


def of_plan(rows: list[dict[str, Any]], plan: str, name: str) -> list[dict[str, Any]]:
    """The rows of a plan on a graph; none where some are missing."""
    jobs = list(PLANS[plan](name))
    found = [next((row for row in rows if job.is_done([row])), None) for job in jobs]
    return [row for row in found if row is not None] if None not in found else []


def has_many_features(name: str) -> bool:
    """On which side of the border between the two sets of defaults a graph is."""
    counts = catalogue()[name].counts
    return counts.nodes < NODES_PER_FEATURE * counts.features


def grid_table(rows: list[dict[str, Any]]) -> list[str]:
    """The best setting of each graph, and the mean rank of each setting, on either side of the border."""
    lines = ["| graph | adagpr | adagpr-signed, best setting | with |", "| --- | --- | --- | --- |"]
    ranks: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for name in GRAPHS:
        first, *found = of_plan(rows, "grid", name) or [{}]
        if not found:
            continue
        best = max(found, key=itemgetter("val"))
        scores = f"{percent(first['val'])} | {percent(best['val'])}"
        lines.append(f"| {name} | {scores} | `{options_text(best)}` |")
        of_side = ranks[has_many_features(name)]
        for row in found:
            better, equal = (sum(test(other["val"], row["val"]) for other in found) for test in (gt, eq))
            of_side.setdefault(options_text(row), []).append(better + (equal + 1) / 2)
    for side, of_side in ranks.items():
        number = len(next(iter(of_side.values()), []))
        fewer = f"fewer than {NODES_PER_FEATURE}" if side else f"at least {NODES_PER_FEATURE}"
        lines += ["", f"| setting | mean rank, {fewer} nodes per feature ({number} graphs) |", "| --- | --- |"]
        ordered = sorted(of_side.items(), key=lambda item: fmean(item[1]))
        lines += [f"| `{setting}` | {fmean(of_graph):.2f} |" for setting, of_graph in ordered]
    return lines


def models_table(rows: list[dict[str, Any]]) -> list[str]:
    """Both layers at their defaults beside the best other model, in the mean of the splits."""
    lines = ["| graph | adagpr | adagpr-signed | better by validation | best other | difference |", "|" + 6 * " --- |"]
    for name in GRAPHS:
        scores: dict[str, list[tuple[float, float]]] = {}
        for row in of_plan(rows, "models", name):
            if "error" not in row:
                scores.setdefault(row["model"], []).append((row["val"], row["test"]))
        means = {model: tuple(map(fmean, zip(*pairs, strict=True))) for model, pairs in scores.items()}
        if not means:
            continue
        chosen = max(OWN, key=lambda model: means[model][0])
        other = max((model for model in means if model not in OWN), key=lambda model: means[model][1])
        both = " | ".join(" / ".join(map(percent, means[model])) for model in OWN)
        difference = 100 * (means[chosen][1] - means[other][1])
        lines.append(f"| {name} | {both} | {chosen} | {other} {percent(means[other][1])} | {difference:+.1f} |")
    return lines


def splits_table(rows: list[dict[str, Any]]) -> list[str]:
    """Means over the splits that are there."""
    lines = ["| graph | metric | model | validation | test | splits |", "| --- | --- | --- | --- | --- | --- |"]
    for name in SPLITS:
        found: dict[str, list[dict[str, Any]]] = {}
        for job in splits(name):
            title = f"{job.model} with `{options_text(asdict(job))}`" if job.options else job.model
            found.setdefault(title, []).extend(row for row in rows if job.is_done([row]))
        for title, runs in found.items():
            if not runs:
                continue
            val, test = ([100 * row[part] for row in runs] for part in ("val", "test"))
            spread = f" ± {stdev(test):.1f}" if len(test) > 1 else ""
            means = f"{fmean(val):.1f} | {fmean(test):.1f}{spread}"
            lines.append(f"| {name} | {runs[0]['metric']} | {title} | {means} | {len(runs)} |")
    return lines


def tables(rows: list[dict[str, Any]]) -> str:
    """What `docs/signed.md` has of the record."""
    return "\n\n".join(
        [
            "All splits of a graph, test scores with their standard deviation over the splits:",
            "\n".join(splits_table(rows)),
            "Both layers beside the best of the other models, all at their defaults, validation / test. The best other "
            "model\nis the best on the test nodes, which nobody could have chosen; the better layer is chosen by "
            "validation. On the\nfour smallest graphs scores are means over ten splits, on the others they are of the "
            "first split:",
            "\n".join(models_table(rows)),
            "Settings of the second layer on the graphs that are complete, by the validation nodes of the first split:",
            "\n".join(grid_table(rows)),
        ]
    )


def write_page(rows: list[dict[str, Any]]) -> None:
    """Puts the tables into their place on the page."""
    before, start, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise SystemExit(f"{PAGE.name}: the lines {START.strip()} and {END.strip()} must be around the tables.")
    write_text(PAGE, f"{before}{start}{tables(rows)}\n{end}{after}")


def main() -> None:
    """Runs what the record does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", choices=[*PLANS, "page"])
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=GRAPHS, metavar="GRAPH")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "both_layers.json")
    asked = parser.parse_args()
    rows = read_json(asked.out)["runs"] if asked.out.exists() else []
    if asked.plan == "page":
        write_page(rows)
        return
    jobs = [job for name in asked.graphs for job in PLANS[asked.plan](name) if not job.is_done(rows)]
    with ProcessPoolExecutor(asked.jobs) as pool:
        for future in as_completed([pool.submit(run, job) for job in jobs]):
            add(future.result(), asked.out)


if __name__ == "__main__":
    main()
