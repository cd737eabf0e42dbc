"""Pages and pictures of trained runs."""

from adagpr.report.page import write_report
from adagpr.report.static import write_figures

__all__ = ["write_figures", "write_report"]
