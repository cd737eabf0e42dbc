"""The numbers of a chart are those that it was given, and its lines are where they belong."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from adagpr.charts import Axis, Bars, Chart, Dot, Dots, HeatMap, Line, Lines, figure, picture_files, ramp, svg
from adagpr.charts.svg import Scale, nice_ticks, path

LINES = Lines(
    name="n",
    title="a < b",
    x=Axis("x"),
    at=[0.0, 1.0, 2.0],
    lines=[Line("a", [0.0, None, 2.0]), Line("b", [1.0, 1.0, 1.0], "soft", is_dashed=True)],
    mark=(1.0, "here"),
    sizes=("c", [7, 8, 9]),
)
POWERS = Lines(
    name="n",
    title="t",
    x=Axis("nodes", is_log=True),
    at=[1e3, 1e4, 1e5],
    lines=[Line("a", [1.0, 10.0, 100.0], has_dots=True)],
    y=Axis("ms", is_log=True),
)
DOTS = Dots(
    name="n",
    title="t",
    x=Axis("trial"),
    y=Axis("loss", limits=(0.0, 2.0)),
    dots=[Dot(0, 1.0, "complete", "one"), Dot(1, 9.0, "pruned", "<two>"), Dot(2, 0.5, "best", "three")],
    steps=[(0, 1.0), (2, 0.5)],
)
BARS = Bars(name="n", title="t", labels=["a", "b"], bars={"v": [1, 3]}, unit=" %", more={"nodes": [5, 6]})
HEAT = HeatMap(
    name="n",
    title="t",
    values=[[0.0, 0.25, 0.75]],
    row_names=["1"],
    column_names=["0", "1", "2"],
    row_title="layer",
    column_title="hop",
)


SIGNS = HeatMap(
    name="n",
    title="t",
    values=[[1.5, -0.75, 0.0]],
    row_names=["1"],
    column_names=["0", "1", "2"],
    row_title="layer",
    column_title="hop",
    signs=("adds", "subtracts"),
)


def test_a_scale_is_linear_and_keeps_what_is_outside_at_its_edge() -> None:
    scale = Scale(0, 10, 100, 200)
    assert [scale(value) for value in (0, 5, 10, -3, 99)] == [100, 150, 200, 100, 200]
    assert Scale(1, 100, 0, 2, is_log=True)(10) == 1


def test_ticks_are_round_and_inside() -> None:
    rng = np.random.default_rng(0)
    for low, width in zip(rng.normal(size=200) * 100, rng.random(200) * 1000 + 1e-3, strict=True):
        ticks = nice_ticks(low, low + width, 5)
        assert 2 <= len(ticks) <= 6
        assert low - 1e-9 * width <= ticks[0]
        assert ticks[-1] <= low + width * (1 + 1e-9)


def test_a_path_leaves_out_only_points_on_a_level_stretch() -> None:
    assert path([(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)], "line") == '<path d="M0 1L2 1L3 2L4 2" class="line"/>'


def test_lines_skip_what_is_missing_and_keep_it_in_the_numbers() -> None:
    assert [name for name, _ in LINES.columns] == ["x", "a", "b", "c"]
    assert LINES.rows == [(0.0, 0.0, 1.0, 7), (1.0, None, 1.0, 8), (2.0, 2.0, 1.0, 9)]
    first = re.findall(r'd="M([^"]*)"', svg(LINES))[0]
    assert len(first.split("L")) == 2


def test_a_larger_value_is_a_darker_box_and_a_longer_bar() -> None:
    shades = [float(value) for value in re.findall(r"fill-opacity:([\d.]+)", svg(HEAT))]
    assert shades[0] == 0 < shades[1] < shades[2]
    assert HEAT.rows == [("1", 0.0, 0.25, 0.75)]
    assert BARS.rows == [("a", 1, 5), ("b", 3, 6)]
    widths = [float(value) for value in re.findall(r'<rect [^>]*width="([\d.]+)"', svg(BARS))]
    assert np.isclose(widths[1], 3 * widths[0], rtol=1e-3)


def test_dots_outside_the_limits_are_at_the_edge_and_their_words_are_escaped() -> None:
    drawn = svg(DOTS, 520, 300)
    circles = [element for element in ET.fromstring(drawn).iter() if element.tag == "circle"]  # noqa: S314
    heights = [float(circle.get("cy", "")) for circle in circles]
    assert heights == [(24 + 258) / 2, 24, 24 + 0.75 * (258 - 24)]
    assert [circle.get("class") for circle in circles] == ["complete", "pruned", "best"]
    assert "<title>&lt;two&gt;</title>" in drawn


def test_powers_of_ten_are_equally_far_apart_on_a_logarithmic_axis() -> None:
    drawn = svg(POWERS)
    points = [tuple(map(float, re.findall(r'c[xy]="([\d.]+)"', dot))) for dot in re.findall("<circle[^>]*>", drawn)]
    assert np.allclose(np.diff(points, n=2, axis=0), 0, atol=0.2)
    assert "data-kind" not in drawn, "the page reads values off linear axes only"


def test_things_in_order_have_different_colours() -> None:
    for count in (2, 6, 16, 64):
        assert len({ramp(number, count) for number in range(count)}) == count


@pytest.mark.parametrize("chart", [LINES, POWERS, DOTS, BARS, HEAT, SIGNS])
def test_every_chart_is_valid_svg_with_words_and_a_file_of_each_kind(chart: Chart) -> None:
    assert ET.fromstring(svg(chart)).get("aria-label")  # noqa: S314
    files = picture_files(figure(chart))
    assert files == picture_files(figure(chart)), "equal charts are equal files"
    assert files["pdf"].startswith(b"%PDF")
    assert files["png"].startswith(b"\x89PNG")
    assert chart.title in " ".join(ET.fromstring(files["svg"]).itertext())  # noqa: S314


def test_several_charts_share_a_figure_and_its_legend() -> None:
    drawn = figure([LINES, LINES, LINES, LINES, LINES], title="all", legend="right")
    assert [axes.get_title() for axes in drawn.axes[:5]] == ["a < b"] * 5
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["a", "b"]


def test_values_of_either_sign_are_blue_and_red_and_an_absent_one_is_a_dot() -> None:
    drawn = svg(SIGNS)
    boxes = re.findall(r'class="cell (\w+)" style="fill-opacity:([\d.]+)"', drawn)
    assert [(sign, float(shade)) for sign, shade in boxes] == [("plus", 1.0), ("minus", 0.53), ("plus", 0.0)]
    assert [text for text in ("+1.50", "-0.75", "·") if f">{text}<" in drawn] == ["+1.50", "-0.75", "·"]
    assert SIGNS.legend == (("adds", "plus"), ("subtracts", "minus"))
    panel, scale = figure(SIGNS).axes
    assert [text.get_text() for text in panel.texts] == ["+1.50", "-0.75", "·"]
    red, green, blue, _ = panel.images[0].cmap(0.0)
    assert red > max(green, blue)
    assert [text.get_text() for text in scale.get_yticklabels()] == ["-1.50\nsubtracts", "0", "+1.50\nadds"]


def test_a_line_marks_0_where_values_are_below_it() -> None:
    axis = Axis("y", includes=(0.0, 0.5), has_zero=True)
    charts = [
        Lines(name="n", title="t", x=Axis("x"), at=[0.0, 1.0], lines=[Line("a", [0.0, low])], y=axis)
        for low in (-1, -3)
    ]
    assert 'class="zero"' in svg(charts[0])
    assert 'class="zero"' not in svg(LINES)
    first, second = figure(charts).axes
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] < -3
    assert any(np.array_equal(line.get_ydata(), [0, 0]) for line in first.lines)
