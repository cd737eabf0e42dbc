"""Small networks for the tests of this room."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from adagpr.exporting import About, Exported, prune
from adagpr.graph import Graph
from adagpr.nn import AdaGPR
from adagpr.ops import Direction, features, operator

# Zeros at the end, in the middle, everywhere but at hop 0; a sign that the simplex does not have.
MIXED = [[0.5, 0.3, 0.2, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.7, 0.0], [0.4, 0.0, -0.2, 0.0], [0.1, 0.0, 0.0, 0.9]]
HOP_0 = [[1.0, 0.0, 0.0, 0.0], [0.7, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]


def network(coeffs: list[list[float]], dtype: torch.dtype = torch.float64, **options: Any) -> AdaGPR:
    """A network with these coefficients, a row a layer, and random weights."""
    arguments: dict[str, Any] = {"alpha": 0.3, "theta": 1.5, **options}
    model = AdaGPR(12, 8, 3, num_layers=len(coeffs), num_coeffs=len(coeffs[0]), projection="fixed", **arguments)
    model.seed(3)
    model = model.with_coefficients(torch.tensor(coeffs))
    return model.to(dtype).eval()


def about(direction: Direction = "directed", self_loops: bool = True) -> About:
    return About("adagpr", ("a", "b", "c"), direction, self_loops, ((1.0, 0.0),), (0.3,), "0" * 64)


def exported(model: AdaGPR, direction: Direction = "directed", self_loops: bool = True) -> Exported:
    return prune(model, about(direction, self_loops))


def logits(model: AdaGPR, graph: Graph, direction: Direction = "directed", self_loops: bool = True) -> Tensor:
    """What the whole network says."""
    dtype = model.lin_in.weight.dtype
    with torch.no_grad():
        result: Tensor = model(features(graph.x, dtype), operator(graph, direction, self_loops, dtype))
        return result
