r"""The constants of a normalisation, one of each for every column of every block of rows.

Batch normalisation, none, and batch normalisation by given moments are one map of every element,
``factor * (z - centre) + shift``; layer normalisation has centre and deviation of each row instead, and from here only
``factor`` and ``shift``. With ``g`` the gradient of the result, the gradient of ``z`` is ``factor * g``, and where the
moments are those of ``z`` itself

.. math:: \mathrm{factor} \cdot \bigl( g - \overline{g} - \hat z \, \overline{g \hat z} \bigr), \qquad
          \hat z = \mathrm{inverse} \cdot (z - \mathrm{centre})

Sums and what follows from them are float64. The kernels in ``kernels/norms.h`` compute the same numbers in the same
order, and no product is added to anything, so that both have the same bits.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

Norm = Literal["batch", "layer", "none"]

# Under the root, as torch's normalisations have it.
EPSILON = 1e-5
# Which constant is in which row; the last two are those of the gradient. `kernels/norms.h` has the same order.
CENTRE, INVERSE, FACTOR, SHIFT, PULL, PUSH = range(6)
NUM_CONSTANTS = 6

TOO_FEW_ROWS = "Batch normalisation needs two nodes or more, got 1; use norm 'layer'."


def norm_constants(moments: Tensor | None, scale: Tensor | None, shift: Tensor, times: float) -> Tensor:
    """The constants of blocks, ``[blocks, NUM_CONSTANTS, columns]``, like ``shift``, which is ``[blocks, columns]``.

    ``moments`` are mean and variance, ``[blocks, 2, columns]``, for batch normalisation alone; ``times`` multiplies the
    result, which ReLU and dropout leave in front.
    """
    found = torch.zeros(len(shift), NUM_CONSTANTS, shift.shape[1], dtype=torch.float64, device=shift.device)
    found[:, FACTOR] = times if scale is None else times * scale.double()
    found[:, SHIFT] = times * shift.double()
    if moments is not None:
        found[:, CENTRE] = moments[:, 0]
        # NumPy's root is the nearest number, as the processor gives it; torch's may be the one beside.
        deviations = np.sqrt(moments[:, 1].double().cpu().numpy() + EPSILON)
        found[:, INVERSE] = torch.from_numpy(1.0 / deviations).to(found)
        found[:, FACTOR] *= found[:, INVERSE]
    return found.to(shift)


def with_gradient(constants: Tensor, sums: Tensor, num_rows: float) -> Tensor:
    """The constants with those of the gradient, for moments that are of the matrix itself.

    ``sums`` are those of the gradient and of its products with what was normalised, ``[blocks, 2, columns]``.
    """
    means, factor = sums / num_rows, constants[:, FACTOR].double()
    found = constants.clone()
    found[:, PULL] = -(factor * constants[:, INVERSE].double()) * means[:, 1]
    found[:, PUSH] = -factor * means[:, 0]
    return found
