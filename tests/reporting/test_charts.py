"""The charts of a run as figures and files, and how a long history is thinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from adagpr.errors import InputError
from adagpr.graph import Graph, Split
from adagpr.reporting import plot
from adagpr.reporting.charts import thinned


def test_a_thinned_history_keeps_its_ends_and_the_chosen_epoch() -> None:
    rows = thinned(1500, 777, 100)
    assert len(rows) <= 101
    assert {0, 776, 1499} <= set(rows)
    assert rows == sorted(rows)
    assert thinned(3, 2, 100) == [0, 1, 2]
    assert thinned(1, 1, 100) == [0]


def test_plot_returns_figures_and_writes_only_where_a_folder_is_named(two_models: tuple[Path, Path]) -> None:
    before = sorted(two_models[0].rglob("*"))
    found = plot(two_models[0])
    assert {"coefficients", "evolution", "loss", "worth", "filter", "smoothing", "confusion"} <= found.figures.keys()
    assert found.files == ()
    assert sorted(two_models[0].rglob("*")) == before
    assert len(found.figures["evolution"].axes) >= 2, "one panel per layer"


def test_figures_of_signed_hops_say_what_their_colours_are(signed_run: tuple[Path, Graph, Split]) -> None:
    folder, _, _ = signed_run
    found = plot(folder, only=["coefficients", "evolution"])
    heat = found.figures["coefficients"]
    assert "blue adds it, red subtracts it" in heat.axes[0].get_title()
    assert "takes the difference" in heat.get_supxlabel().replace("\n", " ")
    assert "below 0" in found.figures["evolution"].axes[0].get_ylabel()


def test_a_figure_has_a_file_of_each_kind(two_models: tuple[Path, Path], tmp_path: Path) -> None:
    found = plot(two_models[0], tmp_path, only=["training", "evolution"])
    names = [f"{name}.{kind}" for name in ("evolution", "loss", "accuracy") for kind in ("pdf", "png", "svg")]
    assert [file.name for file in found.files] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_an_unknown_section_and_nothing_to_draw_are_said(two_models: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="Unknown picture 'losses'"):
        plot(two_models[0], only=["losses"])
    with pytest.raises(InputError, match="There is nothing to draw"):
        plot(two_models[1], only=["filter"])
