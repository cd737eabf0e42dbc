"""Pages and figures of trained runs."""

from adagpr.reporting.charts import Plots, plot
from adagpr.reporting.page import report

__all__ = ["Plots", "plot", "report"]
