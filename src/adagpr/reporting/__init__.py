"""Pages and pictures of trained runs."""

from adagpr.reporting.page import write_report
from adagpr.reporting.static import write_figures

__all__ = ["write_figures", "write_report"]
