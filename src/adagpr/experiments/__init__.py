"""The paper's tables and figures as data, their runner, and two models compared."""

from adagpr.experiments.catalogue import Cell, Experiment, catalogue, experiment
from adagpr.experiments.comparison import Comparison, compare
from adagpr.experiments.plan import TARGETS, Task, plan, tasks
from adagpr.experiments.runner import Folders, run_tasks

__all__ = [
    "TARGETS",
    "Cell",
    "Comparison",
    "Experiment",
    "Folders",
    "Task",
    "catalogue",
    "compare",
    "experiment",
    "plan",
    "run_tasks",
    "tasks",
]
