r"""PairNorm (Zhao and Akoglu, 2020): keeps the mean squared distance between nodes from shrinking with depth.

.. math:: \hat x_i = x_i - \bar x, \qquad x_i' = s \, \hat x_i / \sqrt{\tfrac{1}{N} \sum_j |\hat x_j|^2 + \epsilon}
"""

from __future__ import annotations

from torch import Tensor

_EPSILON = 1e-5


def pair_norm(x: Tensor, scale: float) -> Tensor:
    """Centres the rows of ``x`` and gives them the mean squared length ``scale ** 2``; couples all nodes."""
    centred = x - x.mean(0)
    return scale * centred / (centred.square().sum(1).mean() + _EPSILON).sqrt()
