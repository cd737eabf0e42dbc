"""Pages: one HTML file each, with style, charts and script inside, that opens from a mail attachment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adagpr.charts.svg import css_colour, svg


def render(template: Path, **values: Any) -> str:
    """The page of a template that extends ``base.html``. Every value is escaped; ``svg(chart)`` draws a chart.

    Args:
        template: The template's file. Files beside it can be included.
        **values: What the template names; a missing name is an error.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # What `svg` prints is escaped already.
    environment.globals.update(svg=lambda *chart: Markup(svg(*chart)), css_colour=css_colour)  # noqa: S704
    return environment.get_template(template.name).render(**values)
