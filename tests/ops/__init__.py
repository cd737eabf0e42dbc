"""What the tests of tensor maths share."""

from __future__ import annotations

import numpy as np
import torch

from adagpr.ops.dropout import MaskSource


def keep_mask(shape: tuple[int, ...], rate: float, generator: np.random.Generator) -> tuple[np.ndarray, float]:
    """The mask that is drawn for a tensor of some shape, and the factor that what is kept is multiplied by."""
    masks = MaskSource(rate, [generator])
    return masks.draw(torch.empty(shape)).numpy(), masks.scale
