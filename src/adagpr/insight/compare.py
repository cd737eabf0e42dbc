"""Two models on the same splits: how far apart they are, and whether chance alone could have done that.

Runs on one split share its nodes, so several seeds of it are not independent pairs. If the two sides share several
splits, a pair is a split, with the mean of its seeds on either side; if they share only one, a pair is a seed, and the
answer holds for that split alone. Splits of one graph overlap, too. The test treats them as independent, as the field
does, so its p-value is too small rather than too large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from adagpr.errors import InputError, unknown_name
from adagpr.schemas import CellRecord, read_json
from adagpr.statistics import bootstrap_interval, interval, paired_test
from adagpr.task import METRICS, flat_name, primary_of, scores_of_result
from adagpr.training import Run, config_digest, read_record

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.05

# Records of the catalogue keep four decimals of an accuracy, so a difference in points may be off by this much.
_ROUNDING = 0.01

# Where models are compared, and what these nodes are called; with ``_acc`` by accuracy, whatever the runs' metric.
_PARTS = {"test": "test", "val": "validation", "test_acc": "test", "val_acc": "validation"}


@dataclass(frozen=True)
class Pair:
    """The two models side by side, in per cent; ``seed`` is none where a pair is a split."""

    split: str
    seed: int | None
    a: float
    b: float
    difference: float


@dataclass(frozen=True)
class Comparison:
    """What `compare` found; scores are in per cent, differences are A less B in points."""

    name_a: str
    name_b: str
    dataset: str
    measure: str  # such as ``"test_acc"`` or ``"val_roc_auc"``
    metric: str
    pairs: tuple[Pair, ...]  # one for each split, or for each seed of the only split
    mean_a: float
    mean_b: float
    mean_difference: float
    t_interval: tuple[float, float] | None  # Student's, 95 %, of the mean difference; none for a single pair
    bootstrap_interval: tuple[float, float] | None  # BCa, the same
    p_value: float  # of the two-sided sign-flip test that the mean difference is 0
    method: str  # whether all sign patterns were counted or some were drawn
    wins: int  # pairs that A won
    ties: int
    losses: int
    num_nodes: int | None  # that were measured in the smallest split; none where no record says so
    node_points: float | None  # what one of these nodes is worth in points of accuracy; none for other metrics
    verdict: str  # "A is better", "B is better" or "no difference shown", by the p-value at level 0.05
    remarks: tuple[str, ...]  # sentences on what was averaged or left out, and on too few pairs

    @property
    def heading(self) -> str:
        """What is compared."""
        title = f"{self._nodes} {METRICS[self.metric].title}"
        return f"{self.dataset}, {title}: A is {self.name_a}, B is {self.name_b}"

    @property
    def _nodes(self) -> str:
        return _PARTS[self.measure.partition("_")[0]]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What came out, in words."""
        spread = ""
        if self.t_interval is not None and self.bootstrap_interval is not None:
            (low, high), (low_boot, high_boot) = self.t_interval, self.bootstrap_interval
            spread = (
                f" on average, 95 % interval {low:+.2f} to {high:+.2f} (Student's t) or "
                f"{low_boot:+.2f} to {high_boot:+.2f} (bootstrap)"
            )
        found = [
            f"A less B is {self.mean_difference:+.2f} points{spread}; "
            f"A won {self.wins}, tied {self.ties}, lost {self.losses}."
        ]
        if self.node_points is not None:
            found.append(
                f"One of {self.num_nodes} {self._nodes} nodes is worth {self.node_points:.2f} points; "
                f"the mean difference is {abs(self.mean_difference) / self.node_points:.1f} nodes."
            )
        found.append(f"At the 5 % level: {self.verdict} (p = {self.p_value:.4g}, {self.method}).")
        return (*found, *self.remarks)

    def to_plain(self) -> dict[str, Any]:
        """The comparison as plain data, ready for JSON."""
        return asdict(self)

    def frame(self) -> pd.DataFrame:
        """The pairs as a pandas table."""
        import pandas as pd

        return pd.DataFrame([asdict(pair) for pair in self.pairs])

    def _repr_html_(self) -> str:
        """The pairs and the sentences, for notebooks."""
        lines = []
        for pair in self.pairs:
            seed = "" if pair.seed is None else pair.seed
            cells = (escape(pair.split), seed, *(f"{value:.2f}" for value in (pair.a, pair.b, pair.difference)))
            lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        head = "<tr><th>split</th><th>seed</th><th>A</th><th>B</th><th>A - B</th></tr>"
        sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        return f"<h4>{escape(self.heading)}</h4><table>{head}{''.join(lines)}</table>{sentences}"


@dataclass(frozen=True)
class _Measured:
    """One run: where it was measured, and its scores. A record of the catalogue leaves some unknown."""

    dataset: str
    split: str
    seed: int
    metric: str  # by which it is compared unless another is asked for
    scores: Mapping[str, float]  # of the nodes that models are compared on
    num_nodes: int | None = None
    data_sums: tuple[str, str] | None = None
    settings: str = ""


def compare(
    runs_a: Path | str | Sequence[Run],
    runs_b: Path | str | Sequence[Run],
    measure: str = "test",
    metric: str | None = None,
) -> Comparison:
    """Compares two models on the splits that both were run on.

    Args:
        runs_a: Runs of one model, the folder of a run or of several, or a record of the catalogue.
        runs_b: The same for the second model.
        measure: ``"test"``, or ``"val"`` for a choice between models that must not see the test nodes; with ``_acc``
            by accuracy.
        metric: One of `adagpr.task.METRICS`, by default the one that the runs have.

    Raises:
        InputError: A folder or file holds no runs of one model, the data differ, no runs can be paired, or they were
            not measured by that metric.
    """
    if measure not in _PARTS:
        raise unknown_name("measure", measure, _PARTS)
    if metric is not None and metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    part, is_accuracy, _ = measure.partition("_acc")
    if is_accuracy and metric not in (None, "accuracy"):
        raise InputError(f"The measure '{measure}' is accuracy; for {metric} the measure is '{part}'.")
    a, b = _read(runs_a, part), _read(runs_b, part)
    paths = folder_of_runs(runs_a), folder_of_runs(runs_b)
    name_a, name_b = (path.resolve().name.removesuffix(".json") for path in paths)
    if name_a == name_b:
        name_a, name_b = map(str, paths)
    _check_same_data(a, b)
    metric = metric or ("accuracy" if is_accuracy else _shared_metric(a, b))
    pairs, remarks = _pair(a, b, metric)
    differences = [pair.difference for pair in pairs]
    rounding = _ROUNDING if any(run.num_nodes is None for run in [*a, *b]) else 0.0
    test = paired_test(differences, tolerance=rounding)
    wins, losses = (sum(sign * value > rounding for value in differences) for sign in (1, -1))
    mean_difference = fmean(differences)
    leader = "A is better" if mean_difference > 0 else "B is better"
    splits = {pair.split for pair in pairs}
    num_nodes = min((run.num_nodes for run in [*a, *b] if run.num_nodes and run.split in splits), default=None)
    return Comparison(
        name_a=name_a,
        name_b=name_b,
        dataset=a[0].dataset,
        measure=flat_name(part, metric),
        metric=metric,
        pairs=tuple(pairs),
        mean_a=fmean(pair.a for pair in pairs),
        mean_b=fmean(pair.b for pair in pairs),
        mean_difference=mean_difference,
        t_interval=interval(differences) if len(pairs) > 1 else None,
        bootstrap_interval=bootstrap_interval(differences) if len(pairs) > 1 else None,
        p_value=test.p_value,
        method=test.method,
        wins=wins,
        ties=len(pairs) - wins - losses,
        losses=losses,
        num_nodes=num_nodes,
        node_points=None if num_nodes is None or metric != "accuracy" else 100 / num_nodes,
        verdict=leader if test.p_value < LEVEL else "no difference shown",
        remarks=tuple(remarks),
    )


def folder_of_runs(runs: Path | str | Sequence[Run]) -> Path:
    """The folder that holds runs, or itself."""
    if isinstance(runs, Path | str):
        return Path(runs)
    folder = runs[0].folder or Path()
    return folder if len(runs) == 1 else folder.parent


def folders_of_runs(path: Path) -> list[Path]:
    """The folders of the complete runs that a folder holds: itself, or those one below, split 10 after split 9."""
    if (path / "record.json").exists():
        return [path]
    return sorted((file.parent for file in path.glob("*/record.json")), key=lambda item: (len(item.name), item.name))


def settings_of(record: dict[str, Any]) -> str:
    """A hash of what the runs of one model share: all of its configuration but the data and the seed."""
    config = record["config"]
    return config_digest({**config, "data": {}, "training": {**config["training"], "seed": 0}})


def _read(source: Path | str | Sequence[Run], part: str) -> list[_Measured]:
    """The runs of one model, from a run's folder, a folder of runs or a record of the catalogue."""
    if not isinstance(source, Path | str):
        return [_of_run(run.record, part) for run in source]
    path = Path(source)
    if not path.exists():
        raise InputError(f"There is no folder or file {path}.")
    if path.is_file():
        record = read_json(path, CellRecord, "Give a record of the catalogue.")
        runs = [
            _Measured(record["dataset"], run["split"], run["seed"], "accuracy", {"accuracy": run[f"{part}_acc"]})
            for run in record["runs"]
        ]
    else:
        runs = [_of_run(read_record(folder), part) for folder in folders_of_runs(path)]
    if not runs:
        raise InputError(f"{path} holds no complete run: no record.json is in it or one folder below.")
    if len({(run.split, run.seed) for run in runs}) < len(runs) or len({run.settings for run in runs}) > 1:
        raise InputError(f"{path} holds runs of more than one model or setting. Name the folder of one of them.")
    return runs


def _of_run(record: dict[str, Any], part: str) -> _Measured:
    config, data, result = record["config"], record["data"], record["result"]
    if not data[f"num_{part}"]:
        raise InputError(f"Split {data['split']} has no {_PARTS[part]} nodes to compare runs on.")
    return _Measured(
        dataset=data["name"],
        split=data["split"],
        seed=config["training"]["seed"],
        metric=primary_of(result),
        scores=scores_of_result(result)[part],
        num_nodes=data[f"num_{part}"],
        data_sums=(config["data"]["graph_sha256"], config["data"]["split_sha256"]),
        settings=settings_of(record),
    )


def _shared_metric(a: Sequence[_Measured], b: Sequence[_Measured]) -> str:
    """The metric by which all runs are compared."""
    names = sorted({run.metric for run in [*a, *b]})
    if len(names) > 1:
        raise InputError(f"The runs have different metrics, {' and '.join(names)}. Name one: --metric {names[0]}")
    return names[0]


def _check_same_data(a: Sequence[_Measured], b: Sequence[_Measured]) -> None:
    names_a, names_b = (", ".join(sorted({run.dataset for run in side})) for side in (a, b))
    if names_a != names_b or len({run.dataset for run in a}) > 1:
        raise InputError(f"Only runs on one data set can be compared: A has {names_a}, B has {names_b}.")
    known: dict[str, tuple[str, str]] = {}
    for run in [*a, *b]:
        if run.data_sums is not None and known.setdefault(run.split, run.data_sums) != run.data_sums:
            raise InputError(f"The runs on split '{run.split}' of '{run.dataset}' differ in their graph or nodes.")


def _pair(a: Sequence[_Measured], b: Sequence[_Measured], metric: str) -> tuple[list[Pair], list[str]]:
    """The pairs, and sentences on what was averaged or left out and on too few pairs."""
    for run in [*a, *b]:
        if metric not in run.scores:
            raise InputError(f"A run on split {run.split} has no {metric}; its record names {', '.join(run.scores)}.")
    splits_a, splits_b = ({run.split for run in side} for side in (a, b))
    shared = splits_a & splits_b
    if not shared:
        names = [", ".join(sorted(splits)) for splits in (splits_a, splits_b)]
        raise InputError(f"There is nothing to pair: A was run on {names[0]}, B on {names[1]}.")
    seeds_a, seeds_b = ({run.seed for run in side if run.split in shared} for side in (a, b))
    by_seed = len(shared) == 1 and not seeds_a.isdisjoint(seeds_b)

    def grouped(runs: Sequence[_Measured]) -> dict[tuple[str, int | None], list[float]]:
        found: dict[tuple[str, int | None], list[float]] = {}
        for run in runs:
            found.setdefault((run.split, run.seed if by_seed else None), []).append(100 * run.scores[metric])
        return found

    of_a, of_b = grouped(a), grouped(b)
    keys = sorted(of_a.keys() & of_b.keys(), key=lambda key: (len(key[0]), key[0], key[1] or 0))
    remarks = []
    if any(len(side[key]) > 1 for side in (of_a, of_b) for key in keys):
        remarks.append("The seeds of each split were averaged first: runs on one split are not independent pairs.")
    left_a, left_b = (sum(len(side[key]) for key in side if key not in keys) for side in (of_a, of_b))
    if left_a or left_b:
        remarks.append(f"Left out, having no partner: runs of A {left_a}, runs of B {left_b}.")
    if 2 / 2 ** len(keys) >= LEVEL:
        remarks.append("Fewer than 6 pairs can show no difference at the 5 % level, whatever their values.")
    values = [(key, fmean(of_a[key]), fmean(of_b[key])) for key in keys]
    # Equal means of seeds may differ in their last bits; nine decimals keep them a tie.
    return [Pair(*key, one, other, round(one - other, 9)) for key, one, other in values], remarks
