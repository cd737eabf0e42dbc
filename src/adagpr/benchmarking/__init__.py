"""AdaGPR timed and weighed side by side with the other ways of computing it."""

from adagpr.benchmarking.cases import SETS, Case, cases, load_graph
from adagpr.benchmarking.measure import Memory, Spread, exponent, peak_memory, ratios, side_by_side, spread
from adagpr.benchmarking.rivals import RIVALS, Baseline, rival_class
from adagpr.benchmarking.rmat import rmat
from adagpr.benchmarking.run import run_case, run_set, time_to_accuracy
from adagpr.benchmarking.table import loglog_svg, markdown

__all__ = [
    "RIVALS",
    "SETS",
    "Baseline",
    "Case",
    "Memory",
    "Spread",
    "cases",
    "exponent",
    "load_graph",
    "loglog_svg",
    "markdown",
    "peak_memory",
    "ratios",
    "rival_class",
    "rmat",
    "run_case",
    "run_set",
    "side_by_side",
    "spread",
    "time_to_accuracy",
]
