"""The operator of a graph as three arrays, the form in which files for other programs take it."""

from __future__ import annotations

import numpy as np

from adagpr.graph import Graph
from adagpr.ops import Direction, Operator, operator

__all__ = ["edge_arrays", "edge_inputs"]


def edge_inputs(graph: Graph, direction: Direction = "directed", self_loops: bool = True) -> dict[str, np.ndarray]:
    """The normalised operator of a graph as the inputs of an exported network.

    Entry ``[i, j]`` of the operator says how much node ``i`` reads of node ``j``: it is the edge with target ``i`` and
    source ``j``. With ``"directed"`` that is an edge of the graph from ``i`` to ``j``; see `adagpr.operator`.

    Args:
        graph: The graph.
        direction: How the network's operator reads edges; the exported file says it.
        self_loops: Whether the network's operator has the identity added; likewise.

    Returns:
        ``edge_source`` and ``edge_target`` as int64 and ``edge_weight`` as float32, one entry an edge, by target.

    Example:
        >>> from adagpr.graph import from_scipy
        >>> pair = from_scipy([[0, 1], [0, 0]], [[1.0], [2.0]], [0, 1])
        >>> edges = edge_inputs(pair)
        >>> edges["edge_target"].tolist(), edges["edge_source"].tolist()
        ([0, 0, 1], [0, 1, 1])
    """
    return edge_arrays(operator(graph, direction, self_loops))


def edge_arrays(op: Operator) -> dict[str, np.ndarray]:
    """What `edge_inputs` gives, from an operator."""
    parts = (op.matrix.crow_indices(), op.matrix.col_indices(), op.matrix.values())
    rows, columns, values = (part.cpu().numpy() for part in parts)
    return {
        "edge_source": columns.astype(np.int64),
        "edge_target": np.repeat(np.arange(op.num_nodes, dtype=np.int64), np.diff(rows)),
        "edge_weight": values.astype(np.float32),
    }
