"""`docs/signed.md` says what the record of the study of both layers says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import both_layers

ROOT = Path(__file__).parents[1]


def made_up(job: both_layers.Job, val: float, test: float) -> dict[str, Any]:
    row = {"graph": job.graph, "model": job.model, "options": job.options, "split": job.split}
    return {**row, "metric": "accuracy", "val": val, "test": test}


def test_the_page_has_the_tables_of_the_record() -> None:
    rows = json.loads((ROOT / "results" / "both_layers.json").read_text())["runs"]
    assert f"{both_layers.START}{both_layers.tables(rows)}\n{both_layers.END}" in both_layers.PAGE.read_text()


def test_the_layer_is_chosen_by_validation_and_the_other_model_by_its_test_score() -> None:
    scores = {"adagpr": (0.8, 0.6), "adagpr-signed": (0.7, 0.9), "gcn": (0.1, 0.7), "mlp": (0.9, 0.65)}
    rows = [made_up(job, *scores.get(job.model, (0.0, 0.0))) for job in both_layers.models("cora")]
    assert both_layers.models_table(rows)[2:] == ["| cora | 80.0 / 60.0 | 70.0 / 90.0 | adagpr | gcn 70.0 | -10.0 |"]


def test_a_setting_is_ranked_among_graphs_of_its_kind_that_are_complete() -> None:
    jobs = [[*both_layers.grid(name)] for name in ("texas", "cornell", "minesweeper")]
    rows = [made_up(job, 1 / (place + 1), 0.0) for of_graph in jobs for place, job in enumerate(of_graph)]
    few, many = both_layers.grid_table(rows[:-1]), both_layers.grid_table(rows)
    best = '| `num_layers=2, norm="batch", feature_dropout=0.0` | 1.00 |'
    assert (few.count(best), many.count(best)) == (1, 2)
    assert any("(2 graphs)" in line for line in many)
