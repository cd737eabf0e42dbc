"""The page of runs as a file: what it says, what it escapes, how large it is."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import adagpr
from adagpr.errors import InputError, StorageError
from adagpr.files import read_json, write_json
from adagpr.graph import Graph, Split
from adagpr.reporting import report
from adagpr.training import coefficient_column


class Reader(HTMLParser):
    """Collects the text, the tags and the numbers of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.figures: dict[str, dict[str, Any]] = {}
        self._figure = ""
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "figure":
            self._figure = dict(attrs)["data-name"] or ""
        self._in_script = tag == "script"

    def handle_data(self, data: str) -> None:
        if self._in_script and self.tags[-1][1].get("type") == "application/json":
            self.figures[self._figure] = json.loads(data)
        elif not self._in_script:
            self.texts.append(data)
        self._in_script = False


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def test_the_numbers_are_those_of_the_record(hostile_run: Path, hostile: tuple[Graph, Split], tmp_path: Path) -> None:
    page = read(report([hostile_run], tmp_path / "r.html", graph=hostile[0], splits=[hostile[1]]))
    record = read_json(hostile_run / "record.json")
    text = " ".join(page.texts)
    assert f"{100 * record['result']['scores']['test']['accuracy']:.1f} %" in text
    assert f"{record['result']['best_epoch']} of {record['result']['num_epochs']}" in text
    rows = page.figures["coefficients"]["rows"]
    assert np.allclose([row[1:] for row in rows], record["coefficients"], rtol=0, atol=1e-12)
    last = page.figures["coefficients-layer-3"]
    chosen = next(row for row in last["rows"] if row[0] == record["result"]["best_epoch"])
    assert np.allclose(chosen[1:], record["coefficients"][2], atol=1e-5)
    assert sum(sum(row[1:]) for row in page.figures["confusion"]["rows"]) == record["data"]["num_test"]
    losses = page.figures["loss"]["rows"]
    best = next(row for row in losses if row[0] == record["result"]["best_epoch"])
    assert best[2] == pytest.approx(record["result"]["scores"]["val"]["loss"], abs=1e-5)


def test_every_part_is_there_and_loads_nothing(hostile_run: Path, hostile: tuple[Graph, Split], tmp_path: Path) -> None:
    page = read(report([hostile_run], tmp_path / "r.html", graph=hostile[0], splits=[hostile[1]]))
    anchors = [attributes["id"] for tag, attributes in page.tags if tag == "section" and "id" in attributes]
    assert anchors == [
        "coefficients",
        "evolution",
        "training",
        "worth",
        "filter",
        "smoothing",
        "trust",
        "bound",
        "again",
    ]
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "img"), "a page needs no other file"
        assert "src" not in attributes
        assert not (attributes.get("href") or "#").startswith("http")
    assert any(tag == "select" and attributes.get("id") == "layer" for tag, attributes in page.tags)
    for tag, attributes in page.tags:
        if tag == "svg":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]


def test_names_that_are_code_stand_as_text(hostile_run: Path, hostile: tuple[Graph, Split], tmp_path: Path) -> None:
    file = report([hostile_run], tmp_path / "r.html", graph=hostile[0], splits=[hostile[1]])
    raw = file.read_text(encoding="utf-8")
    assert '<script>alert("class")' not in raw
    assert "<b>bold</b>" not in raw
    page = read(file)
    assert any('<script>alert("class")</script>' in text for text in page.texts)
    assert page.figures["confusion"]["headings"][2] == '<script>alert("class")</script>'


def test_hops_of_either_sign_are_added_in_blue_and_subtracted_in_red(
    signed_run: tuple[Path, Graph, Split], tmp_path: Path
) -> None:
    folder, graph, split = signed_run
    page = read(report([folder], tmp_path / "r.html", graph=graph, splits=[split]))
    record, text = read_json(folder / "record.json"), " ".join(page.texts)
    names = [f"{hop} {way}" for way in ("forward", "backward") for hop in range(3)]
    assert page.figures["coefficients"]["headings"] == ["layer", *names]
    assert np.allclose([row[1:] for row in page.figures["coefficients"]["rows"]], record["coefficients"])
    assert page.figures["coefficients-layer-2"]["headings"] == ["epoch", *(f"hop {name}" for name in names)]
    assert {"filter-forwards", "filter-backwards"} <= page.figures.keys()
    assert "Blue adds a hop, red subtracts it" in text
    assert "Forward, a node reads those that it points to" in text
    assert "layers take a difference" in text or "No layer takes a difference" in text
    assert "The bounds are left out" in text
    assert any(attributes.get("class") == "zero" for tag, attributes in page.tags if tag == "line")


def test_a_model_without_coefficients_leaves_parts_out_and_says_so(
    two_models: tuple[Path, Path], tmp_path: Path
) -> None:
    page = read(report([two_models[1]], tmp_path / "r.html"))
    assert "coefficients" not in page.figures
    assert {"loss", "accuracy", "confusion", "calibration"} <= page.figures.keys()
    assert "has no layers with coefficients" in " ".join(page.texts)


def test_two_models_stand_side_by_side_with_paired_differences(two_models: tuple[Path, Path], tmp_path: Path) -> None:
    page = read(report(two_models, tmp_path / "r.html", names=["ours", "plain"]))
    paired = page.figures["paired"]
    assert paired["headings"] == ["split", "ours, test %", "plain, test %", "difference in points"]
    assert [row[0] for row in paired["rows"]] == ["random/0", "random/1", "random/2"]
    for split, a, b, difference in paired["rows"]:
        folder = split.replace("/", "-") + "-seed-0"
        records = [read_json(model / folder / "record.json") for model in two_models]
        assert [a, b] == pytest.approx([100 * record["result"]["scores"]["test"]["accuracy"] for record in records])
        assert difference == pytest.approx(a - b, abs=1e-8)
    assert "3 pairs" in " ".join(page.texts)


def test_runs_by_another_metric_are_headed_by_it(tmp_path: Path) -> None:
    graph, (split,) = adagpr.load("csbm", num_nodes=120)
    for name, seeds in (("a", [0]), ("b", [0, 1])):
        adagpr.fit_all(graph, [split], seeds=seeds, out=tmp_path / name, metric="roc_auc", max_epochs=6, num_layers=2)
    page = read(report([tmp_path / "a", tmp_path / "b"], tmp_path / "r.html", graph=graph, splits=[split]))
    text = " ".join(page.texts)
    scores = read_json(tmp_path / "a" / "record.json")["result"]["scores"]
    words = {"roc_auc": "test ROC-AUC on", "accuracy": "test accuracy", "average_precision": "test average precision"}
    places = [text.index(f"{100 * scores['test'][name]:.1f} % {title}") for name, title in words.items()]
    assert places == sorted(places)
    assert "its 95 % interval" not in text[: text.index("csbm, adagpr (b)", 200)]
    assert "In test ROC-AUC csbm, adagpr (a) is" in text
    assert "validation ROC-AUC %" in text
    history = pq.read_table(tmp_path / "a" / "history.parquet")
    drawn = [row[1] for row in page.figures["metric"]["rows"]]
    assert drawn == pytest.approx([100 * value for value in history["val_metric"].to_pylist()], abs=1e-4)


def test_runs_on_different_data_are_shown_and_not_compared(
    two_models: tuple[Path, Path], hostile_run: Path, tmp_path: Path
) -> None:
    text = " ".join(read(report([two_models[0], hostile_run], tmp_path / "r.html")).texts)
    assert "Only runs on one data set can be compared" in text


def test_the_history_lies_beside_a_page_elsewhere(hostile_run: Path, tmp_path: Path) -> None:
    page = read(report([hostile_run], tmp_path / "r.html"))
    assert "r-history.parquet" in [attributes.get("href") for _, attributes in page.tags]
    assert pq.read_table(tmp_path / "r-history.parquet").equals(pq.read_table(hostile_run / "history.parquet"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r-history.parquet", "r.html"]


def test_a_page_that_does_not_fit_on_the_disk_leaves_no_history_beside_it(hostile_run: Path, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((hostile_run / "history.parquet").stat().st_size, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"Cannot write .*r\.html: File too large\. What was there"):
            report([hostile_run], tmp_path / "r.html")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_test_nodes_has_a_page_without_their_numbers(tmp_path: Path) -> None:
    graph, splits = adagpr.load("csbm", num_nodes=120)
    empty = splits[0].test[:0]
    split = replace(splits[0], test=empty)
    adagpr.fit(graph, split, num_layers=2, hidden_channels=8, max_epochs=4, out=tmp_path / "run")
    page = read(report([tmp_path / "run"], tmp_path / "r.html", graph=graph, splits=[split]))
    text = " ".join(page.texts)
    assert "test accuracy" not in text
    assert "validation nodes" in text
    assert "The bounds are left out. bounds: they are about the error on test nodes" in text


def test_a_long_deep_run_stays_small(tmp_path: Path) -> None:
    """64 layers, 16 coefficients, 1,500 epochs: below 6 MB."""
    graph, splits = adagpr.load("csbm", num_nodes=200)
    folder = tmp_path / "run"
    adagpr.fit(graph, splits[0], num_layers=64, num_coeffs=16, hidden_channels=8, max_epochs=2, out=folder)
    history = pq.read_table(folder / "history.parquet")
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {name: rng.random(1500) for name in history.column_names}
    columns["epoch"] = np.arange(1, 1501)
    assert coefficient_column(64, 15) in columns
    pq.write_table(pa.table(columns), folder / "history.parquet")
    record = read_json(folder / "record.json")
    record["result"]["num_epochs"] = 1500
    write_json(folder / "record.json", record)
    page = report([folder], folder / "report.html")
    assert page.stat().st_size < 6e6
    assert read(page).figures["coefficients-layer-64"]["rows"][-1][0] == 1500


def test_mistakes_are_one_sentence_and_write_nothing(two_models: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    with pytest.raises(InputError, match="no complete run"):
        report([tmp_path], out)
    with pytest.raises(InputError, match="There is no folder"):
        report([tmp_path / "nowhere"], out)
    (tmp_path / "mixed").mkdir()
    for number, model in enumerate(two_models):
        (tmp_path / "mixed" / str(number)).symlink_to(next(model.iterdir()))
    with pytest.raises(InputError, match="more than one model"):
        report([tmp_path / "mixed"], out)
    with pytest.raises(InputError, match="is a folder"):
        report([two_models[0]], tmp_path)
    assert not out.exists()


def test_equal_runs_give_equal_pages(hostile_run: Path, hostile: tuple[Graph, Split], tmp_path: Path) -> None:
    given: dict[str, Any] = {"graph": hostile[0], "splits": [hostile[1]]}
    pages = [report([hostile_run], tmp_path / name / "r.html", **given).read_text() for name in "ab"]
    assert pages[0] == pages[1]
    assert str(hostile_run.parent) not in pages[0], "a page tells nothing of the machine's folders"
