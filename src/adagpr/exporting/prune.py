r"""A trained network of `AdaGPR` layers reduced to what it still computes.

A layer of the trained network is :math:`H_l = \mathrm{relu}((\sum_k c_k \tilde A^k H_{l-1}) P + H_0 Q)`, where
:math:`c_k = (1 - \alpha) \mu_k` are numbers once training is over. What is left of it:

- Hops after the last coefficient that is not 0 are not computed. With that coefficient at hop 0, or with
  :math:`\alpha = 1`, a layer has no sparse product.
- A layer that does not read the layer before it (:math:`\alpha = 1`, or no coefficient but 0) reads :math:`H_0` alone:
  all layers below it are left out.
- The first layer that is left reads :math:`H_0` both ways: its residual joins hop 0, and without a graph both of its
  weight maps are one.
- With one weight map, :math:`P = M` and :math:`Q = \alpha M` with :math:`M = (1 - \beta) I + \beta W`, the residual is
  added before the product, so that there is one product; with two maps there are two.
- The largest coefficient of a layer goes into its weight map, which saves a multiplication. The others are divided by
  it, so that none of them grows.

ReLU is between any two layers, so no weights of different layers can be joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.nn import EDGES, LayerView, Model


@dataclass(frozen=True, eq=False)
class PrunedLayer:
    r"""One layer, :math:`\mathrm{relu}((\sum_k hops_k \tilde A^k H + residual H_0)\, weight + H_0\, weight_0)`.

    Attributes:
        number: Which layer of the trained network it is, counted from 1.
        hops: The coefficient of each hop up to the last that is not 0.
        residual: The share of :math:`H_0` in the sum.
        weight: The map of the sum, ``[hidden_channels, hidden_channels]``.
        weight_0: A map of its own for :math:`H_0`, where there is one.
    """

    number: int
    hops: tuple[float, ...]
    residual: float
    weight: Tensor
    weight_0: Tensor | None = None

    @property
    def num_products(self) -> int:
        """Sparse products that the layer takes."""
        return len(self.hops) - 1


@dataclass(frozen=True, eq=False)
class Pruned:
    """What is left of a network: its layers between an input and an output map.

    Attributes:
        weight_in: The input map, ``[in_channels, hidden_channels]``.
        bias_in: Its bias.
        layers: The layers that are left, first to last; the first one reads what the input map gives.
        weight_out: The output map, ``[hidden_channels, out_channels]``.
        bias_out: Its bias.
    """

    weight_in: Tensor
    bias_in: Tensor
    layers: tuple[PrunedLayer, ...]
    weight_out: Tensor
    bias_out: Tensor

    @property
    def needs_graph(self) -> bool:
        """Whether any layer takes a sparse product."""
        return any(layer.num_products for layer in self.layers)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of features, of hidden channels and of classes."""
        return self.weight_in.shape[0], self.weight_in.shape[1], self.weight_out.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """All weights by name."""
        named = {"weight_in": self.weight_in, "bias_in": self.bias_in}
        for place, layer in enumerate(self.layers):
            named[f"layers.{place}.weight"] = layer.weight
            if layer.weight_0 is not None:
                named[f"layers.{place}.weight_0"] = layer.weight_0
        return {**named, "weight_out": self.weight_out, "bias_out": self.bias_out}


@dataclass(frozen=True)
class Cost:
    """What one pass takes.

    Attributes:
        sparse_products: Products of the operator with a hidden matrix.
        per_node: Multiply-adds per node outside of these products; features count as dense.
        per_edge: Multiply-adds per entry of the operator, self loops among them.
        parameters: Numbers that are stored.
    """

    sparse_products: int
    per_node: int
    per_edge: int
    parameters: int

    def total(self, num_nodes: int, num_entries: int) -> int:
        """Multiply-adds of a pass over a graph of that many nodes and entries of the operator."""
        return self.per_node * num_nodes + self.per_edge * num_entries


def prune(model: Model) -> Pruned:
    """Reduces a trained network; the result is in the model's precision, folded in float64.

    All three kinds of weight maps are supported. DropEdge is for training only and leaves no trace.

    Args:
        model: The network. It is not changed.

    Raises:
        InputError: The network has PairNorm between its layers, which reads all nodes at once.

    Example:
        >>> from adagpr.nn import AdaGPR
        >>> model = AdaGPR(8, 16, 3, num_layers=2, num_coeffs=3, projection="fixed", fixed_coeffs=[1.0, 0.0, 0.0])
        >>> prune(model).needs_graph
        False
    """
    if model.pair_norm is not None:
        raise InputError("A network with PairNorm cannot be exported: it reads all nodes at once between its layers.")
    with torch.no_grad():
        lin_in, lin_out = model.outer_maps()
        dtype = lin_in.weight.dtype
        views = model.layer_views()
        first = max((view.number for view in views if _reads_first_only(view)), default=1)
        layers = [_layer(view, view.number == first, dtype) for view in views if view.number >= first]
        return Pruned(
            weight_in=_kept(lin_in.weight.t(), dtype),
            bias_in=_kept(lin_in.bias, dtype),
            layers=tuple(layers),
            weight_out=_kept(lin_out.weight.t(), dtype),
            bias_out=_kept(lin_out.bias, dtype),
        )


def _reads_first_only(view: LayerView) -> bool:
    return view.alpha == 1.0 or not view.coefficients[EDGES].any()


def _layer(view: LayerView, is_first: bool, dtype: torch.dtype) -> PrunedLayer:
    hops = [(1 - view.alpha) * value for value in view.coefficients[EDGES].double().tolist()]
    residual, weight, weight_0 = _maps(view)
    if is_first:
        hops, residual = [hops[0] + residual, *hops[1:]], 0.0
        if weight_0 is not None and not any(hops[1:]):
            hops, weight, weight_0 = [1.0], hops[0] * weight + weight_0, None
    hops = _without_tail(hops)
    largest = max([*hops, residual], key=abs)
    if largest == 0:
        hops, residual, weight = [1.0], 0.0, weight * 0.0
    else:
        hops, residual, weight = [value / largest for value in hops], residual / largest, weight * largest
    own = None if weight_0 is None else _kept(weight_0, dtype)
    return PrunedLayer(view.number, tuple(hops), residual, _kept(weight, dtype), own)


def _maps(view: LayerView) -> tuple[float, Tensor, Tensor | None]:
    """The share of ``h_0`` that joins the sum, the map of the sum, and that of ``h_0`` alone, in float64."""
    alpha, beta = view.alpha, view.beta
    weight = view.weight.double()
    eye = torch.eye(weight.shape[1], dtype=torch.float64, device=weight.device)
    if view.weight_maps == "shared":
        return alpha, (1 - beta) * eye + beta * weight, None
    upper, lower = weight.chunk(2)
    # As in `AdaGPRConv`: the graph's half of the authors' form carries no 1 - alpha, which the hops have here.
    scale, scale_0 = (1.0, alpha) if view.weight_maps == "separate-scaled" else (1 / (1 - alpha), 1.0)
    own = (1 - beta) * alpha * eye + beta * scale_0 * lower
    return 0.0, (1 - beta) * eye + beta * scale * upper, own if own.any() else None


def _without_tail(hops: Sequence[float]) -> list[float]:
    last = max((hop for hop, value in enumerate(hops) if value), default=0)
    return list(hops[: last + 1])


def _kept(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A contiguous copy on the CPU."""
    return torch.empty(weight.shape, dtype=dtype).copy_(weight.detach())


def cost_as_trained(model: Model) -> Cost:
    """The cost of the network as it was built: every hop of every layer, whatever its coefficient.

    `adagpr` itself leaves out hops at the end of a layer whose coefficient is 0 where the projection can give zeros.
    """
    lin_in, lin_out = model.outer_maps()
    width = lin_in.weight.shape[0]
    per_node, products = lin_in.weight.numel() + lin_out.weight.numel(), 0
    for view in model.layer_views():
        num_coeffs = len(view.coefficients[EDGES])
        per_node += (num_coeffs + (view.weight_maps == "shared")) * width + view.weight.numel()
        products += num_coeffs - 1
    return Cost(products, per_node, products * width, sum(item.numel() for item in model.parameters()))


def cost_pruned(network: Pruned) -> Cost:
    """The cost of what is left; a coefficient of 0 or 1 multiplies nothing, and the only part of a sum is not added."""
    width = network.sizes[1]
    per_node = network.weight_in.numel() + network.weight_out.numel()
    numbers = 0
    for layer in network.layers:
        shares = [value for value in (*layer.hops, layer.residual) if value]
        # A sparse product adds its result to what is there already, so every part but the largest is a multiply-add.
        per_node += (len(shares) - 1) * width + layer.weight.numel()
        per_node += 0 if layer.weight_0 is None else layer.weight_0.numel()
        numbers += len(shares)
    products = sum(layer.num_products for layer in network.layers)
    stored = sum(item.numel() for item in network.tensors().values())
    return Cost(products, per_node, products * width, stored + numbers)
