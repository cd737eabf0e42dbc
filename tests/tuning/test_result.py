from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from adagpr.charts import Dots, figure, svg
from adagpr.tuning import StudyResult

SEARCH: dict[str, Any] = {
    "num_layers": {"choices": [8, 2, 4]},
    "lr": {"low": 0.001, "high": 0.1, "log": True},
    "alpha": {"low": 0.1, "high": 0.9, "step": 0.1},
    "weight_maps": {"choices": ["shared", "separate"]},
}


def trial(number: int, value: float | None, state: str = "complete", **params: Any) -> dict[str, Any]:
    values = {"num_layers": 2, "lr": 0.01, "alpha": 0.5, "weight_maps": "shared", **params}
    machine = {"host": "here", "pid": 1, "seconds": 1.25, "attempts": 1 + (number == 3)}
    return {
        "number": number,
        "state": state,
        "value": value,
        "params": values,
        "val_acc": 0.5,
        "epochs": 16,
        "machine": machine,
    }


@pytest.fixture
def record() -> dict[str, Any]:
    trials = [trial(number, 1.0 - 0.01 * number) for number in range(12)]
    trials += [trial(12, 2.5, "pruned"), trial(13, None, "pruned")]
    run = {"split": "geom-gcn/0", "num_test_seen": 0}
    return {
        "study": {
            "data": {"name": "<texas> & co"},
            "model": "adagpr",
            "tuned_on": ["geom-gcn/0"],
            "space": {"name": "mine", "search": SEARCH},
            "source": "here",
            "notes": ["one note"],
        },
        "num_trials": 14,
        "machine": {"command": "adagpr tune texas --out 'a b'"},
        "shown": [{"split": "geom-gcn/0", "num_labels": 146, "num_hidden": 37}],
        "trials": trials,
        "best": {
            "number": 11,
            "value": 0.89,
            "params": {},
            "trials_sha256": "ab" * 32,
            "best_sha256": "cd" * 32,
            "machine": {"fixed_at": "EARLY"},
        },
        "importance": {"lr": 0.75, "alpha": 0.25},
        "earlier_tests": [],
        "test": {
            "test_acc": 0.8,
            "test_acc_std": 0.05,
            "num_runs": 2,
            "unseen_test_acc": 0.811,
            "machine": {"began_at": "LATE"},
            "runs": [run, {"split": "geom-gcn/1", "num_test_seen": 30}],
        },
    }


def page(record: dict[str, Any]) -> str:
    return StudyResult(record, Path("study")).page()


def drawn(record: dict[str, Any], name: str) -> list[ET.Element]:
    """The shapes of one of the charts, as they are drawn on the page."""
    (chart,) = [chart for chart in StudyResult(record, Path("study")).charts if chart.name == name]
    return [element for element in ET.fromstring(svg(chart)).iter() if element.tag in ("circle", "rect")]  # noqa: S314


def test_the_page_needs_nothing_from_elsewhere_and_escapes_names(record: dict[str, Any]) -> None:
    text = page(record)
    assert re.findall(r"(?:src|href|url|@import|http)", text) == []
    assert "<script" not in text
    assert "<texas>" not in text
    assert "&lt;texas&gt; &amp; co" in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_page_says_what_was_found_and_in_which_order(record: dict[str, Any]) -> None:
    text = " ".join(page(record).split())
    for part in (
        "14 trials on geom-gcn/0: 12 complete, 2 pruned, 1 more begun and not counted; 1 worker.",
        "<b>0.8900</b>lowest validation loss, trial 11",
        "<b>81.1 %</b>test accuracy on geom-gcn/0",
        "<b>80.0 % ± 5.0</b>test accuracy over 2 splits",
        "on geom-gcn/0 it had 146 labels, and 37 were taken out. The best configuration was fixed at EARLY",
        "tested from LATE on. Of the 2 splits tested, 1 have test nodes",
        "adagpr tune texas --out &#39;a b&#39;",
    ):
        assert part in text
    assert text.count("<tr>") == 11


def test_a_study_that_is_not_tested_yet_has_a_page_too(record: dict[str, Any]) -> None:
    del record["test"]
    record["importance"] = {}
    text = page(record)
    assert "and is not tested yet" in text
    assert "too few complete trials" in text


def test_sentences_say_which_test_labels_no_trial_saw(record: dict[str, Any]) -> None:
    assert StudyResult(record, Path("study")).sentences == [
        "test accuracy 81.1 % on geom-gcn/0: no trial saw these test labels",
        "test accuracy 80.0 % +- 5.0 over 2 splits: "
        "1 of them have test nodes that trials learned from or were judged on",
    ]


def test_history_has_a_dot_for_each_value_and_marks_the_best(record: dict[str, Any]) -> None:
    found = drawn(record, "history")
    assert [dot.get("class") for dot in found].count("complete") == 11
    assert [dot.get("class") for dot in found].count("pruned") == 1
    assert found[-1].get("class") == "best"
    heights = [float(dot.get("cy", "")) for dot in found[:11]]
    assert heights == sorted(heights)
    assert "trial 3, complete: 0.9700" in page(record)


def test_choices_are_in_order_and_ranges_to_scale(record: dict[str, Any]) -> None:
    record["trials"] = [
        trial(0, 1.0, num_layers=8, lr=0.001),
        trial(1, 2.0, num_layers=4, lr=0.01),
        trial(2, 3.0, lr=0.1),
    ]
    layers = [float(dot.get("cx", "")) for dot in drawn(record, "num_layers")]
    rates = [float(dot.get("cx", "")) for dot in drawn(record, "lr")]
    assert layers[0] > layers[1] > layers[2]
    assert rates[1] - rates[0] == pytest.approx(rates[2] - rates[1])
    assert len(drawn(record, "weight_maps")) == len(drawn(record, "alpha")) == 3


def test_charts_are_in_the_order_of_importance(record: dict[str, Any]) -> None:
    names = [chart.name for chart in StudyResult(record, Path("study")).charts]
    assert names == ["history", "importance", "lr", "alpha", "num_layers", "weight_maps"]


def test_bars_are_as_long_as_their_shares(record: dict[str, Any]) -> None:
    lengths = [float(element.get("width", "")) for element in drawn(record, "importance")]
    assert lengths[0] == pytest.approx(3 * lengths[1], abs=0.1)


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1e9]])
def test_odd_values_are_drawn(record: dict[str, Any], values: list[float]) -> None:
    record["trials"] = [trial(number, value) for number, value in enumerate(values)]
    assert len(drawn(record, "history")) == len(values)
    assert len(drawn(record, "alpha")) == len(values)


def test_charts_can_be_drawn_as_figures(record: dict[str, Any]) -> None:
    history = StudyResult(record, Path("study")).charts[0]
    assert isinstance(history, Dots)
    assert figure(history).axes[0].get_title() == history.title


def test_a_notebook_gets_the_page_and_a_frame(record: dict[str, Any]) -> None:
    pytest.importorskip("pandas")
    result = StudyResult(record, Path("study"))
    assert result._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    frame = result.frame()
    assert list(frame.columns[:3]) == ["number", "state", "value"]
    assert len(frame) == 14
    assert frame["lr"].tolist() == [0.01] * 14
    assert result.best_params == {}
