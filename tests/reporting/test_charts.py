"""The numbers of a chart are those that it was given, and its lines are where they belong."""

from __future__ import annotations

import re

import numpy as np

from adagpr.reporting.charts import bars, heat_map, lines, ramp
from adagpr.reporting.parts import thinned
from adagpr.web.svg import Axis, nice_ticks, path


def test_an_axis_is_linear_and_keeps_what_is_outside_at_its_edge() -> None:
    axis = Axis(0, 10, 100, 200)
    assert [axis(value) for value in (0, 5, 10, -3, 99)] == [100, 150, 200, 100, 200]
    assert Axis(1, 100, 0, 2, log=True)(10) == 1


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
    chart = lines(
        "n", "t", ("x", [0.0, 1.0, 2.0]), {"a": [0.0, None, 2.0], "b": [1.0, 1.0, 1.0]}, sizes=("c", [7, 8, 9])
    )
    assert chart.headings == ("x", "a", "b", "c")
    assert chart.rows == ((0.0, 0.0, 1.0, 7), (1.0, None, 1.0, 8), (2.0, 2.0, 1.0, 9))
    first = re.findall(r'd="M([^"]*)"', chart.svg)[0]
    assert len(first.split("L")) == 2


def test_a_larger_value_is_a_darker_box_and_a_longer_bar() -> None:
    chart = heat_map("n", "t", [[0.0, 0.25, 0.75]], ["1"], ["0", "1", "2"], row_title="layer", column_title="hop")
    shades = [float(value) for value in re.findall(r"fill-opacity:([\d.]+)", chart.svg)]
    assert shades[0] == 0 < shades[1] < shades[2]
    assert chart.rows == (("1", 0.0, 0.25, 0.75),)
    widths = [
        float(value) for value in re.findall(r'<rect [^>]*width="([\d.]+)"', bars("n", "t", [("a", 1), ("b", 3)]).svg)
    ]
    assert np.isclose(widths[1], 3 * widths[0], rtol=1e-3)


def test_things_in_order_have_different_colours() -> None:
    for count in (2, 6, 16, 64):
        assert len({ramp(number, count) for number in range(count)}) == count


def test_a_thinned_history_keeps_its_ends_and_the_chosen_epoch() -> None:
    rows = thinned(1500, 777, 100)
    assert len(rows) <= 101
    assert {0, 776, 1499} <= set(rows)
    assert rows == sorted(rows)
    assert thinned(3, 2, 100) == [0, 1, 2]
    assert thinned(1, 1, 100) == [0]
