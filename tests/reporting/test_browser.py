"""The page in a real browser, with no network: it works, fits a phone, and can be used without a mouse."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

import pytest

import adagpr
from adagpr import reporting
from adagpr.files import read_json
from adagpr.graph import Graph, Split

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# What reaches over the right edge, apart from what scrolls by itself.
OUTSIDE = """[...document.querySelectorAll('main *')]
  .filter(item => !item.closest('.scroll, pre, svg') && item.getBoundingClientRect().right > innerWidth + 1)
  .map(item => item.outerHTML.slice(0, 80))"""
CHOSEN = "document.querySelector('.layer.chosen svg').outerHTML"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's browser, driven by playwright."""
    from playwright.sync_api import sync_playwright

    quiet = ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        # No limit of time: a busy machine may take long to start it.
        browser = playwright.chromium.launch(
            executable_path=which("chromium"), chromium_sandbox=False, args=quiet, timeout=0
        )
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Any]:
    """Opens a file without a network, and fails on any word in the console."""
    words: list[str] = []
    contexts = []

    def visit(path: Path, width: int = 1200, **options: Any) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": 800}, offline=True, **options)
        context.set_default_timeout(0)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: words.append(message.text))
        page.on("pageerror", lambda error: words.append(str(error)))
        page.on("dialog", lambda dialog: words.append(dialog.message))
        page.goto(path.resolve().as_uri())
        page.wait_for_selector(".main-svg")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert words == []


@pytest.fixture(scope="module")
def report(hostile_run: Path, hostile: tuple[Graph, Split], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one run."""
    out = tmp_path_factory.mktemp("page") / "report.html"
    return reporting.report([hostile_run], out, graph=hostile[0], splits=[hostile[1]])


@pytest.fixture(scope="module")
def pair(two_models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two models."""
    return reporting.report(two_models, tmp_path_factory.mktemp("pages") / "report.html")


def test_the_chooser_changes_the_figure(opened: Any, report: Path) -> None:
    page = opened(report)
    figures = []
    for layer in ("1", "2", "3"):
        page.select_option("#layer", layer)
        figures.append(page.evaluate(CHOSEN))
        assert page.locator(".layer:visible").count() == 1
    assert len(set(figures)) == 3


def test_the_chooser_works_by_keyboard(opened: Any, report: Path) -> None:
    page = opened(report)
    before = page.evaluate(CHOSEN)
    page.focus("#layer")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(CHOSEN) != before


def test_the_headline_is_the_record_s(opened: Any, report: Path, hostile_run: Path) -> None:
    page = opened(report)
    record = read_json(hostile_run / "record.json")
    numbers = page.locator(".numbers b").all_inner_texts()
    assert numbers[2] == f"{record['result']['scores']['test']['macro_f1']:.3f}"
    assert numbers[0] == f"{100 * record['result']['scores']['test']['accuracy']:.1f} %"
    assert numbers[3] == f"{100 * record['result']['scores']['val']['accuracy']:.1f} %"
    cells = page.locator("#coefficients .cell title").all_text_contents()
    shown = [float(cell.rsplit(" ", 1)[1]) for cell in cells]
    assert shown == [pytest.approx(value, abs=5e-5) for row in record["coefficients"] for value in row]


@pytest.mark.parametrize("which_page", ["report", "pair"])
@pytest.mark.parametrize("width", [375, 768, 1200])
def test_nothing_overflows(opened: Any, request: pytest.FixtureRequest, which_page: str, width: int) -> None:
    page = opened(request.getfixturevalue(which_page), width)
    for details in page.locator("details").all():
        details.evaluate("item => { item.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE) == []


def test_names_that_are_code_are_shown_and_not_run(opened: Any, report: Path) -> None:
    page = opened(report)
    assert "<b>bold</b>" in page.locator("h1").inner_text()
    texts = page.locator("#trust svg text").all_text_contents()
    assert any(text.startswith("<script>") for text in texts)
    assert page.locator("img").count() == 0


def test_numbers_can_be_taken_away(opened: Any, report: Path, hostile_run: Path, tmp_path: Path) -> None:
    page = opened(report, accept_downloads=True)
    for name in ("coefficients", "confusion"):
        figure = page.locator(f'figure[data-name="{name}"]')
        figure.locator("summary").click()
        with page.expect_download() as started:
            figure.locator("button.take").click()
        file = tmp_path / started.value.suggested_filename
        started.value.save_as(file)
        with file.open(newline="", encoding="utf-8") as opened_file:
            rows = list(csv.reader(opened_file))
        assert file.name == f"{name}.csv"
        if name == "coefficients":
            values = [[float(cell) for cell in row[1:]] for row in rows[1:]]
            assert values == read_json(hostile_run / "record.json")["coefficients"]
        else:
            assert rows[0][2:] == ['<script>alert("class")</script>', "a, \"quoted\" & 'odd' name"]
    with page.expect_download() as started:
        page.click("button[data-file='record.json']")
    started.value.save_as(tmp_path / "record.json")
    assert read_json(tmp_path / "record.json") == read_json(hostile_run / "record.json")
    with page.expect_download() as started:
        page.click("button[data-file='config.toml']")
    started.value.save_as(tmp_path / "config.toml")
    assert (tmp_path / "config.toml").read_text() == (hostile_run / "config.toml").read_text()


def test_values_are_read_off_with_pointer_and_keys(opened: Any, report: Path) -> None:
    page = opened(report)
    curve = page.locator('figure[data-name="loss"] svg')
    curve.scroll_into_view_if_needed()
    curve.hover()
    tip = page.locator("#tip")
    assert "validation" in tip.inner_text()
    curve.focus()
    page.keyboard.press("End")
    last = tip.inner_text()
    page.keyboard.press("Home")
    assert tip.inner_text() != last
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_dark_and_print_change_the_colours(opened: Any, report: Path) -> None:
    light, dark = (opened(report, color_scheme=scheme) for scheme in ("light", "dark"))
    colour = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(colour) == "rgb(255, 255, 255)"
    assert dark.evaluate(colour) != "rgb(255, 255, 255)"
    dark.emulate_media(media="print")
    assert dark.evaluate(colour) == "rgb(255, 255, 255)"
    assert dark.locator("nav").is_hidden()


def test_without_scripts_every_layer_is_shown(opened: Any, report: Path) -> None:
    page = opened(report, java_script_enabled=False)
    assert page.locator(".layer").count() == 3
    assert all(layer.is_visible() for layer in page.locator(".layer").all())


def test_a_screen_reader_finds_names_and_landmarks(opened: Any, report: Path) -> None:
    page = opened(report)
    assert page.locator("main").count() == 1
    assert page.locator("h1").count() == 1
    assert page.get_by_label("Layer", exact=True).count() == 1
    assert page.locator("svg[role=img]:not([aria-label])").count() == 0
    assert page.locator("th:not([scope])").count() == 0


def test_nothing_runs_from_the_names_on_the_page_of_a_search(
    chromium: Browser, hostile: tuple[Graph, Split], tmp_path: Path
) -> None:
    name = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    graph, split = hostile
    options = {"max_epochs": 2, "hidden_channels": 4}
    named = replace(graph, name=name, class_names=("plain", name, name + "2")), replace(split, name=name)
    adagpr.tune(named[0], [named[1]], "mlp", out=tmp_path, num_trials=2, num_workers=1, settings=options, command=name)
    page = chromium.new_page(offline=True)
    page.goto((tmp_path / "index.html").as_uri())
    page.wait_for_load_state("load")
    assert page.evaluate("window.hacked") is None
    assert name in page.inner_text("body")
    page.close()
