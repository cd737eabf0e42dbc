"""Classify the nodes of a graph, and see how much of the graph each layer uses.

The public names are loaded when they are first used, so that ``import adagpr`` and ``adagpr --help`` stay fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adagpr.data import csbm, from_tables, load
    from adagpr.estimator import AdaGPRClassifier
    from adagpr.exporting import edge_inputs, export, load_exported
    from adagpr.graph import Graph, Split, from_edge_index, from_scipy
    from adagpr.insight.bounds import bounds
    from adagpr.insight.explain import explain
    from adagpr.interop import from_networkx, from_pyg, splits_from_pyg, to_pyg
    from adagpr.nn import GCNII, MLP, AdaGPR, AdaGPRConv
    from adagpr.ops import Operator, gpr_propagate, operator
    from adagpr.training import Run, fit, load_run, predict

__version__ = "0.1.0"

_HOMES = {
    "adagpr.interop": ("from_networkx", "from_pyg", "splits_from_pyg", "to_pyg"),
    "adagpr.data": ("csbm", "from_tables", "load"),
    "adagpr.estimator": ("AdaGPRClassifier",),
    "adagpr.exporting": ("edge_inputs", "export", "load_exported"),
    "adagpr.graph": ("Graph", "Split", "from_edge_index", "from_scipy"),
    "adagpr.insight": ("bounds", "explain"),
    "adagpr.nn": ("AdaGPR", "AdaGPRConv", "GCNII", "MLP"),
    "adagpr.ops": ("Operator", "gpr_propagate", "operator"),
    "adagpr.training": ("Run", "fit", "fit_all", "load_run", "predict"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 - in the order of the rooms
    "csbm",
    "from_tables",
    "load",
    "Graph",
    "Split",
    "from_edge_index",
    "from_networkx",
    "from_pyg",
    "from_scipy",
    "splits_from_pyg",
    "to_pyg",
    "AdaGPR",
    "AdaGPRConv",
    "GCNII",
    "MLP",
    "Operator",
    "gpr_propagate",
    "operator",
    "Run",
    "fit",
    "load_run",
    "predict",
    "AdaGPRClassifier",
    "bounds",
    "explain",
    "edge_inputs",
    "export",
    "load_exported",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'adagpr' has no attribute '{name}'")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
