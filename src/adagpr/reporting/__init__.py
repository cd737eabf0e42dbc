"""Pages and figures of trained runs."""

from adagpr.reporting.figures import Plots, plot
from adagpr.reporting.page import report

__all__ = ["Plots", "plot", "report"]
