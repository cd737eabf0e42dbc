"""Charts as plain data, drawn as SVG inside a page or by matplotlib as files, and what our pages share."""

from adagpr.charts.chart import COLOURS, Axis, Bars, Chart, Dot, Dots, HeatMap, Line, Lines, ramp
from adagpr.charts.figures import figure, picture_files
from adagpr.charts.svg import render, svg

__all__ = ["COLOURS", "Axis", "Bars", "Chart", "Dot", "Dots", "HeatMap", "Line", "Lines", "ramp"]
__all__ += ["figure", "picture_files", "render", "svg"]
