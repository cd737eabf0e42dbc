"""Pages and figures of trained runs."""

from adagpr.reporting.page import report
from adagpr.reporting.plot import Plots, plot

__all__ = ["Plots", "plot", "report"]
