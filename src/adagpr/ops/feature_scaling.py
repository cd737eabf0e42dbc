r"""Features brought to one scale, by what is known of the features alone.

- ``"rows"`` divides each row by its sum of absolute values, :math:`x_{ij} / \sum_k |x_{ik}|`; rows of zeros stay. What
  a node looks like then counts, and how much is known of it does not.
- ``"standardise"`` is :math:`(x_{ij} - m_j) / s_j` with mean and standard deviation of the column, 0 where it is
  constant. Features that are stored sparse stay so where that saves memory: they are divided by the standard deviation,
  and no mean is taken off. That differs from the dense form by the same row at every node.
- ``"auto"`` is one of the two or neither; see `FeatureStatistics.suggested`.

Means, deviations and the choice come from `FeatureStatistics`, which are computed block by block in float64 and can be
merged over the parts of a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.ops.linear import Features, SparseFeatures

# What a user may ask for, and what is done to the features in the end.
ScalingOption = Literal["rows", "standardise", "auto"] | None
ScalingKind = Literal["none", "rows", "standardise"]

# Numbers of a dense matrix that are held in float64 at the same time.
_BLOCK = 2**22
# Rows with a smaller sum of absolute values are divided by this, so that nothing overflows.
LEAST_SUM = torch.finfo(torch.float32).tiny

# Above this share of values that are not 0, a sparse matrix with its transpose is larger than a dense one.
_DENSE_SHARE = 0.2

# The rule of "auto"; `benchmarks/feature_scaling.py` measures both sides of it.
_SMALLEST_COLUMN, _LARGEST_COLUMN = 0.05, 4.0
_MOST_UNEQUAL = 100.0
_SMALLEST_ROW = 0.2
_LARGEST_MEAN = 100.0


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """What a scaling is fitted to: how many rows there are, and figures of each column in float64.

    Attributes:
        num_rows: Number of rows.
        is_sparse: Whether the features are stored sparse.
        mean: Mean of each column.
        squared_deviations: Sum of squared deviations from the mean.
        low: Smallest value.
        high: Largest value.
        num_values: Number of values that are not 0.
    """

    num_rows: int
    is_sparse: bool
    mean: np.ndarray
    squared_deviations: np.ndarray
    low: np.ndarray
    high: np.ndarray
    num_values: np.ndarray

    @classmethod
    def of(cls, x: Tensor | sp.csr_array) -> FeatureStatistics:
        """The statistics of features."""
        if isinstance(x, sp.csr_array):
            return _of_sparse(x)
        return reduce(cls.merged, map(_of_dense, _blocks(x)))

    def merged(self, other: FeatureStatistics) -> FeatureStatistics:
        """The statistics of the rows of both."""
        num_rows = self.num_rows + other.num_rows
        apart = other.mean - self.mean
        between = apart**2 * (self.num_rows * other.num_rows / num_rows)
        return FeatureStatistics(
            num_rows,
            self.is_sparse,
            self.mean + apart * (other.num_rows / num_rows),
            self.squared_deviations + other.squared_deviations + between,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.num_values + other.num_values,
        )

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of each column; exactly 0 where it is constant, whatever rounding says."""
        return np.where(self.low < self.high, np.sqrt(self.squared_deviations / self.num_rows), 0.0)

    @property
    def takes_mean(self) -> bool:
        """Whether ``"standardise"`` takes the mean off each column, which makes features dense."""
        return not self.is_sparse or bool(self.num_values.sum() > _DENSE_SHARE * self.num_rows * len(self.mean))

    def suggested(self) -> ScalingKind:
        r"""What ``"auto"`` does.

        The size of a column is the root mean square of its values that are not 0: rare words are not small numbers.
        Dense columns are standardised where the largest is far from 1 or far above the smallest. Sparse ones are where
        it is both large and far above the smallest, because rows of words differ in length; where all are small, rows
        are divided.

        A first step of Adam at rate :math:`\eta` moves every hidden value by :math:`\eta \sum_j |m_j|`, at all nodes
        alike. Where that is a lot, the means are taken off; where that would take too much memory, rows are divided.
        """
        used = self.num_values > 0
        if not used.any():
            return "none"
        squares = self.squared_deviations + self.num_rows * self.mean**2
        sizes = np.sqrt(squares[used] / self.num_values[used])
        is_large, is_unequal = sizes.max() > _LARGEST_COLUMN, sizes.max() > _MOST_UNEQUAL * sizes.min()
        if self.is_sparse:
            if is_large and is_unequal:
                return "standardise"
            if sizes @ self.num_values[used] < _SMALLEST_ROW * self.num_rows:
                return "rows"
        elif is_large or is_unequal or sizes.max() < _SMALLEST_COLUMN:
            return "standardise"
        if np.abs(self.mean).sum() <= _LARGEST_MEAN:
            return "none"
        return "standardise" if self.takes_mean else "rows"


def _of_dense(x: Tensor) -> FeatureStatistics:
    values = x.double().numpy()
    mean = values.mean(0)
    squared_deviations = ((values - mean) ** 2).sum(0)
    num_values = np.count_nonzero(values, axis=0)
    return FeatureStatistics(len(x), False, mean, squared_deviations, values.min(0), values.max(0), num_values)


def _of_sparse(x: sp.csr_array) -> FeatureStatistics:
    num_rows, num_columns = x.shape
    values, columns = x.data.astype(np.float64), x.indices
    stored = np.bincount(columns, minlength=num_columns)
    mean = np.bincount(columns, values, num_columns) / num_rows
    deviations = np.bincount(columns, (values - mean[columns]) ** 2, num_columns)
    # Where a row lacks the column there is a 0.
    lacking = num_rows - stored
    low, high = np.where(lacking > 0, 0.0, np.inf), np.where(lacking > 0, 0.0, -np.inf)
    np.minimum.at(low, columns, values)
    np.maximum.at(high, columns, values)
    num_values = np.bincount(columns[values != 0], minlength=num_columns)
    return FeatureStatistics(num_rows, True, mean, deviations + lacking * mean**2, low, high, num_values)


def _blocks(x: Tensor) -> tuple[Tensor, ...]:
    return torch.split(x, max(1, _BLOCK // x.shape[1]))


@dataclass(frozen=True, eq=False)
class FeatureScaling:
    """A scaling as it was fitted, to be applied to any rows with the same columns.

    ``shift`` and ``factor`` of ``"standardise"`` are float64 and one per column: what is taken off, 0 where no mean is,
    and what the difference is multiplied by.
    """

    kind: ScalingKind = "none"
    shift: Tensor | None = None
    factor: Tensor | None = None

    @classmethod
    def fitted(cls, option: ScalingOption, blocks: Iterable[Tensor | sp.csr_array]) -> FeatureScaling:
        """The scaling that was asked for, fitted to features in one or several blocks of rows."""
        if option is None or option == "rows":
            return cls(option or "none")
        return cls.from_statistics(option, map(FeatureStatistics.of, blocks))

    @classmethod
    def from_statistics(
        cls, option: Literal["standardise", "auto"], blocks: Iterable[FeatureStatistics]
    ) -> FeatureScaling:
        """The same, from the statistics of the blocks."""
        found = reduce(FeatureStatistics.merged, blocks)
        kind = found.suggested() if option == "auto" else option
        if kind != "standardise":
            return cls(kind)
        deviation = found.deviation
        factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        shift = found.mean if found.takes_mean else np.zeros_like(found.mean)
        return cls(kind, torch.from_numpy(shift), torch.from_numpy(factor))

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """What is needed beside ``kind`` to make the scaling again, by name."""
        return {} if self.shift is None or self.factor is None else {"shift": self.shift, "factor": self.factor}

    @property
    def largest_mean(self) -> float:
        """The largest of the means that are taken off, in standard deviations of its column."""
        return 0.0 if self.shift is None or self.factor is None else float((self.shift * self.factor).abs().max())

    def __call__(self, x: Tensor | sp.csr_array) -> Tensor | sp.csr_array:
        """Scaled features in the precision of ``x``; ``"none"`` gives back ``x`` itself.

        Sparse features stay sparse, unless a mean is taken off.
        """
        if self.kind == "none":
            return x
        if not isinstance(x, sp.csr_array):
            out = torch.empty_like(x)
            for rows, place in zip(_blocks(x), _blocks(out), strict=True):
                place.copy_(self._scaled(rows.double()))
            return out
        if self.shift is not None and bool(self.shift.any()):
            return self(torch.from_numpy(x.toarray()))
        values = x.data.astype(np.float64)
        if self.factor is not None:
            values *= self.factor.numpy()[x.indices]
        else:
            lengths = np.diff(x.indptr)
            number = np.repeat(np.arange(len(lengths)), lengths)
            sums = np.bincount(number, np.abs(values), len(lengths))
            values /= np.maximum(sums, LEAST_SUM)[number]
        return sp.csr_array((values.astype(x.dtype), x.indices, x.indptr), shape=x.shape)

    def _scaled(self, x: Tensor) -> Tensor:
        if self.shift is not None and self.factor is not None:
            return (x - self.shift) * self.factor
        return x / row_sums(x).unsqueeze(1)


UNSCALED = FeatureScaling()


def row_sums(x: Features) -> Tensor:
    """What ``"rows"`` divides each row by: its sum of absolute values, never 0."""
    if isinstance(x, SparseFeatures):
        sums = torch.segment_reduce(x.matrix.values().abs(), "sum", offsets=x.matrix.crow_indices())
    else:
        sums = x.abs().sum(1)
    return sums.clamp_min(LEAST_SUM)
