"""The paper's tables and figures: what was printed as data, what is run, and ours beside it."""

from adagpr.experiments.catalogue import Cell, Experiment, catalogue, experiment
from adagpr.experiments.plan import TARGETS, cells, plan
from adagpr.experiments.runner import Folders, run_cells

__all__ = ["TARGETS", "Cell", "Experiment", "Folders", "catalogue", "cells", "experiment", "plan", "run_cells"]
