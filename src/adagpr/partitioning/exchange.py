"""Products of a graph whose rows lie with several processes: exact at any depth.

A process owns rows of the operator. Before each product it sends the rows of ``h`` that others read and receives those
that its own rows read, one ``all_to_all_single``; meanwhile it multiplies what is its own. A product of the transpose
goes the other way: what it gives for rows elsewhere is sent to their owners, which add it up. Both send the same rows,
so that a step of ``n`` products sends ``n`` times the border, whatever the model's depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.ops import Operator, csr_tensor, multiply
from adagpr.partitioning.operators import normalised
from adagpr.partitioning.parts import Parts, Rows
from adagpr.partitioning.process_group import Group, PendingRows

__all__ = ["Border", "ExchangedOperator", "bounds_of_ranks", "exchanged_operator", "share_of_rank"]


@dataclass(frozen=True, eq=False)
class Border:
    """Which rows go to other processes and come from them.

    Attributes:
        group: The processes.
        rows: The rows of this process that others read: those for rank 0, then those for rank 1, and so on.
        num_sent: How many of them go to each.
        num_received: How many rows elsewhere come from each.
        sent_as: In which precision rows travel, by default their own.
    """

    group: Group
    rows: Tensor
    num_sent: list[int]
    num_received: list[int]
    sent_as: torch.dtype | None = None

    @classmethod
    def between(cls, group: Group, halo: np.ndarray, bounds: np.ndarray, sent_as: torch.dtype | None = None) -> Border:
        """Tells every owner which of its rows this process reads.

        Args:
            group: The processes.
            halo: Numbers of the rows elsewhere, ascending.
            bounds: The first row of each process, and the number of all rows at the end.
            sent_as: In which precision rows travel, by default their own.
        """
        num_received: list[int] = np.diff(np.searchsorted(halo, bounds)).tolist()
        if group.size == 1:
            return cls(group, torch.empty(0, dtype=torch.int64), [0], [0], sent_as)
        ones = [1] * group.size
        num_sent = group.all_to_all(torch.tensor(num_received).view(-1, 1), ones, ones).wait().view(-1).tolist()
        asked = torch.from_numpy(halo.astype(np.int64)).view(-1, 1)
        rows = group.all_to_all(asked, num_sent, num_received).wait().view(-1)
        group.num_bytes = 0
        return cls(group, rows - int(bounds[group.rank]), num_sent, num_received, sent_as)

    @property
    def num_rows(self) -> int:
        """How many rows this process sends for a product; those of its transpose come back the same way."""
        return len(self.rows)

    def to_readers(self, h: Tensor) -> PendingRows:
        """Begins to send the rows that others read; those elsewhere that this process reads arrive."""
        return self.group.all_to_all(self._packed(h.index_select(0, self.rows)), self.num_received, self.num_sent)

    def to_owners(self, halo: Tensor) -> PendingRows:
        """Begins to send rows elsewhere to their owners; what others have for `rows` arrives, in that order."""
        return self.group.all_to_all(self._packed(halo), self.num_sent, self.num_received)

    def _packed(self, rows: Tensor) -> Tensor:
        return rows if self.sent_as is None else rows.to(self.sent_as)


@dataclass(frozen=True, eq=False)
class ExchangedOperator(Operator):
    """The rows of an operator that one process owns; ``matrix`` is what they read of each other.

    Attributes:
        outer: What they read elsewhere, one column a row elsewhere.
        outer_transpose: Its transpose.
        border: How rows come and go.
    """

    outer: Tensor
    outer_transpose: Tensor
    border: Border

    def multiply(self, h: Tensor, out: Tensor, transposed: bool = False) -> Tensor:
        """The rows of the operator, or of its transpose, times ``h``; rows come from their owners and go to them."""
        if not transposed:
            arrival = self.border.to_readers(h)
            super().multiply(h, out)
            return out.addmm_(self.outer, arrival.wait().to(h.dtype))
        elsewhere = multiply(self.outer_transpose, h, h.new_empty(self.outer.shape[1], h.shape[1]))
        arrival = self.border.to_owners(elsewhere)
        super().multiply(h, out, transposed=True)
        return out.index_add_(0, self.border.rows, arrival.wait().to(h.dtype))

    def single_matrix(self, transposed: bool = False) -> None:
        """None: a part of every product is computed elsewhere."""

    def to(self, target: torch.dtype | torch.device | str) -> Operator:
        """The same operator in another precision or on another device."""
        own, outer, back = super().to(target), self.outer.to(target), self.outer_transpose.to(target)
        return ExchangedOperator(own.matrix, own.transpose, self.direction, self.self_loops, outer, back, self.border)


def share_of_rank(num_parts: int, rank: int, size: int) -> range:
    """The parts of a process: as many for each as can be, one after another."""
    if num_parts < size:
        raise InputError(f"{size} ranks need at least {size} parts, but the partition has {num_parts}.")
    return range(num_parts * rank // size, num_parts * (rank + 1) // size)


def bounds_of_ranks(parts: Parts, size: int) -> np.ndarray:
    """The number of the first node of each process, and the number of all nodes at the end."""
    firsts = [share_of_rank(len(parts), rank, size).start for rank in range(size)]
    return parts.manifest.offsets[[*firsts, len(parts)]]


def exchanged_operator(rows: Rows, border: Border, self_loops: bool, dtype: torch.dtype) -> ExchangedOperator:
    """The normalised rows of one process, ready for products.

    Args:
        rows: The rows of the adjacency, with the degrees of all that they read.
        border: How rows come and go.
        self_loops: Whether to add the identity before normalising.
        dtype: Precision of the result.
    """
    own, outer = normalised(rows, self_loops)
    tensors = (csr_tensor(sp.csr_array(item), dtype) for item in (own, own.T, outer, outer.T))
    matrix, transpose, outside, outside_transpose = tensors
    return ExchangedOperator(matrix, transpose, "directed", self_loops, outside, outside_transpose, border)
