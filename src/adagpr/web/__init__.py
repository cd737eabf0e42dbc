"""What our pages share: figures as SVG, and pages that need no network."""

from adagpr.web.page import render

__all__ = ["render"]
