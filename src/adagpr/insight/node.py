r"""Where one node's prediction comes from, as sums that add up exactly.

With dropout off and the ReLUs frozen at what they did for this graph, a network of `AdaGPR` layers is linear:

.. math:: H_0 = R_0 \odot (X W_{in} + b_{in}), \quad
          H_l = R_l \odot \Big(\sum_k \mu_{lk} \tilde A^k H_{l-1} P_l + H_0 Q_l\Big), \quad
          Z = H_L W_{out} + b_{out}

:math:`R_l` is 1 where layer ``l`` was positive, else 0; :math:`P_l` and :math:`Q_l` are the layer's weight maps,
:math:`1 - \alpha` and :math:`\alpha` included. The logit :math:`z` of one node and class is then a sum over paths that
go back from the output to :math:`X` or to a bias. With :math:`g_l = R_l \odot \partial z / \partial H_l` it is cut in
three ways:

- by layer and hop: :math:`f_{lk} = \mu_{lk} \langle (\tilde A^\top)^k g_l P_l^\top, H_{l-1} \rangle` came into layer
  ``l`` through its hop ``k``, :math:`r_l = \langle g_l Q_l^\top, H_0 \rangle` came from :math:`H_0` there. At every
  layer :math:`z = b_{out} + \sum_{j \ge l} r_j + \sum_k f_{lk}`;
- by hops in all: what the features gave on paths that take ``t`` products with the operator, in whatever layers.
  :math:`z = b_{out} + b_{in}\text{'s part} + \sum_t c_t`. A product may stay at its node, by its self loop;
- by source: what the features of each node gave. :math:`z = b_{out} + b_{in}\text{'s part} + \sum_u s_u`.

All is computed in float64 by one pass backwards over the nodes that the prediction can depend on, with one gradient for
each number of hops taken so far; from `MOST_HOPS` on they share one, so memory does not grow with depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn import Model
from adagpr.ops import Direction, features, linear, normalised, operator

MOST_HOPS = 16


@dataclass(frozen=True)
class LayerFlow:
    """What one layer took in on the way to the logit: from the layer before through each hop, and from ``H_0``."""

    layer: int
    hops: tuple[float, ...]
    from_h0: float


@dataclass(frozen=True)
class Source:
    """A node some edges away whose features the prediction reads, and what they add to the logit."""

    node: str
    distance: int
    contribution: float


@dataclass(frozen=True)
class NodeExplanation:
    """One node's prediction, taken apart; see the module for what adds up to what."""

    node: str
    label: str | None  # its class, where it is known
    prediction: str
    probability: float  # of the predicted class, calibrated
    logit: float  # of the predicted class, in float64
    bias_out: float  # what the output map's bias adds to the logit
    bias_in: float  # what the input map's bias adds, over all paths
    layers: tuple[LayerFlow, ...]
    by_hops: tuple[float, ...]  # what features add on paths of 0, 1, ... hops in all; from `MOST_HOPS` on together
    own: float  # what the node's own features add
    sources: tuple[Source, ...]  # the other nodes whose features add or take most, largest first
    others: float  # what the features of all remaining nodes add together
    num_sources: int  # other nodes that add anything but 0


def explain_node(
    model: Model,
    graph: Graph,
    node: object,
    direction: Direction = "directed",
    self_loops: bool = True,
    num_sources: int = 10,
    temperature: float = 1.0,
) -> NodeExplanation:
    """Takes the prediction of the node with this id apart; ``num_sources`` other nodes are named."""
    if model.pair_norm is not None:
        raise InputError("PairNorm makes every node depend on all others: a prediction is then no sum over paths.")
    position = _position(graph, node)
    network = _Network.frozen(model, graph, direction, self_loops)
    logits = network.logits[position]
    target = int(logits.argmax())
    matrix = normalised(graph, direction, self_loops)
    hops = distances(matrix, [position], total_hops(network.coeffs, network.alphas))[:, 0]
    reached = np.flatnonzero(hops >= 0)
    transpose = sp.csr_array(matrix[reached][:, reached].T)
    flows, parts, bias_in = _backwards(network, transpose, reached, position, target)
    by_source, nodes = parts.sum(0), reached != position
    order = np.argsort(-np.abs(by_source), kind="stable")
    named = [i for i in order if nodes[i] and by_source[i] != 0][:num_sources]
    label = int(graph.y[position])
    used = np.flatnonzero(np.abs(parts).sum(1) > 0)
    return NodeExplanation(
        node=str(graph.node_ids[position]),
        label=None if label < 0 else graph.class_names[label],
        prediction=graph.class_names[target],
        probability=float((logits / temperature).softmax(-1)[target]),
        logit=float(logits[target]),
        bias_out=float(network.bias_out[target]),
        bias_in=bias_in,
        layers=tuple(flows),
        by_hops=tuple(parts.sum(1)[: used[-1] + 1 if len(used) else 1].tolist()),
        own=float(by_source[~nodes].sum()),
        sources=tuple(
            Source(str(graph.node_ids[reached[i]]), int(hops[reached[i]]), float(by_source[i])) for i in named
        ),
        others=float(by_source[nodes].sum() - by_source[named].sum()),
        num_sources=int((by_source[nodes] != 0).sum()),
    )


def _position(graph: Graph, node: object) -> int:
    found = np.flatnonzero(graph.node_ids.astype(str) == str(node))
    if len(found) == 0:
        first, last = graph.node_ids[0], graph.node_ids[-1]
        raise InputError(f"There is no node '{node}' in {graph.name}; its first is '{first}', its last '{last}'.")
    return int(found[0])


@dataclass(frozen=True, eq=False)
class _Network:
    """A network in float64 and all that it computed for a graph."""

    coeffs: np.ndarray  # [layers, hops], to the bit those of the model
    alphas: list[float]
    maps: list[tuple[np.ndarray, np.ndarray]]  # P and Q of each layer
    from_features: np.ndarray  # what of the first hidden matrix is due to features; the rest is due to the bias
    hidden: list[np.ndarray]  # the first hidden matrix and the output of every layer
    weight_out: np.ndarray  # one row per class
    bias_out: np.ndarray
    logits: Tensor

    @classmethod
    @torch.no_grad()
    def frozen(cls, model: Model, graph: Graph, direction: Direction, self_loops: bool) -> _Network:
        coeffs = model.coefficients()
        if coeffs is None:
            raise InputError(f"The model '{model.name}' has no layers with coefficients to explain.")
        coeffs = coeffs.cpu().double()
        exact = model.with_coefficients(coeffs).cpu().double().eval()
        op = operator(graph, direction, self_loops, torch.float64)
        lin_in, lin_out = exact.outer_maps()
        mapped = linear(features(graph.x, torch.float64), lin_in.weight, torch.zeros_like(lin_in.bias))
        hidden = list(exact.hidden_matrices((mapped + lin_in.bias).relu(), op))
        return cls(
            coeffs=coeffs.numpy(),
            alphas=[view.alpha for view in exact.layer_views()],
            maps=[(own.numpy(), residual.numpy()) for own, residual in (view.maps() for view in exact.layer_views())],
            from_features=(mapped * (hidden[0] > 0)).numpy(),
            hidden=[h.numpy() for h in hidden],
            weight_out=lin_out.weight.numpy(),
            bias_out=lin_out.bias.numpy(),
            logits=lin_out(hidden[-1]),
        )


def _backwards(
    network: _Network, transpose: sp.csr_array, reached: np.ndarray, position: int, target: int
) -> tuple[list[LayerFlow], np.ndarray, float]:
    """The flow into each layer, what features gave by hops in all and by source, and what the input's bias gave."""
    hidden = [h[reached] for h in network.hidden]
    from_features = network.from_features[reached]
    from_bias = hidden[0] - from_features
    gradient = np.zeros_like(hidden[-1])
    gradient[reached == position] = network.weight_out[target]
    gradients = {0: gradient}
    parts = np.zeros((MOST_HOPS + 1, len(reached)))
    bias_in = 0.0
    flows: list[LayerFlow] = []
    for number in reversed(range(len(network.maps))):
        own, residual = network.maps[number]
        mu = np.trim_zeros(network.coeffs[number], "b")
        through, from_h0 = np.zeros(network.coeffs.shape[1]), 0.0
        below: dict[int, np.ndarray] = {}
        for taken, above in gradients.items():
            power = above * (hidden[number + 1] > 0)
            to_h0 = power @ residual.T
            parts[taken] += (to_h0 * from_features).sum(1)
            bias_in += float((to_h0 * from_bias).sum())
            from_h0 += float((to_h0 * hidden[0]).sum())
            power = power @ own.T
            for hop, weight in enumerate(mu):
                power = transpose @ power if hop else power
                if weight != 0:
                    through[hop] += weight * (power * hidden[number]).sum()
                    key = min(taken + hop, MOST_HOPS)
                    below[key] = below[key] + weight * power if key in below else weight * power
        flows.insert(0, LayerFlow(number + 1, tuple(through.tolist()), from_h0))
        gradients = below
    for taken, above in gradients.items():
        parts[taken] += (above * from_features).sum(1)
        bias_in += float((above * from_bias).sum())
    return flows, parts, bias_in


def total_hops(coeffs: np.ndarray, alphas: Sequence[float]) -> int:
    """The most hops that a path through all layers takes; ``alpha`` 1 or no coefficient but 0 cuts off all below."""
    total = 0
    for mu, alpha in zip(coeffs[::-1], alphas[::-1], strict=True):
        if alpha == 1.0 or not mu.any():
            break
        total += len(np.trim_zeros(mu, "b")) - 1
    return total


def distances(matrix: sp.csr_array, nodes: Sequence[int], most: int) -> np.ndarray:
    """Edges from each of ``nodes`` (columns) to every node (rows), at most ``most``; -1 where it takes more."""
    found = np.full((matrix.shape[0], len(nodes)), -1, dtype=np.int32)
    found[nodes, np.arange(len(nodes))] = 0
    links = sp.csr_array((matrix.T != 0).astype(np.float32))
    newest = found == 0
    for hop in range(1, most + 1):
        newest = (links @ newest.astype(np.float32) > 0) & (found < 0)
        if not newest.any():
            break
        found[newest] = hop
    return found
