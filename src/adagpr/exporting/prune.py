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
- Columns that were shifted and multiplied for training are so by the input map; rows that were divided by their sums
  still are.

ReLU is between any two layers, so no weights of different layers can be joined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.exporting.module import About, Exported, PrunedLayer
from adagpr.nn import EDGES, LayerView, Linear, Model
from adagpr.ops import UNSCALED, FeatureScaling, map_shapes


@dataclass(frozen=True)
class Cost:
    """What one pass takes: products with the operator, multiply-adds per node outside of them, and per entry in them.

    Features count as dense and self loops as entries; ``parameters`` are the numbers that are stored.
    """

    sparse_products: int
    per_node: int
    per_edge: int
    parameters: int

    def total(self, num_nodes: int, num_entries: int) -> int:
        """Multiply-adds of a pass over a graph of that many nodes and entries of the operator."""
        return self.per_node * num_nodes + self.per_edge * num_entries


def prune(model: Model, about: About, scaling: FeatureScaling = UNSCALED) -> Exported:
    """Reduces a trained network; the result is in the model's precision, folded in float64.

    It takes features as they come, before the ``scaling`` that ``model`` was trained with.
    All three kinds of weight maps are supported. DropEdge is for training only and leaves no trace.

    Raises:
        InputError: The network has PairNorm between its layers, which reads all nodes at once.

    Example:
        >>> from adagpr.nn import AdaGPR
        >>> model = AdaGPR(8, 16, 3, num_layers=2, num_coeffs=2, projection="fixed", fixed_coeffs=[1.0, 0.0])
        >>> about = About("adagpr", ("a", "b", "c"), "directed", True, ((1.0, 0.0),) * 2, (0.1, 0.1), "")
        >>> prune(model, about).needs_graph
        False
    """
    if model.pair_norm is not None:
        raise InputError("A network with PairNorm cannot be exported: it reads all nodes at once between its layers.")
    with torch.no_grad():
        lin_in, lin_out = model.outer_maps()
        dtype = lin_in.weight.dtype
        views = model.layer_views()
        weight_in, bias_in = _with_scaling(lin_in, scaling)
        first = max((view.number for view in views if _reads_first_only(view)), default=1)
        return Exported(
            replace(about, divides_rows=scaling.kind == "rows"),
            [_layer(view, view.number == first, dtype) for view in views if view.number >= first],
            weight_in=_kept(weight_in, dtype),
            bias_in=_kept(bias_in, dtype),
            weight_out=_kept(lin_out.weight.t(), dtype),
            bias_out=_kept(lin_out.bias, dtype),
        )


def _with_scaling(lin_in: Linear, scaling: FeatureScaling) -> tuple[Tensor, Tensor]:
    """Weight, ``[in, out]``, and bias of the input map for features whose columns are not scaled yet, in float64."""
    weight, bias = lin_in.weight.t().double(), lin_in.bias.double()
    if scaling.shift is None or scaling.factor is None:
        return weight, bias
    weight = weight * scaling.factor.unsqueeze(1)
    return weight, bias - scaling.shift @ weight


def _reads_first_only(view: LayerView) -> bool:
    return view.alpha == 1.0 or not view.coefficients[EDGES].any()


def _layer(view: LayerView, is_first: bool, dtype: torch.dtype) -> PrunedLayer:
    hops = [(1 - view.alpha) * value for value in view.coefficients[EDGES].double().tolist()]
    residual, weight, weight_0 = _maps(view)
    if is_first:
        hops, residual = [hops[0] + residual, *hops[1:]], 0.0
        if weight_0 is not None and not any(hops[1:]):
            hops, weight, weight_0 = [1.0], hops[0] * weight + weight_0, None
    hops = np.trim_zeros(hops, "b") or [0.0]
    largest = max([*hops, residual], key=abs)
    if largest == 0:
        hops, residual, weight = [1.0], 0.0, weight * 0.0
    else:
        hops, residual, weight = [value / largest for value in hops], residual / largest, weight * largest
    own = None if weight_0 is None else _kept(weight_0, dtype)
    return PrunedLayer(view.number, tuple(hops), residual, _kept(weight, dtype), own)


def _maps(view: LayerView) -> tuple[float, Tensor, Tensor | None]:
    """The share of ``h_0`` that joins the sum, the map of the sum, and that of ``h_0`` alone, in float64."""
    weight = view.weight.double()
    eye = torch.eye(weight.shape[1], dtype=torch.float64, device=weight.device)
    shapes = map_shapes(view.weight_maps, view.alpha, view.beta)
    parts = zip(weight.chunk(len(shapes)), shapes, strict=True)
    sums, *own = (identity * eye + factor * part for part, (identity, factor) in parts)
    return 0.0 if own else view.alpha, sums, own[0] if own and own[0].any() else None


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


def cost_pruned(network: Exported) -> Cost:
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
    stored = sum(item.numel() for item in network.buffers())
    return Cost(products, per_node, products * width, stored + numbers)
