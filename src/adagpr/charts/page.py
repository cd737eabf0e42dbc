"""Pages: one HTML file each, with style, charts and script inside, that opens from a mail attachment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from adagpr.charts.chart import Chart
from adagpr.charts.svg import css_colour, svg

if TYPE_CHECKING:
    from markupsafe import Markup


def render(template: Path, **values: Any) -> str:
    """The page of a template that extends ``base.html``. Every value is escaped; ``svg(chart)`` draws a chart.

    Args:
        template: The template's file. Files beside it can be included.
        **values: What the template names; a missing name is an error.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(svg=_drawn, css_colour=css_colour)
    return environment.get_template(template.name).render(**values)


def _drawn(chart: Chart, width: float = 400, height: float = 250) -> Markup:
    """A chart as part of the page; `svg` has escaped what it prints."""
    from markupsafe import Markup

    return Markup(svg(chart, width, height))  # noqa: S704
