"""An ordinary linear map with bias whose input may be sparse."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from adagpr.ops import Features, linear


class Linear(nn.Module):
    """``x @ weight.T + bias``; both start uniform in ``+-1/sqrt(in_channels)``, as `torch.nn.Linear` does.

    With ``along_outputs`` the weight, whose shape stays that of `torch.nn.Linear`'s, is stored along the outputs: a
    product with sparse features then reads it in order, without a transposed copy at every step.
    """

    def __init__(self, in_channels: int, out_channels: int, along_outputs: bool = False) -> None:
        super().__init__()
        shape = (in_channels, out_channels) if along_outputs else (out_channels, in_channels)
        weight = torch.empty(shape)
        self.weight = nn.Parameter(weight.t() if along_outputs else weight)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws weights and biases anew."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        for parameter in (self.weight, self.bias):
            # Drawn in the order of the shape, whatever the layout: the numbers are those of every record.
            drawn = torch.empty(parameter.shape, dtype=parameter.dtype).uniform_(-bound, bound, generator=generator)
            with torch.no_grad():
                parameter.copy_(drawn)

    def forward(self, x: Features) -> Tensor:
        """Maps the rows of ``x``."""
        return linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"
