"""What a page is about: one run, or the runs of one model over several splits or seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow.compute as pc

from adagpr.errors import InputError
from adagpr.graph import Graph, Split
from adagpr.insight import (
    Bounds,
    DatasetFiles,
    Explanation,
    bounds,
    data_of,
    explain,
    folder_of_runs,
    folders_of_runs,
    settings_of,
)
from adagpr.statistics import interval, share_interval
from adagpr.task import Calibration, calibration
from adagpr.training import Run, load_run

# Above so many nodes the page's spectrum is estimated; all eigenvalues would keep a reader waiting.
_MOST_EXACT = 1_500


@dataclass(frozen=True)
class ReportedModel:
    """Runs of one model, at least one, and what is known of the first of them, which pictures show."""

    name: str
    folder: Path
    runs: tuple[Run, ...]
    explanation: Explanation | None  # none where what the run does with its graph cannot be explained
    bounds: Bounds | None  # none where the theory does not cover it
    left_out: tuple[str, ...]  # sentences on what is missing in the page, and why

    @property
    def first(self) -> Run:
        """The run of the pictures."""
        return self.runs[0]

    @property
    def record(self) -> dict[str, Any]:
        """The record of the run of the pictures."""
        return self.first.record

    @property
    def signed(self) -> bool:
        """Whether hops have weights of either sign."""
        return self.first.model.capabilities.signed

    @property
    def hop_names(self) -> tuple[str, ...]:
        """What the coefficients of a layer are of, one name each."""
        return self.first.model.hop_names()

    @property
    def reads_both_ways(self) -> bool:
        """Whether edges are read forwards and backwards, each way with its own coefficients."""
        return len(self.first.model.layer_views()[0].coefficients) > 1

    @property
    def metric(self) -> str:
        """The metric by which its runs are compared."""
        return self.first.metric

    def mean_score(self, part: str, metric: str) -> float | None:
        """Mean of a score over the runs; none if one was not measured by it."""
        try:
            return fmean(run.score(part, metric) for run in self.runs)
        except InputError:
            return None

    def interval(self, part: str, metric: str) -> tuple[float, float] | None:
        """The 95 % interval of a mean score: over the runs, or for accuracy over the nodes of a single run."""
        values = [run.score(part, metric) for run in self.runs]
        if len(values) > 1:
            low, high = interval(values)
        elif metric == "accuracy":
            num_nodes = self.record["data"][f"num_{part}"]
            low, high = share_interval(round(values[0] * num_nodes), num_nodes)
        else:
            return None
        return max(low, 0.0), min(high, 1.0)

    @cached_property
    def tested(self) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and classes of the first run's labelled test nodes."""
        names = [str(name) for name in self.record["data"]["class_names"]]
        places = {name: number for number, name in enumerate(names)}
        table = self.first.predictions
        chosen = table.filter(pc.and_(pc.equal(table["part"], "test"), pc.is_valid(table["label"])))
        labels = np.array([places[label] for label in chosen["label"].to_pylist()], dtype=np.int64)
        return np.column_stack([chosen[f"p_{name}"].to_numpy() for name in names]), labels

    @cached_property
    def calibration(self) -> Calibration | None:
        """How well the first run knows how sure it can be of its test nodes; none without a labelled one."""
        return calibration(*self.tested) if len(self.tested[1]) else None


def read_model(
    source: Path | str | Sequence[Run],
    name: str | None = None,
    graph: Graph | None = None,
    splits: Sequence[Split] = (),
    data_root: Path | str | None = None,
    dataset: DatasetFiles = None,
) -> ReportedModel:
    """Takes runs of one model, or reads them from their folder, and explains the first; see `adagpr.report`."""
    folder = folder_of_runs(source)
    runs = _read_runs(folder) if isinstance(source, Path | str) else tuple(source)
    kinds = {(run.record["data"]["name"], settings_of(run.record)) for run in runs}
    if len(kinds) > 1:
        raise InputError(f"{folder} holds runs of more than one model or setting. Name the folder of one of them.")
    record = runs[0].record
    split = next((each for each in splits if each.name == record["data"]["split"]), None)
    left_out: list[str] = []
    explanation = found = None
    try:
        if split is None and runs[0].model.capabilities.hop_weights:
            graph, split = data_of(runs[0], None, None, dataset, data_root)
        explanation = explain(runs[0], graph=graph if split is not None else None, split=split)
    except InputError as error:
        left_out.append(f"What the model does with its graph is left out. {error}")
    if explanation is not None:
        try:
            found = bounds(runs[0], graph=graph, max_exact=_MOST_EXACT)
        except InputError as error:
            left_out.append(f"The bounds are left out. {error}")
    title = name or f"{record['data']['name']}, {record['config']['model']['name']}"
    return ReportedModel(title, folder, runs, explanation, found, tuple(left_out))


def _read_runs(folder: Path) -> tuple[Run, ...]:
    if not folder.exists():
        raise InputError(f"There is no folder {folder}.")
    folders = folders_of_runs(folder)
    if not folders:
        raise InputError(f"{folder} holds no complete run: no record.json is in it or one folder below.")
    return tuple(load_run(each) for each in folders)
