from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from adagpr.data import csbm, random_splits
from adagpr.errors import InputError
from adagpr.files import write_json
from adagpr.insight import compare
from adagpr.statistics import bootstrap_interval, interval, paired_test
from adagpr.training import fit_all, load_run

# Correct answers among 37 test nodes, on ten splits.
RIGHT_A = [30, 31, 29, 33, 30, 32, 28, 31, 30, 29]
RIGHT_B = [28, 31, 27, 30, 31, 29, 27, 29, 28, 26]
CATALOGUE = Path(__file__).parents[2] / "results" / "catalogue"


def write_run(folder: Path, right: int, split: int = 0, seed: int = 0, **changed: Any) -> None:
    """A run's record, of the first format."""
    given = {"name": "texas", "graph": "g", "num_test": 37, "model": "gcn", **changed}
    known = {"name": given["name"], "split": f"geom-gcn/{split}"}
    sums = {"graph_sha256": given["graph"], "split_sha256": f"s{split}"}
    sizes = {"num_nodes": 183, "num_edges": 325, "num_features": 1703, "num_train": 87, "num_val": 59}
    epochs = {"best_epoch": 3, "num_epochs": 5, "stopped_by": "max_epochs", "val_objective": 0.5}
    folder.mkdir(parents=True)
    write_json(
        folder / "record.json",
        {
            "format": 1,
            "config": {"data": known | sums, "model": {"name": given["model"]}, "training": {"seed": seed}},
            "data": {**known, **sizes, "num_test": given["num_test"], "class_names": ["a", "b"]},
            "result": {**epochs, "train_acc": 1.0, "val_acc": (right + 20) / 59, "test_acc": right / given["num_test"]},
            "num_parameters": 10,
            "machine": {"seconds": 1.0},
        },
    )


def write_runs(folder: Path, right: list[int], **changed: Any) -> Path:
    for split, value in enumerate(right):
        write_run(folder / f"split-{split}", value, split, **changed)
    return folder


def write_record(path: Path, right: list[int], dataset: str = "texas") -> Path:
    """A record of the catalogue: accuracies of four decimals, no number of nodes."""
    about: dict[str, Any] = {
        "config": "0",
        "seed": 0,
        "val_acc": 0.5,
        "best_epoch": 1,
        "num_epochs": 2,
        "machine": {"seconds": 1.0},
    }
    runs: list[dict[str, Any]] = [
        {**about, "split": f"geom-gcn/{i}", "test_acc": round(n / 37, 4)} for i, n in enumerate(right)
    ]
    cell: dict[str, Any] = dict.fromkeys(("method", "split", "model", "settings", "settings_from"), "known")
    cell |= {"table": 3, "dataset": dataset, "layers": 2, "published": 80.0, "options": {}, "num_runs": len(runs)}
    accuracies = {"test_acc": 100 * fmean(run["test_acc"] for run in runs), "test_acc_std": 1.0, "val_acc": 50.0}
    write_json(path, {**cell, **accuracies, "runs": runs})
    return path


def test_splits_are_paired_and_every_number_follows_from_the_differences(tmp_path: Path) -> None:
    found = compare(write_runs(tmp_path / "a", RIGHT_A), write_runs(tmp_path / "b", RIGHT_B))
    differences = [100 * (a - b) / 37 for a, b in zip(RIGHT_A, RIGHT_B, strict=True)]
    assert [pair.split for pair in found.pairs] == [f"geom-gcn/{i}" for i in range(10)]
    assert [pair.difference for pair in found.pairs] == pytest.approx(differences, abs=1e-9)
    assert (found.mean_a, found.mean_b) == pytest.approx((sum(RIGHT_A) / 3.7, sum(RIGHT_B) / 3.7))
    assert found.mean_difference == pytest.approx(found.mean_a - found.mean_b)
    assert found.t_interval == pytest.approx(interval(differences))
    assert found.bootstrap_interval == pytest.approx(bootstrap_interval(differences))
    assert (found.p_value, found.method) == (paired_test(differences).p_value, "exact sign flips")
    assert (found.wins, found.ties, found.losses) == (8, 1, 1)
    assert (found.num_nodes, found.node_points) == (37, 100 / 37)
    assert (found.name_a, found.name_b, found.dataset, found.verdict) == ("a", "b", "texas", "A is better")
    assert found.remarks == ()


def test_the_other_way_round_the_other_is_better(tmp_path: Path) -> None:
    a, b = write_runs(tmp_path / "a", RIGHT_A), write_runs(tmp_path / "b", RIGHT_B)
    one, other = compare(a, b), compare(b, a)
    assert other.verdict == "B is better"
    assert other.p_value == one.p_value
    assert other.mean_difference == pytest.approx(-one.mean_difference)
    assert (other.wins, other.losses) == (one.losses, one.wins)


def test_a_model_is_no_better_than_itself(tmp_path: Path) -> None:
    a = write_runs(tmp_path / "a", RIGHT_A)
    found = compare(a, a)
    assert (found.p_value, found.ties, found.verdict) == (1.0, 10, "no difference shown")
    assert (found.t_interval, found.name_a) == ((0.0, 0.0), str(a))


def test_one_node_more_on_half_of_the_splits_shows_no_difference(tmp_path: Path) -> None:
    more = [n + 1 for n in RIGHT_A[:5]] + RIGHT_A[5:]
    found = compare(write_runs(tmp_path / "a", more), write_runs(tmp_path / "b", RIGHT_A))
    assert (found.p_value, found.verdict) == (2 / 2**5, "no difference shown")


@pytest.mark.parametrize("seeds_b", [[7], [0, 1, 2]])
def test_several_seeds_of_several_splits_make_one_pair_a_split(seeds_b: list[int], tmp_path: Path) -> None:
    for split, right in enumerate((30, 28)):
        for seed in range(3):
            write_run(tmp_path / "a" / f"{split}-{seed}", right + seed, split, seed)
        for seed in seeds_b:
            write_run(tmp_path / "b" / f"{split}-{seed}", 30, split, seed)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert [(pair.split, pair.seed) for pair in found.pairs] == [("geom-gcn/0", None), ("geom-gcn/1", None)]
    assert [pair.a * 0.37 for pair in found.pairs] == pytest.approx([31, 29])
    assert [pair.b * 0.37 for pair in found.pairs] == pytest.approx([30, 30])
    assert (found.wins, found.losses) == (1, 1)
    assert any("averaged" in remark for remark in found.remarks)


def test_equal_means_of_seeds_are_a_tie(tmp_path: Path) -> None:
    for seed, (one, other) in enumerate([(1, 1), (1, 2), (7, 6)]):
        for split in range(2):
            write_run(tmp_path / "a" / f"{split}-{seed}", one, split, seed)
            write_run(tmp_path / "b" / f"{split}-{seed}", other, split, seed)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert (found.ties, found.bootstrap_interval) == (2, (0.0, 0.0))
    assert found.pairs[0].a != found.pairs[0].b


def test_on_one_split_the_seeds_are_the_pairs(tmp_path: Path) -> None:
    for seed in (10, 9, 8):
        write_run(tmp_path / "a" / f"{seed}", 20 + seed, seed=seed)
    for seed in (9, 10, 11, 12):
        write_run(tmp_path / "b" / f"{seed}", 20, seed=seed)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert [(pair.seed, round(pair.difference * 0.37)) for pair in found.pairs] == [(9, 9), (10, 10)]
    assert "Left out, having no partner: runs of A 1, runs of B 2." in found.remarks
    assert "Fewer than 6 pairs can show no difference at the 5 % level, whatever their values." in found.remarks


def test_one_split_without_a_shared_seed_is_one_pair(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 30, seed=0)
    write_run(tmp_path / "b", 10, seed=1)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert (len(found.pairs), found.p_value, found.verdict) == (1, 1.0, "no difference shown")
    assert (found.t_interval, found.bootstrap_interval) == (None, None)


def test_splits_of_one_side_only_are_left_out_and_counted(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "smaller", 15, split=10, num_test=20)
    found = compare(write_runs(tmp_path / "a", RIGHT_A), write_runs(tmp_path / "b", RIGHT_B[:7]))
    assert (len(found.pairs), found.num_nodes) == (7, 37)
    assert found.remarks == ("Left out, having no partner: runs of A 4, runs of B 0.",)


def test_what_the_catalogue_rounds_away_changes_neither_ties_nor_the_p_value(tmp_path: Path) -> None:
    a, b = write_runs(tmp_path / "a", RIGHT_A), write_runs(tmp_path / "b", RIGHT_B)
    exact = compare(a, b)
    record_a, record_b = write_record(tmp_path / "a.json", RIGHT_A), write_record(tmp_path / "b.json", RIGHT_B)
    for found in (compare(record_a, b), compare(a, record_b), compare(record_a, record_b)):
        assert (found.p_value, found.wins, found.ties) == (exact.p_value, exact.wins, exact.ties)
    assert compare(a, record_b).num_nodes == 37
    assert compare(record_a, record_b).node_points is None


def test_records_of_the_repository_can_be_compared() -> None:
    found = compare(CATALOGUE / "table3_gcnii_texas-32.json", CATALOGUE / "table3_gcn_texas.json")
    assert (len(found.pairs), found.name_a) == (10, "table3_gcnii_texas-32")


def test_validation_accuracy_counts_validation_nodes(tmp_path: Path) -> None:
    found = compare(write_runs(tmp_path / "a", RIGHT_A), write_runs(tmp_path / "b", RIGHT_B), "val_acc")
    assert found.pairs[0].difference == pytest.approx(100 * 2 / 59)
    assert found.num_nodes == 59


def test_plain_data_is_json(tmp_path: Path) -> None:
    plain = compare(write_runs(tmp_path / "a", RIGHT_A), write_runs(tmp_path / "b", RIGHT_B)).to_plain()
    assert json.loads(json.dumps(plain))["pairs"][1] == {**plain["pairs"][1], "split": "geom-gcn/1", "difference": 0.0}


def test_a_notebook_shows_the_pairs_and_the_sentences(tmp_path: Path) -> None:
    found = compare(write_runs(tmp_path / "a<b", RIGHT_A), write_runs(tmp_path / "b", RIGHT_B))
    assert found.sentences[0].startswith(f"A less B is {found.mean_difference:+.2f} points on average")
    shown = found._repr_html_()
    assert "A is a&lt;b, B is b" in shown
    assert shown.count("<tr") == 11
    pytest.importorskip("pandas")
    assert found.frame()["difference"].tolist() == [pair.difference for pair in found.pairs]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "cornell"}, "Only runs on one data set can be compared: A has texas, B has cornell."),
        ({"graph": "h"}, "The runs on split 'geom-gcn/0' of 'texas' differ in their graph or nodes."),
    ],
)
def test_other_data_are_refused(changed: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        compare(write_runs(tmp_path / "a", RIGHT_A), write_runs(tmp_path / "b", RIGHT_B, **changed))


def test_nothing_to_pair_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 30, split=1)
    write_run(tmp_path / "b", 30, split=2)
    with pytest.raises(InputError, match="nothing to pair: A was run on geom-gcn/1, B on geom-gcn/2"):
        compare(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("second", [{"model": "mlp", "seed": 1}, {"seed": 0}])
def test_a_folder_of_several_models_is_refused(second: dict[str, Any], tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "one", 30)
    write_run(tmp_path / "a" / "two", 31, **second)
    with pytest.raises(InputError, match="more than one model or setting"):
        compare(tmp_path / "a", tmp_path / "a")


@pytest.mark.parametrize(
    ("content", "message"),
    [("{}", "table is missing"), ('{"runs": []}', "table is missing"), ("{", "property name")],
)
def test_other_files_are_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError, match=rf"a.json is damaged \(.*{message}.*\). Give a record of the catalogue."):
        compare(tmp_path / "a.json", tmp_path / "a.json")


def test_empty_and_missing_folders_and_unknown_measures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no complete run"):
        compare(tmp_path, tmp_path)
    with pytest.raises(InputError, match="There is no folder or file"):
        compare(tmp_path / "gone", tmp_path)
    with pytest.raises(InputError, match="Unknown measure 'train_acc'"):
        compare(tmp_path, tmp_path, "train_acc")
    (tmp_path / "record.json").write_text('{"config": {}}')
    with pytest.raises(InputError, match=r"record.json is damaged \(format is missing\). Remove the folder"):
        compare(tmp_path, tmp_path)


@pytest.fixture(scope="module")
def by_metric(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two models on three splits by ROC-AUC, and one by accuracy."""
    folder = tmp_path_factory.mktemp("by-metric")
    graph = csbm(num_nodes=120)
    splits = random_splits(graph.y, 3)
    for model in ("gcn", "mlp"):
        fit_all(graph, splits, model, out=folder / model, metric="roc_auc", max_epochs=5)
    fit_all(graph, splits, "gcn", out=folder / "plain", max_epochs=5)
    return folder


def test_runs_are_compared_by_their_metric_or_by_another(by_metric: Path) -> None:
    a, b = ([load_run(by_metric / name / f"random-{i}-seed-0") for i in range(3)] for name in ("gcn", "mlp"))
    for part, asked, metric in (("test", None, "roc_auc"), ("val", "macro_f1", "macro_f1")):
        found = compare(by_metric / "gcn", by_metric / "mlp", part, asked)
        expected = [
            100 * (one.score(part, metric) - other.score(part, metric)) for one, other in zip(a, b, strict=True)
        ]
        assert [pair.difference for pair in found.pairs] == pytest.approx(expected, abs=1e-9)
        assert (found.measure, found.metric, found.node_points) == (f"{part}_{metric}", metric, None)
    assert compare(by_metric / "gcn", by_metric / "mlp").heading == "csbm, test ROC-AUC: A is gcn, B is mlp"
    assert compare(by_metric / "gcn", by_metric / "plain", "test_acc").mean_difference == 0.0


def test_metrics_that_differ_or_are_missing_are_refused(by_metric: Path, tmp_path: Path) -> None:
    message = r"^The runs have different metrics, accuracy and roc_auc\. Name one: --metric accuracy$"
    with pytest.raises(InputError, match=message):
        compare(by_metric / "gcn", by_metric / "plain")
    with pytest.raises(InputError, match="Unknown metric 'roc'"):
        compare(by_metric / "gcn", by_metric / "mlp", metric="roc")
    with pytest.raises(InputError, match="The measure 'test_acc' is accuracy; for roc_auc the measure is 'test'"):
        compare(by_metric / "gcn", by_metric / "mlp", "test_acc", "roc_auc")
    record = write_record(tmp_path / "a.json", RIGHT_A)
    with pytest.raises(InputError, match=r"A run on split geom-gcn/0 has no roc_auc; its record names accuracy\."):
        compare(record, write_record(tmp_path / "b.json", RIGHT_B), metric="roc_auc")
