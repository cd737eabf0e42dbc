"""A multilayer perceptron: what the features say without a graph."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from adagpr.arguments import Count, Depth, Rate, checked
from adagpr.nn.model import Linear, Model
from adagpr.ops import Features


class MLP(Model):
    """Linear maps with relu between them and dropout before each.

    Args:
        num_layers: Number of linear maps; 1 is logistic regression.
        dropout: Probability of dropping an element.
    """

    name = "mlp"
    paper = ""
    good_for = "what features say without the graph"
    groups: ClassVar[tuple[tuple[str, str], ...]] = (("*", "linears"),)

    @checked
    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Count,
        out_channels: Count,
        num_layers: Depth = 2,
        dropout: Rate = 0.5,
    ) -> None:
        super().__init__(dropout)
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.linears = nn.ModuleList(Linear(widths[i], widths[i + 1]) for i in range(num_layers))

    def forward(self, x: Features, structure: Any = None) -> Tensor:
        """Logits of all nodes; ``structure`` is not used."""
        return self.chain(self.linears, x)
