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

A layer may have several operators, each with its own coefficients and map, an own map :math:`E` and a shift :math:`b`,
see `adagpr.nn.LayerView`. Paths then go through any operator, or take no product and stay at their node through
:math:`E`, whose part :math:`o_l = \langle g_l E^\top, H_{l-1} \rangle` is beside the hops. The shifts
:math:`d_l = \langle g_l, b_l \rangle` are beside the biases: they add to all three sums, and at every layer
:math:`z = b_{out} + \sum_{j \ge l} (r_j + d_j) + o_l + \sum_k f_{lk}`. A trained batch normalisation is in the maps and
the shift. Layer normalisation takes the mean of each row, which is linear, and divides by its deviation, which is
frozen as the ReLUs are.

All is computed in float64 by one pass backwards over the nodes that the prediction can depend on, with one gradient for
each number of hops taken so far; from `MOST_HOPS` on they share one, so memory does not grow with depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn import LayerView, Model
from adagpr.ops import NORM_EPSILON, Direction, features, linear, to_scipy

MOST_HOPS = 16


@dataclass(frozen=True)
class LayerFlow:
    """What one layer took in on the way to the logit: from the layer before through each hop, and from ``H_0``."""

    layer: int
    hops: tuple[float, ...]  # one for each of `Model.hop_names`
    from_h0: float
    own_map: float = 0.0  # from the layer before through the node's own map, where there is one
    shift: float = 0.0  # what the layer's shift adds


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
    hop_names: tuple[str, ...]  # of the layers' hops
    bias_layers: float = 0.0  # what the shifts of all layers add


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
    hops = distances(all_links(network.matrices), [position], network.total_hops)[:, 0]
    reached = np.flatnonzero(hops >= 0)
    transposes = [sp.csr_array(matrix[reached][:, reached].T) for matrix in network.matrices]
    flows, parts, bias_in = _backwards(network, transposes, reached, position, target)
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
        hop_names=model.hop_names(),
        bias_layers=sum(flow.shift for flow in flows),
    )


def _position(graph: Graph, node: object) -> int:
    found = np.flatnonzero(graph.node_ids.astype(str) == str(node))
    if len(found) == 0:
        first, last = graph.node_ids[0], graph.node_ids[-1]
        raise InputError(f"There is no node '{node}' in {graph.name}; its first is '{first}', its last '{last}'.")
    return int(found[0])


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer as arrays; with ``inverse`` all but its shift is scaled row by row."""

    coeffs: np.ndarray  # [operators, hops]
    maps: list[np.ndarray]  # P of each operator
    residual: np.ndarray  # Q
    own: np.ndarray | None  # E
    shift: np.ndarray | None  # b
    inverse: np.ndarray | None  # of the deviation of each node's row, with layer normalisation

    @classmethod
    def frozen(cls, view: LayerView, coeffs: np.ndarray, matrices: list[sp.csr_array], h: np.ndarray) -> _Layer:
        """The layer at what it did with ``h``."""
        maps = [item.numpy() for item in view.operator_maps().values()]
        own, shift = (None if item is None else item.numpy() for item in (view.own, view.shift))
        layer = cls(coeffs, maps, view.residual_map().numpy(), own, shift, None)
        if view.row_norm is None:
            return layer
        inverse = 1 / np.sqrt(layer.sum_of_maps(h, matrices).var(1) + NORM_EPSILON)
        # To take away each row's mean is a map, too.
        centred = (np.eye(h.shape[1]) - 1 / h.shape[1]) * view.row_norm.numpy()
        own = None if own is None else own @ centred
        return replace(layer, maps=[item @ centred for item in maps], own=own, inverse=inverse)

    def sum_of_maps(self, h: np.ndarray, matrices: list[sp.csr_array]) -> np.ndarray:
        """What the operators and the own map make of ``h``."""
        total = np.zeros_like(h) if self.own is None else h @ self.own
        for coeffs, weight, matrix in zip(self.coeffs, self.maps, matrices, strict=True):
            power = h
            for hop, coefficient in enumerate(coeffs):
                power = matrix @ power if hop else power
                total = total + coefficient * power @ weight
        return total


@dataclass(frozen=True, eq=False)
class _Network:
    """A network in float64 and all that it computed for a graph."""

    layers: list[_Layer]
    matrices: list[sp.csr_array]  # of the operators
    total_hops: int
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
        operators = exact.operators(graph, direction, self_loops, torch.float64)
        matrices = [to_scipy(item.matrix) for item in operators.values()]
        lin_in, lin_out = exact.outer_maps()
        mapped = linear(features(graph.x, torch.float64), lin_in.weight, torch.zeros_like(lin_in.bias))
        structure = exact.prepare(graph, **operators)
        hidden = [h.numpy() for h in exact.hidden_matrices((mapped + lin_in.bias).relu(), structure)]
        views, by_operator = exact.layer_views(), coeffs.view(len(coeffs), len(operators), -1).numpy()
        return cls(
            layers=[
                _Layer.frozen(view, own, matrices, h)
                for view, own, h in zip(views, by_operator, hidden[:-1], strict=True)
            ],
            matrices=matrices,
            total_hops=total_hops(coeffs.numpy(), [view.alpha for view in views], len(operators), views[0].own is None),
            from_features=(mapped.numpy() * (hidden[0] > 0)),
            hidden=hidden,
            weight_out=lin_out.weight.numpy(),
            bias_out=lin_out.bias.numpy(),
            logits=lin_out(torch.from_numpy(hidden[-1])),
        )


def _backwards(
    network: _Network, transposes: list[sp.csr_array], reached: np.ndarray, position: int, target: int
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
    for number, layer in reversed([*enumerate(network.layers)]):
        through = np.zeros_like(layer.coeffs)
        from_h0 = own_map = shift = 0.0
        below: dict[int, np.ndarray] = {}
        for taken, above in gradients.items():
            masked = above * (hidden[number + 1] > 0)
            if layer.shift is not None:
                shift += float((masked * layer.shift).sum())
            if layer.inverse is not None:
                masked *= layer.inverse[reached, None]
            to_h0 = masked @ layer.residual.T
            parts[taken] += (to_h0 * from_features).sum(1)
            bias_in += float((to_h0 * from_bias).sum())
            from_h0 += float((to_h0 * hidden[0]).sum())
            if layer.own is not None:
                to_own = masked @ layer.own.T
                own_map += float((to_own * hidden[number]).sum())
                _add(below, taken, to_own)
            for which, (weight, transpose) in enumerate(zip(layer.maps, transposes, strict=True)):
                power = masked @ weight.T
                for hop, mu in enumerate(np.trim_zeros(layer.coeffs[which], "b")):
                    power = transpose @ power if hop else power
                    if mu != 0:
                        through[which, hop] += mu * (power * hidden[number]).sum()
                        _add(below, min(taken + hop, MOST_HOPS), mu * power)
        flows.insert(0, LayerFlow(number + 1, tuple(through.ravel().tolist()), from_h0, own_map, shift))
        gradients = below
    for taken, above in gradients.items():
        parts[taken] += (above * from_features).sum(1)
        bias_in += float((above * from_bias).sum())
    return flows, parts, bias_in


def _add(found: dict[int, np.ndarray], key: int, part: np.ndarray) -> None:
    found[key] = found[key] + part if key in found else part


def all_links(matrices: Sequence[sp.csr_array]) -> sp.csr_array:
    """A matrix that is not 0 where any of these is not; the only one as it is."""
    first, *others = matrices
    return sum((abs(item) for item in others), abs(first)) if others else first


def farthest_hop(coeffs: np.ndarray, num_operators: int = 1) -> int:
    """The last hop of any operator whose coefficient is not 0; 0 where there is none."""
    used = np.flatnonzero(coeffs.reshape(num_operators, -1).any(0))
    return int(used[-1]) if len(used) else 0


def total_hops(coeffs: np.ndarray, alphas: Sequence[float], num_operators: int = 1, by_hops_alone: bool = True) -> int:
    """The most hops that a path through all layers takes; ``alpha`` 1 cuts off all below.

    So does a layer with no coefficient but 0 if nodes pass on what they have ``by_hops_alone``, without own maps.
    """
    total = 0
    for mu, alpha in zip(coeffs[::-1], alphas[::-1], strict=True):
        if alpha == 1.0 or (by_hops_alone and not mu.any()):
            break
        total += farthest_hop(mu, num_operators)
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
