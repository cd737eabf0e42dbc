"""The metric of runs: its formulas, what it chooses, where it is undefined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

from adagpr.arguments import MetricName
from adagpr.data import catalogue, csbm
from adagpr.data.splits import random_split
from adagpr.errors import InputError
from adagpr.graph import Graph, Split
from adagpr.partitioning import partition_graph
from adagpr.task import METRICS, Classification, average_precision, flat_scores, roc_auc
from adagpr.training import config_digest, fit, fit_all, fit_partition, load_run, resolve, summarise
from tests.training.test_resume import InterruptedHereError, contents, stop_after

SMALL: dict[str, Any] = {"num_layers": 2, "hidden_channels": 8, "num_coeffs": 3, "max_epochs": 15}
BY_METRIC: dict[str, Any] = {**SMALL, "metric": "roc_auc", "monitor": "val_metric"}


@pytest.fixture(scope="module")
def two() -> tuple[Graph, Split]:
    """A graph of two classes."""
    graph = csbm(num_nodes=200, num_features=6, feature_signal=0.5)
    return graph, random_split(graph.y)


@pytest.fixture(scope="module")
def one_class(two: tuple[Graph, Split]) -> Split:
    """A split whose validation nodes are all of one class."""
    graph, split = two
    return replace(split, val=split.val[graph.y[split.val] == 1], name="one-class")


@pytest.mark.parametrize("num_scores", [2, 7, 10**9])
def test_scores_of_two_classes_are_those_of_scikit_learn(num_scores: int) -> None:
    rng = np.random.default_rng(0)
    for num_nodes in (2, 3, 50, 2000):
        y = rng.integers(0, 2, num_nodes)
        y[:2] = (0, 1)
        scores = rng.integers(0, num_scores, num_nodes) / 3
        assert roc_auc(scores, y) == pytest.approx(roc_auc_score(y, scores), rel=1e-13)
        assert average_precision(scores, y) == pytest.approx(average_precision_score(y, scores), rel=1e-13)


def test_a_node_s_score_is_how_far_class_1_is_ahead() -> None:
    logits = torch.randn(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).round(decimals=1)
    y = torch.randint(0, 2, (300,), generator=torch.Generator().manual_seed(2))
    scores, ahead = Classification().scores(logits, y), (logits[:, 1] - logits[:, 0]).numpy()
    assert scores["roc_auc"] == pytest.approx(roc_auc_score(y, ahead), rel=1e-13)
    assert scores["average_precision"] == pytest.approx(average_precision_score(y, ahead), rel=1e-13)
    assert scores["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(y, logits.argmax(1)), rel=1e-13)


def test_balanced_accuracy_of_several_classes_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        y, logits = rng.integers(0, 4, 30), rng.normal(size=(30, 4))
        found = METRICS["balanced_accuracy"].measure(torch.from_numpy(logits), torch.from_numpy(y))
        assert found == pytest.approx(balanced_accuracy_score(y, logits.argmax(1)), rel=1e-13)


def test_the_metrics_of_the_configuration_and_of_the_catalogue_have_formulas() -> None:
    assert set(get_args(MetricName)) == set(METRICS)
    assert {name: row.metric for name, row in catalogue().items() if row.metric != "accuracy"} == {
        "minesweeper": "roc_auc",
        "tolokers": "roc_auc",
    }


@pytest.mark.parametrize(("logits", "y"), [(torch.randn(9, 3), [0, 1, 0] * 3), (torch.randn(9, 2), [1] * 9)])
def test_scores_of_two_classes_are_left_out_where_they_are_undefined(logits: torch.Tensor, y: list[int]) -> None:
    found = Classification().scores(logits, torch.tensor(y))
    assert list(found) == ["loss", "accuracy", "macro_f1", "balanced_accuracy"]


def test_the_metric_alone_changes_what_is_reported_and_no_bit_of_the_training(two: tuple[Graph, Split]) -> None:
    plain, run = fit(*two, **SMALL), fit(*two, **SMALL, metric="roc_auc")
    assert run.history.drop_columns("val_metric").equals(plain.history)
    assert run.predictions.equals(plain.predictions)
    assert run.record["result"] == {**plain.record["result"], "primary": "roc_auc"}
    assert (run.score("test"), plain.score("test")) == (plain.score("test", "roc_auc"), plain.test_acc)
    assert flat_scores(run.record["result"])["test_roc_auc"] == run.score("test")


def test_accuracy_is_the_run_without_the_key(two: tuple[Graph, Split]) -> None:
    plain, other = (resolve(*two, "adagpr", options).plain for options in ({}, {"metric": "macro_f1"}))
    old = {**plain, "training": {key: value for key, value in plain["training"].items() if key != "metric"}}
    assert config_digest(plain) == config_digest(old) != config_digest(other)


@pytest.mark.parametrize("metric", get_args(MetricName))
def test_the_epoch_is_the_one_with_the_highest_metric(metric: str, two: tuple[Graph, Split], tmp_path: Path) -> None:
    options = {**BY_METRIC, "metric": metric, "lr": 0.05, "max_epochs": 40}
    fit(*two, out=tmp_path / "run", **options)
    run = load_run(tmp_path / "run")
    measured = run.history["val_acc" if metric == "accuracy" else "val_metric"].to_pylist()
    assert run.best_epoch == 1 + int(np.argmax(measured))
    assert run.score("val") == max(measured)


def test_a_run_by_its_metric_resumes_with_the_same_bits(two: tuple[Graph, Split], tmp_path: Path) -> None:
    fit(*two, out=tmp_path / "whole", **BY_METRIC)
    with pytest.raises(InterruptedHereError):
        fit(*two, out=tmp_path / "parts", on_epoch=stop_after(6), checkpoint_seconds=0.0, **BY_METRIC)
    fit(*two, out=tmp_path / "parts", **BY_METRIC)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_runs_side_by_side_are_those_alone(two: tuple[Graph, Split]) -> None:
    runs = fit_all(two[0], [two[1]], seeds=(0, 1), **BY_METRIC)
    for seed, run in enumerate(runs):
        alone = fit(*two, **BY_METRIC, seed=seed)
        assert run.history.equals(alone.history)
        assert run.record["result"] == alone.record["result"]


@pytest.mark.parametrize("per_batch", [None, 2])
def test_a_partition_is_measured_as_the_whole_graph(
    per_batch: int | None, two: tuple[Graph, Split], tmp_path: Path
) -> None:
    options = {**BY_METRIC, "dropout": 0.0}
    partition_graph(*two, 2, tmp_path / "parts")
    fit_partition(tmp_path / "parts", out=tmp_path / "run", per_batch=per_batch, **options)
    whole, run = fit(*two, **options), load_run(tmp_path / "run")
    assert run.history["val_metric"].to_pylist() == pytest.approx(whole.history["val_metric"].to_pylist(), abs=2e-3)
    for part in ("train", "val", "test"):
        names = [name for name in METRICS if name != "accuracy"]
        found, expected = ([each.score(part, name) for name in names] for each in (run, whole))
        assert found == pytest.approx(expected, abs=2e-3)


def test_where_the_metric_is_undefined_another_monitor_chooses(
    two: tuple[Graph, Split], one_class: Split, tmp_path: Path
) -> None:
    options = {**SMALL, "metric": "roc_auc"}
    with pytest.raises(InterruptedHereError):
        fit(two[0], one_class, out=tmp_path, on_epoch=stop_after(6), checkpoint_seconds=0.0, **options)
    fit(two[0], one_class, out=tmp_path, **options)
    run = load_run(tmp_path)
    assert "val_metric" not in run.history.column_names
    assert run.score("test") == run.record["result"]["scores"]["test"]["roc_auc"]
    with pytest.raises(InputError, match=r"^This run has no roc_auc on its val nodes\.$"):
        run.score("val")


def test_a_mean_is_of_all_runs_or_not_there(two: tuple[Graph, Split]) -> None:
    graph, split = two
    undefined = replace(split, test=split.test[graph.y[split.test] == 1], name="undefined")
    runs = fit_all(graph, [split, undefined], metric="roc_auc", **SMALL)
    assert summarise(runs).keys() & {"test_roc_auc", "test_acc", "val_roc_auc"} == {"test_acc", "val_roc_auc"}
    head, *rows = runs._repr_html_().split("</tr>")[:3]
    assert {row.count("<td>") for row in rows} == {head.count("<th>")}
    assert "<td></td>" in rows[1]


def test_it_cannot_choose_the_epoch_there(two: tuple[Graph, Split], one_class: Split, tmp_path: Path) -> None:
    graph, split = two
    refused = "Split .*: the validation nodes are all of one class, on which ROC-AUC is undefined; choose the epoch by"
    with pytest.raises(InputError, match=refused):
        fit_all(graph, [split, one_class], out=tmp_path / "runs", **BY_METRIC)
    partition_graph(graph, one_class, 2, tmp_path / "parts")
    with pytest.raises(InputError, match=refused):
        fit_partition(tmp_path / "parts", out=tmp_path / "run", **BY_METRIC)
    # It is what this model is monitored by unless asked otherwise.
    with pytest.raises(InputError, match=refused):
        fit_partition(tmp_path / "parts", "adagpr-signed", out=tmp_path / "run", metric="roc_auc", **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


def test_a_metric_of_two_classes_is_refused_for_more() -> None:
    graph = csbm(num_nodes=60, num_classes=3)
    with pytest.raises(
        InputError, match=r"metric is 'roc_auc', which is for two classes, but this graph has 3; choose"
    ):
        resolve(graph, random_split(graph.y), "adagpr", {"metric": "roc_auc"})


def test_a_data_set_names_its_metric_unless_another_is_asked_for(two: tuple[Graph, Split]) -> None:
    graph = replace(two[0], origin={"name": "minesweeper"})
    given = [{}, {"metric": "accuracy"}]
    assert [resolve(graph, two[1], "adagpr", each).config.metric for each in given] == ["roc_auc", "accuracy"]
    assert resolve(graph, two[1], "adagpr", {}).config.monitor == "val_loss"
