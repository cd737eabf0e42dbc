"""The paper's tables as data, and their runner."""

from adagpr.experiments.catalogue import Cell, Experiment, catalogue, experiment
from adagpr.experiments.runner import run_cell

__all__ = ["Cell", "Experiment", "catalogue", "experiment", "run_cell"]
