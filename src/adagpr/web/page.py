"""Pages: one HTML file each, with style, figures and script inside, that opens from a mail attachment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

__all__ = ["drawn", "render"]

_HERE = Path(__file__).parent


def render(template: Path, **values: Any) -> str:
    """The page of a template that extends ``base.html``; every value is escaped unless it was `drawn`.

    Args:
        template: The template's file. Files beside it can be included.
        **values: What the template names; a name that is missing is an error.
    """
    environment = Environment(
        loader=FileSystemLoader([template.parent, _HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text: str = environment.get_template(template.name).render(**values)
    return text


def drawn(svg: str) -> Markup:
    """A figure of `adagpr.web.svg`, which escapes what it prints, as it stands in the page."""
    return Markup(svg)  # noqa: S704
