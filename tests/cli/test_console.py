"""What commands print, on a terminal and into a pipe."""

from __future__ import annotations

import json

import pytest

from adagpr.cli.console import bold, facts, hops_that_fit, note, progress, show, show_json, table


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")


def test_a_pipe_gets_one_line_per_text_and_no_markup_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    long = "[red]a name[/red] " + "word " * 40 + "end"
    show(long)
    assert capsys.readouterr().out == f"{long}\n"


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_lines_that_end_between_words_and_whole_paths(capsys: pytest.CaptureFixture[str]) -> None:
    show("some words and then a file /a/path/longer/than/the/terminal/is.html")
    assert capsys.readouterr().out.splitlines() == [
        "some words and then",
        "a file",
        "/a/path/longer/than/the/terminal/is.html",
    ]


def test_results_and_notes_do_not_mix(capsys: pytest.CaptureFixture[str]) -> None:
    show("result")
    note("note", dim=True)
    assert tuple(capsys.readouterr()) == ("result\n", "note\n")


def test_a_table_aligns_text_left_and_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    show(table(["name", "nodes", "file"], [["[a]", "5", "here"], ["longer", "1234", "x"]], left=["file"]))
    assert capsys.readouterr().out.splitlines() == [
        "name    nodes  file",
        "[a]         5  here",
        "longer   1234  x   ",
    ]


def test_facts_are_two_columns_without_headings(capsys: pytest.CaptureFixture[str]) -> None:
    show(facts([("test accuracy", bold("81.0 %")), ("best epoch", "3")]))
    assert capsys.readouterr().out.splitlines() == ["test accuracy  81.0 %", "best epoch     3     "]


@pytest.mark.usefixtures("terminal")
def test_of_many_hops_as_many_are_shown_as_fit() -> None:
    names = [f"hop {hop}" for hop in range(50)]
    for count in (1, 3):
        headings, caption = hops_that_fit(names[:count], taken=6, each=4, rest="a file")
        assert ([heading.plain for heading in headings], caption) == (names[:count], None)
    headings, caption = hops_that_fit(names, taken=6, each=4, rest="a file")
    assert (len(headings), caption) == (3, "hops 3 to 49 are in a file")
    assert len(hops_that_fit(names, taken=19, each=4, rest="a file")[0]) == 2


@pytest.mark.usefixtures("terminal")
def test_the_direction_of_a_hop_is_below_it() -> None:
    names = ["hop 0 forward", "hop 1 forward", "hop 0 backward"]
    headings, caption = hops_that_fit(names, taken=0, each=4, rest="a file")
    assert [heading.plain for heading in headings] == ["hop 0\nforward", "hop 1\nforward"]
    assert caption == "hop 0 backward is in a file"


def test_json_is_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({"name": "é", "values": [1, None]})
    assert json.loads(capsys.readouterr().out) == {"name": "é", "values": [1, None]}


def test_bars_are_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(remaining=True) as bars:
        bars.update("reading", 1, 2, "half")
        bars.remove()
    assert tuple(capsys.readouterr()) == ("", "")


def test_bars_show_on_a_terminal_and_are_gone_afterwards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress(remaining=True) as bars:
        bars.update("run 1 of 2", 1, 4, "epoch 1", key=1)
        bars.update("run 2 of 2", 0, None, "epoch 0", key=2)
        bars.remove(1)
        bars.remove("never shown")
    shown = capsys.readouterr().err
    assert "run 2 of 2" in shown
