"""What each feature scaling does to three models, by validation alone: the rule of ``auto`` follows from it.

python benchmarks/feature_scaling.py            # measures what results/feature_scaling.json lacks
python benchmarks/feature_scaling.py --table    # prints the table of docs/models.md

Every run takes one thread, split 0, seed 0 and a fixed number of epochs, all else at its default. Test nodes are not
read. Beside graphs as they come there are some that are spoilt, on which a scaling has something to mend.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

import adagpr
from adagpr.data import data_root, load
from adagpr.files import read_json, write_json
from adagpr.graph import Graph

RECORD = Path(__file__).parent.parent / "results" / "feature_scaling.json"
MODELS = ("mlp", "graphsage", "adagpr")
SCALINGS = ("none", "rows", "standardise")


class Case(NamedTuple):
    """A data set, how many epochs it is trained for, and what is done to its features first."""

    dataset: str
    max_epochs: int
    spoil: Callable[[Graph], Graph] = lambda graph: graph


def counted(graph: Graph) -> Graph:
    """Ten of every word."""
    x = sp.csr_array(graph.x)
    return graph.with_features(sp.csr_array((np.full_like(x.data, 10.0), x.indices, x.indptr), shape=x.shape))


def unequal(graph: Graph) -> Graph:
    """Columns in units from a hundredth to a thousand."""
    units = 10.0 ** np.random.default_rng(0).uniform(-2, 3, graph.num_features)
    return graph.with_features((torch.as_tensor(graph.x) * torch.from_numpy(units)).float())


def divided(graph: Graph, by: float) -> Graph:
    """Every value smaller than it was."""
    return graph.with_features(graph.x / by)


CASES = {
    "cora": Case("cora", 200),
    "digits": Case("digits", 200),
    "minesweeper": Case("heterophilous-graphs/minesweeper.npz", 100),
    "tolokers": Case("heterophilous-graphs/tolokers.npz", 40),
    "actor": Case("heterophilous-graphs/actor.npz", 60),
    "computers": Case("development/computers.npz", 60),
    "cora, ten of every word": Case("cora", 200, counted),
    "digits, columns in unequal units": Case("digits", 200, unequal),
    "digits, in thousandths": Case("digits", 200, partial(divided, by=1000.0)),
    "cora, in tenths": Case("cora", 200, partial(divided, by=10.0)),
}


def measure(name: str, done: dict[str, Any]) -> None:
    """Trains what is missing of one case, and writes the record after every run."""
    case = CASES[name]
    source = str(data_root() / case.dataset) if case.dataset.endswith(".npz") else case.dataset
    graph, splits = load(source)
    graph = case.spoil(graph)
    found = done.setdefault(name, {"max_epochs": case.max_epochs, "val": {}})
    for model in MODELS:
        of_model = found["val"].setdefault(model, {})
        for scaling in SCALINGS:
            if scaling in of_model:
                continue
            options: dict[str, Any] = {"max_epochs": case.max_epochs, "num_threads": 1, "feature_scaling": scaling}
            run = adagpr.fit(graph, splits[0], model, **options)
            of_model[scaling] = {
                "accuracy": round(run.val_acc, 4),
                "loss": round(run.score("val", "loss"), 4),
                "best_epoch": run.best_epoch,
            }
            print(name, model, scaling, of_model[scaling], flush=True)
            write_json(RECORD, done)
    found["auto"] = adagpr.fit(graph, splits[0], "mlp", max_epochs=1, feature_scaling="auto").record["feature_scaling"]
    write_json(RECORD, done)


def table() -> str:
    """Validation accuracies in per cent as Markdown; what ``auto`` chooses is bold."""
    head = f"| graph | epochs | {' | '.join(f'{model}: none | rows | standardise' for model in MODELS)} |"
    lines = [head, "| " + " | ".join(["---"] * (2 + len(MODELS) * len(SCALINGS))) + " |"]
    for name, found in read_json(RECORD).items():
        cells = []
        for model in MODELS:
            for scaling in SCALINGS:
                value = f"{100 * found['val'][model][scaling]['accuracy']:.1f}"
                cells.append(f"**{value}**" if scaling == found["auto"] else value)
        lines.append(f"| {name} | {found['max_epochs']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true")
    if parser.parse_args().table:
        print(table(), end="")
        return
    done = read_json(RECORD) if RECORD.exists() else {}
    for name in CASES:
        measure(name, done)


if __name__ == "__main__":
    main()
