"""The paper's tables and figures: what was printed as data, what is run, and ours beside it."""

from adagpr.experiments.catalogue import TARGETS, Cell, Experiment, catalogue, cells, experiment, plan
from adagpr.experiments.reproduce import Reproduction, left_out, reproduce, reproduction_status
from adagpr.experiments.runner import STATES, Folders, run_cells
from adagpr.experiments.tables import Row, Table, accuracy_rows
from adagpr.experiments.targets import TargetReport, report_target

__all__ = [
    "STATES",
    "TARGETS",
    "Cell",
    "Experiment",
    "Folders",
    "Reproduction",
    "Row",
    "Table",
    "TargetReport",
    "accuracy_rows",
    "catalogue",
    "cells",
    "experiment",
    "left_out",
    "plan",
    "report_target",
    "reproduce",
    "reproduction_status",
    "run_cells",
]
