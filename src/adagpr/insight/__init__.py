"""What a trained run tells of itself: what it does with its graph, and the paper's bounds for it."""

from adagpr.insight.bounds import Bounds, LayerBound, Total, Transductive, bounds
from adagpr.insight.explain import Explanation, explain
from adagpr.insight.node import NodeExplanation, explain_node

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
