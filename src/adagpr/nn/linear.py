"""An ordinary linear map with bias whose input may be sparse."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from adagpr.ops import Features, linear

__all__ = ["Linear"]


class Linear(nn.Module):
    """``x @ weight.T + bias``; both start uniform in ``+-1/sqrt(in_channels)``, as `torch.nn.Linear` does."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws weights and biases anew."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, x: Features) -> Tensor:
        """Maps the rows of ``x``."""
        return linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"
