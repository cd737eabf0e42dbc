"""GCNII (Chen et al., 2020): AdaGPR whose coefficients are fixed at hop 1, with nothing to learn about hops.

``weight_maps="separate"`` is GCNII* as its authors' code computes it, ``"separate-scaled"`` as torch_geometric does.
"""

from __future__ import annotations

from adagpr.arguments import Count, Depth, Fraction, Positive, Rate, checked
from adagpr.nn.adagpr import AdaGPR
from adagpr.ops import WeightMaps


class GCNII(AdaGPR):
    """Deep residual graph network with one hop per layer.

    Its arguments are those of `AdaGPR` that do not concern the coefficients.

    Example:
        >>> GCNII(8, 16, 3, num_layers=2).coefficients().tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """

    name = "gcnii"
    paper = "Chen et al., 2020"
    good_for = "deep networks of one hop per layer that do not smooth away"
    hop_0 = {}  # noqa: RUF012

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 8,
        alpha: Fraction | list[Fraction] = 0.1,
        theta: Positive = 0.5,
        dropout: Rate = 0.5,
        weight_maps: WeightMaps = "shared",
        drop_edge: Rate = 0.0,
        pair_norm: Positive | None = None,
    ) -> None:
        common = (in_channels, hidden_channels, out_channels, num_layers, 2, alpha, theta, dropout)
        super().__init__(*common, "fixed", [0.0, 1.0], weight_maps, drop_edge, pair_norm)
