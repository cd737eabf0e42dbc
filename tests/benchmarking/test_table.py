from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from adagpr.benchmarking import loglog_svg, markdown

NODES = (1e3, 1e4, 1e5, 1e6)
SERIES = {
    "ours": [(num, 3e-6 * num) for num in NODES],
    "pyg-csr": [(num, 1.30e-5 * num) for num in NODES],
    "pyg-edge-index": [(num, 1.25e-5 * num) for num in NODES],
    "a < b": [(num, 1.28e-5 * num) for num in NODES[:3]],
}


def texts(svg: str) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own text
    return {element.text or "": element for element in root.iter("{http://www.w3.org/2000/svg}text")}


def test_a_table_has_a_row_for_each_way() -> None:
    seconds = {"median": 0.0215, "lower": 0.02, "upper": 0.1234, "rounds": 7}
    ours: dict[str, Any] = {"status": "measured", "num_threads": 1, "seconds": seconds}
    other = {**ours, "ratio": {"median": 6.0, "lower": 5.5, "upper": 1234.0, "rounds": 7}}
    other["memory_mb"] = {"step": 43.4, "total": 451.0}
    ways = {"dgl": {"status": "not available: no"}, "pyg-csr": other, "ours": ours}
    assert markdown([{"case": {"name": "small"}, "ways": ways}]).splitlines()[2:] == [
        "| small | dgl |  | not available: no |  |  |  |",
        "| small | pyg-csr | 1 | 21.5 (20.0 to 123) | 6.00 (5.50 to 1,234) | 43 | 451 |",
        "| small | ours | 1 | 21.5 (20.0 to 123) |  |  |  |",
    ]


def test_a_figure_names_its_axes_and_every_line() -> None:
    found = texts(loglog_svg("Time & size", "nodes", "seconds", SERIES))
    assert {"Time & size", "nodes", "seconds", *SERIES, "1,000,000", "0.1"} <= found.keys()


def test_names_at_the_right_keep_the_order_of_their_lines_and_do_not_overlap() -> None:
    found = texts(loglog_svg("", "nodes", "seconds", SERIES))
    heights = [float(found[name].attrib["y"]) for name in ("pyg-csr", "pyg-edge-index", "ours")]
    assert heights[1] - heights[0] >= 15
    assert heights[2] - heights[1] >= 15


def test_a_way_has_one_colour_in_all_figures() -> None:
    alone = texts(loglog_svg("", "nodes", "seconds", {"pyg-csr": SERIES["pyg-csr"]}))
    assert alone["pyg-csr"].attrib["style"] == texts(loglog_svg("", "", "seconds", SERIES))["pyg-csr"].attrib["style"]


@pytest.mark.parametrize("points", [[(16.0, 1.0)], [(2.0, 0.5), (64.0, 0.5)], [(1.0, 1e-6), (3.0, 1e6)]])
def test_odd_ranges_are_drawn_inside_the_figure(points: list[tuple[float, float]]) -> None:
    root = ElementTree.fromstring(loglog_svg("", "x", "y", {"line": points}))  # noqa: S314 - our own text
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == len(points)
    assert all(44 <= float(item.attrib["cy"]) <= 420 - 56 for item in circles)
