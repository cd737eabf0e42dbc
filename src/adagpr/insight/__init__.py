"""What trained runs do with their graph, the paper's bounds for them, and whether one model is better than another."""

from adagpr.insight.bounds import Bounds, bounds
from adagpr.insight.compare import Comparison, compare, folder_of_runs, folders_of_runs, settings_of
from adagpr.insight.explain import Explanation, explain
from adagpr.insight.node import MOST_HOPS, NodeExplanation, explain_node
from adagpr.insight.source import DatasetFiles, data_of, graph_of

__all__ = [
    "MOST_HOPS",
    "Bounds",
    "Comparison",
    "DatasetFiles",
    "Explanation",
    "NodeExplanation",
    "bounds",
    "compare",
    "data_of",
    "explain",
    "explain_node",
    "folder_of_runs",
    "folders_of_runs",
    "graph_of",
    "settings_of",
]
