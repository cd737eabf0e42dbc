"""Classify the nodes of a graph, and see how much of the graph each layer uses.

The public names are loaded when they are first used, so that ``import adagpr`` and ``adagpr --help`` stay fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adagpr.benchmarking import bench
    from adagpr.data import csbm, from_tables, load
    from adagpr.estimator import AdaGPRClassifier
    from adagpr.experiments.reproduce import reproduce
    from adagpr.exporting import edge_inputs, export, load_exported
    from adagpr.graph import Graph, Split, from_edge_index, from_scipy
    from adagpr.insight.bounds import bounds
    from adagpr.insight.compare import compare
    from adagpr.insight.explain import explain
    from adagpr.interop import from_networkx, from_pyg, splits_from_pyg, to_pyg
    from adagpr.nn import GCNII, MLP, AdaGPR, AdaGPRConv
    from adagpr.ops import Operator, gpr_propagate, operator
    from adagpr.partitioning import partition
    from adagpr.reporting import plot, report
    from adagpr.training import Predictor, Run, Runs, fit_all, fit_partition, load_run
    from adagpr.training.fit import fit
    from adagpr.training.predict import predict
    from adagpr.tuning import tune

__version__ = "0.1.0"

_HOMES = {
    "adagpr.data": ("csbm", "from_tables", "load"),
    "adagpr.graph": ("Graph", "Split", "from_edge_index", "from_scipy"),
    "adagpr.interop": ("from_networkx", "from_pyg", "splits_from_pyg", "to_pyg"),
    "adagpr.nn": ("AdaGPR", "AdaGPRConv", "GCNII", "MLP"),
    "adagpr.ops": ("Operator", "gpr_propagate", "operator"),
    "adagpr.training": ("Predictor", "Run", "Runs", "fit", "fit_all", "fit_partition", "load_run", "predict"),
    "adagpr.tuning": ("tune",),
    "adagpr.insight": ("bounds", "compare", "explain"),
    "adagpr.reporting": ("plot", "report"),
    "adagpr.exporting": ("edge_inputs", "export", "load_exported"),
    "adagpr.partitioning": ("partition",),
    "adagpr.experiments": ("reproduce",),
    "adagpr.benchmarking": ("bench",),
    "adagpr.estimator": ("AdaGPRClassifier",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["Graph", "Split", "csbm", "from_edge_index", "from_scipy", "from_tables", "load"]
__all__ += ["from_networkx", "from_pyg", "splits_from_pyg", "to_pyg"]
__all__ += ["GCNII", "MLP", "AdaGPR", "AdaGPRClassifier", "AdaGPRConv", "Operator", "gpr_propagate", "operator"]
__all__ += ["Predictor", "Run", "Runs", "fit", "fit_all", "fit_partition", "load_run", "partition", "predict", "tune"]
__all__ += ["bounds", "compare", "edge_inputs", "explain", "export", "load_exported", "plot", "report"]
__all__ += ["bench", "reproduce"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'adagpr' has no attribute '{name}'")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
