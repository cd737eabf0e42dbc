"""AdaGPR timed side by side with other implementations of it, and an epoch taken apart."""

from adagpr.benchmarking.baselines import BASELINES
from adagpr.benchmarking.cases import OURS, SETS, SIGNED, Case, cases
from adagpr.benchmarking.measure import LEAST_RUNS, ratios, side_by_side, spread
from adagpr.benchmarking.products import DENSE_KERNELS, SPARSE_KERNELS, Recorder
from adagpr.benchmarking.profile import CATEGORIES, Profile, profile_epoch
from adagpr.benchmarking.rmat import PROBABILITIES, descend, rmat
from adagpr.benchmarking.run import Benchmark, bench, flame_graph_path, run_case

__all__ = [
    "BASELINES",
    "CATEGORIES",
    "DENSE_KERNELS",
    "LEAST_RUNS",
    "OURS",
    "PROBABILITIES",
    "SETS",
    "SIGNED",
    "SPARSE_KERNELS",
    "Benchmark",
    "Case",
    "Profile",
    "Recorder",
    "bench",
    "cases",
    "descend",
    "flame_graph_path",
    "profile_epoch",
    "ratios",
    "rmat",
    "run_case",
    "side_by_side",
    "spread",
]
