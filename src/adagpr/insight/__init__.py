"""What a trained run tells of itself: what it does with its graph, and the paper's bounds for it."""

from adagpr.insight.bounds import Bounds, bounds
from adagpr.insight.explain import Explanation, explain
from adagpr.insight.node import NodeExplanation, explain_node
from adagpr.insight.theorem import LayerBound, Total, Transductive

__all__ = [
    "Bounds",
    "Explanation",
    "LayerBound",
    "NodeExplanation",
    "Total",
    "Transductive",
    "bounds",
    "explain",
    "explain_node",
]
