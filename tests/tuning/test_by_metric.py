"""Studies that choose by the highest metric on the validation nodes, and those that only report it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adagpr.errors import InputError
from adagpr.tuning import Space, StudyResult, read_space, tune
from adagpr.tuning.space import Parameter
from tests.tuning.conftest import QUICK

Tune = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def by_metric() -> Space:
    settings = {**QUICK, "metric": "roc_auc", "monitor": "val_metric"}
    return read_space("general").for_model("adagpr").with_settings(settings)


@pytest.fixture(scope="module")
def folder(by_metric: Space, quick_tune: Tune, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("by-metric")
    quick_tune(out, space=by_metric, num_trials=12, num_workers=2)
    return out


def test_the_best_trial_has_the_highest_metric(folder: Path, by_metric: Space, quick_tune: Tune) -> None:
    record = quick_tune(folder, space=by_metric, num_trials=12)  # read back
    complete = [trial for trial in record["trials"] if trial["state"] == "complete"]
    assert all(trial["value"] == trial["val_metric"] for trial in complete)
    assert record["best"]["value"] == max(trial["value"] for trial in complete)
    test = record["test"]
    assert (test["metric"]["name"], len(test["metric"]["runs"])) == ("roc_auc", test["num_runs"])
    assert test["metric"]["unseen_test"] == test["metric"]["test"] == test["metric"]["runs"][0]


def test_any_number_of_workers_ends_the_same(folder: Path, by_metric: Space, quick_tune: Tune, tmp_path: Path) -> None:
    records = [quick_tune(out, space=by_metric, num_trials=12) for out in (folder, tmp_path)]
    assert records[0]["best"]["trials_sha256"] == records[1]["best"]["trials_sha256"]


def test_page_and_sentences_name_the_metric(folder: Path, by_metric: Space, quick_tune: Tune) -> None:
    result = StudyResult(quick_tune(folder, space=by_metric, num_trials=12), folder)
    metric = result.record["test"]["metric"]["test"]
    assert result.sentences[0].startswith(f"test ROC-AUC {100 * metric:.1f} % on random/0: no trial saw")
    assert result.sentences[1].startswith("test accuracy ")
    page = result.page()
    for words in (
        "highest validation ROC-AUC, trial",
        "<th>ROC-AUC</th>",
        "Validation ROC-AUC of each trial and the high",
    ):
        assert words in page
    best = [int(line.split("<td>")[1][:-5]) for line in page.splitlines() if line.startswith("<tr><td>")]
    assert best[0] == result.record["best"]["number"]
    text = (folder / "best.toml").read_text()
    assert f"validation ROC-AUC {result.record['best']['value']} on random/0" in text
    assert tomllib.loads(text)["training"]["monitor"] == "val_metric"


def test_a_metric_alone_is_reported_and_chooses_nothing(
    quick_space: Space, quick_tune: Tune, finished_study: Path, tmp_path: Path
) -> None:
    plain, other = (
        quick_tune(finished_study),
        quick_tune(tmp_path, space=quick_space.with_settings({"metric": "macro_f1"})),
    )
    assert [trial["value"] for trial in other["trials"]] == [trial["value"] for trial in plain["trials"]]
    assert other["study"]["metric"] == "macro_f1"
    assert "metric" not in {*plain["study"], *plain["test"]}
    assert StudyResult(other, tmp_path).measure == "lowest validation loss"
    assert StudyResult(other, tmp_path).sentences[0].startswith("test macro F1 ")


@pytest.mark.parametrize("key", ["metric", "monitor"])
def test_neither_can_be_searched(key: str, small: Any, quick_space: Space, tmp_path: Path) -> None:
    choices: list[Any] = {"metric": ["accuracy", "roc_auc"], "monitor": ["val_loss", "val_metric"]}[key]
    space = quick_space.model_copy(update={"search": {**quick_space.search, key: Parameter(choices=choices)}})
    with pytest.raises(InputError, match="A search space cannot hold metric, or monitor with 'val_metric'"):
        tune(*small, out=tmp_path / "study", space=space)
    assert not (tmp_path / "study").exists()
