r"""A trained network of `AdaGPR` or `AdaGPRSigned` layers reduced to what it still computes.

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

A signed layer is :math:`H_l = \mathrm{relu}(\mathrm{norm}(\sum_A (\sum_k c_{Ak} A^k H_{l-1}) P_A + H_{l-1} E) + b)`:

- A batch normalisation is in the maps and the shift; a layer normalisation remains to be computed.
- An operator of which no hop but hop 0 is used is not needed: :math:`c_{A0} P_A` is added to :math:`E`.
- Where there is such a map of the node itself, hop 0 of the other operators joins it, too.

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

    Features count as dense and self loops as entries; biases, norms and activations do not count.
    ``parameters`` are the numbers that are stored.
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
        is_signed = model.capabilities.signed
        return Exported(
            replace(about, divides_rows=scaling.kind == "rows"),
            [
                _signed_layer(view, dtype) if is_signed else _layer(view, view.number == first, dtype)
                for view in views
                if view.number >= first
            ],
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
    reads_hops = view.alpha < 1.0 and any(coeffs.any() for coeffs in view.coefficients.values())
    return view.own is None and not reads_hops


def _layer(view: LayerView, is_first: bool, dtype: torch.dtype) -> PrunedLayer:
    hops = [(1 - view.alpha) * value for value in view.coefficients[EDGES].double().tolist()]
    residual, weight, weight_0 = _maps(view)
    if is_first:
        hops, residual = [hops[0] + residual, *hops[1:]], 0.0
        if weight_0 is not None and not any(hops[1:]):
            hops, weight, weight_0 = [1.0], hops[0] * weight + weight_0, None
    hops, residual, weight = _scaled(hops, weight, residual)
    own = None if weight_0 is None else _kept(weight_0, dtype)
    return PrunedLayer(view.number, tuple(hops), residual, _kept(weight, dtype), own)


def _signed_layer(view: LayerView, dtype: torch.dtype) -> PrunedLayer:
    hops = {name: coeffs.double().tolist() for name, coeffs in view.coefficients.items()}
    maps = {name: weight.double() for name, weight in view.operator_maps().items()}
    own = None if view.own is None else view.own.double()
    # Those of hop 0 alone come first: they make the map that hop 0 of the others can join.
    for name in sorted(hops, key=lambda name: any(hops[name][1:])):
        if hops[name][0] and (own is not None or not any(hops[name][1:])):
            joined = hops[name][0] * maps[name]
            own, hops[name][0] = joined if own is None else own + joined, 0.0
    sums = {name: _scaled(values, maps[name]) for name, values in hops.items() if any(values)}
    if EDGES not in sums:
        # The map of the node itself is that of hop 0 of the first operator, whose other hops are not used.
        sums[EDGES], own = ([1.0], 0.0, maps[EDGES] * 0.0 if own is None else own), None
    (forward, _, weight), backward = sums.pop(EDGES), next(iter(sums.values()), None)
    return PrunedLayer(
        view.number,
        tuple(forward),
        0.0,
        _kept(weight, dtype),
        backward_hops=() if backward is None else tuple(backward[0]),
        weight_backward=None if backward is None else _kept(backward[2], dtype),
        weight_own=None if own is None else _kept(own, dtype),
        shift=None if view.shift is None else _kept(view.shift, dtype),
        row_norm=None if view.row_norm is None else _kept(view.row_norm, dtype),
    )


def _scaled(hops: list[float], weight: Tensor, residual: float = 0.0) -> tuple[list[float], float, Tensor]:
    """Hops without zeros at the end, and the residual, divided by the largest of them; the map times the largest."""
    hops = np.trim_zeros(hops, "b") or [0.0]
    largest = max([*hops, residual], key=abs)
    if largest == 0:
        return [1.0], 0.0, weight * 0.0
    return [value / largest for value in hops], residual / largest, weight * largest


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
        num_coeffs = sum(map(len, view.coefficients.values()))
        has_residual = view.weight_maps == "shared" and not model.capabilities.signed
        per_node += (num_coeffs + has_residual) * width + view.weight.numel()
        per_node += 0 if view.own is None else view.own.numel()
        products += num_coeffs - len(view.coefficients)
    return Cost(products, per_node, products * width, sum(item.numel() for item in model.parameters()))


def cost_pruned(network: Exported) -> Cost:
    """The cost of what is left; a coefficient of 0 or 1 multiplies nothing, and the only part of a sum is not added."""
    width = network.sizes[1]
    per_node = network.weight_in.numel() + network.weight_out.numel()
    numbers = 0
    for layer in network.layers:
        for parts in ((*layer.hops, layer.residual), layer.backward_hops):
            shares = [value for value in parts if value]
            # A sparse product adds its result to what is there already: every part but the largest is a multiply-add.
            per_node += max(len(shares) - 1, 0) * width
            numbers += len(shares)
        per_node += sum(item.numel() for item in layer.buffers() if item.dim() == 2)
    products = sum(layer.num_products for layer in network.layers)
    stored = sum(item.numel() for item in network.buffers())
    return Cost(products, per_node, products * width, stored + numbers)
