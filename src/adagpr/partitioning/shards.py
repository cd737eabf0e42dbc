"""Parts of a partition joined into one block of rows, and operators of parts: in memory, of several ranks, on disk.

A rank owns rows of the operator. Before each product it sends the rows of ``h`` that other ranks read and receives
those that its own rows read; meanwhile it multiplies what is its own. A product of the transpose goes the other way:
what it gives for rows of other ranks is sent to their owners, which add it up. Products are exact at any depth.

An operator on disk is that of the whole graph, in memory that does not grow with it. A product reads its left side part
by part; its right side and its result may be matrices on disk themselves (see `adagpr.ops.buffer_pool`). With one part
it is the product of the whole graph, bit for bit.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import safetensors.torch
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.files import temporary_beside
from adagpr.ops import Operator, csr, csr_tensor, multiply
from adagpr.partitioning.parts import Parts, Rows
from adagpr.partitioning.process_group import Group, PendingRows

_CSR_PARTS = ("crow_indices", "col_indices", "values")


def join(parts: Parts, numbers: Sequence[int]) -> Rows:
    """The rows of some parts, ascending, with the nodes of other parts that they read as their halo."""
    blocks = [parts[number].rows() for number in numbers]
    if len(blocks) == 1:
        return blocks[0]
    starts = np.concatenate([[0], np.cumsum([block.num_nodes for block in blocks])]).astype(np.int64)
    read = np.unique(np.concatenate([block.halo for block in blocks]))
    halo = read[_places(read, parts, numbers, starts) < 0]
    degree, adjs = np.empty(starts[-1] + len(halo)), []
    for block, start in zip(blocks, starts, strict=False):
        own = block.num_nodes
        places = _places(block.halo, parts, numbers, starts)
        places = np.where(places >= 0, places, starts[-1] + np.searchsorted(halo, block.halo))
        columns = np.concatenate([np.arange(start, start + own), places])[block.adj.indices]
        adjs.append(sp.csr_array((block.adj.data, columns, block.adj.indptr), shape=(own, len(degree))))
        degree[start : start + own], degree[places] = block.degree[:own], block.degree[own:]
    features = [block.x for block in blocks]
    x = torch.cat(features) if isinstance(features[0], Tensor) else sp.csr_array(sp.vstack(features, format="csr"))
    adj = sp.csr_array(sp.vstack(adjs, format="csr"))
    adj.sort_indices()
    return Rows(
        adj,
        degree,
        halo,
        x,
        torch.cat([block.y for block in blocks]),
        np.concatenate([block.role for block in blocks]),
        pa.concat_arrays([block.node_ids for block in blocks]),
        np.concatenate([block.position for block in blocks]),
    )


def induced(parts: Parts, numbers: Sequence[int]) -> Rows:
    """The graph of some parts alone: their nodes and the edges between these, nothing else."""
    rows = join(parts, numbers)
    adj = sp.csr_array(rows.adj[:, : rows.num_nodes])
    return replace(rows, adj=adj, degree=adj.sum(axis=1, dtype=np.float64), halo=rows.halo[:0])


def _places(nodes: np.ndarray, parts: Parts, numbers: Sequence[int], starts: np.ndarray) -> np.ndarray:
    """The row of each node among those of the parts, -1 where it is in another part."""
    offsets = parts.manifest.offsets
    shift = np.full(len(parts), -1, dtype=np.int64)
    shift[list(numbers)] = starts[:-1]
    owner = np.searchsorted(offsets, nodes, side="right") - 1
    return np.where(shift[owner] >= 0, shift[owner] + nodes - offsets[owner], -1)


def normalised(rows: Rows, self_loops: bool) -> tuple[sp.csr_array, sp.csr_array]:
    """The normalised rows: what they read of each other, and of their halo; see `adagpr.ops.operator`."""
    size = rows.num_nodes
    degree = rows.degree + self_loops
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    weights = sp.csr_array(rows.adj, dtype=np.float64)
    if self_loops:
        weights = sp.csr_array(weights + sp.eye_array(*weights.shape, format="csr"))
    values = weights.data * np.repeat(scale[:size], np.diff(weights.indptr)) * scale[weights.indices]
    scaled = sp.csr_array((values, weights.indices, weights.indptr), shape=weights.shape)
    own, outer = sp.csr_array(scaled[:, :size]), sp.csr_array(scaled[:, size:])
    own.sort_indices()
    outer.sort_indices()
    return own, outer


def operator_of(rows: Rows, self_loops: bool, is_symmetric: bool, dtype: torch.dtype = torch.float32) -> Operator:
    """The operator of rows without a halo; if every edge has its reverse, it is its own transpose."""
    own, _ = normalised(rows, self_loops)
    matrix = csr_tensor(own, dtype)
    transpose = matrix if is_symmetric else csr_tensor(sp.csr_array(own.T), dtype)
    return Operator(matrix, transpose, "directed", self_loops)


@dataclass(frozen=True, eq=False)
class HaloExchange:
    """Which rows go to other ranks and come from them, and in which precision, by default their own."""

    group: Group
    rows: Tensor  # of this rank that others read: those for rank 0, then those for rank 1, and so on
    num_sent: list[int]  # of them to each rank
    num_received: list[int]  # from each rank
    sent_as: torch.dtype | None = None

    @classmethod
    def between(
        cls, group: Group, halo: np.ndarray, bounds: np.ndarray, sent_as: torch.dtype | None = None
    ) -> HaloExchange:
        """Tells every owner which of its rows this rank reads; ``halo`` ascends, ``bounds`` are `bounds_of_ranks`."""
        num_received: list[int] = np.diff(np.searchsorted(halo, bounds)).tolist()
        if group.size == 1:
            return cls(group, torch.empty(0, dtype=torch.int64), [0], [0], sent_as)
        ones = [1] * group.size
        num_sent = group.all_to_all(torch.tensor(num_received).view(-1, 1), ones, ones).wait().view(-1).tolist()
        asked = torch.from_numpy(halo.astype(np.int64)).view(-1, 1)
        rows = group.all_to_all(asked, num_sent, num_received).wait().view(-1)
        group.num_bytes = 0
        return cls(group, rows - int(bounds[group.rank]), num_sent, num_received, sent_as)

    def to_readers(self, h: Tensor) -> PendingRows:
        """Begins to send the rows that other ranks read; the rows of other ranks that this one reads arrive."""
        sent = h.index_select(0, self.rows).to(self.sent_as or h.dtype)
        return self.group.all_to_all(sent, self.num_received, self.num_sent)

    def to_owners(self, halo: Tensor) -> PendingRows:
        """Begins to send rows of other ranks to their owners; what others have for `rows` arrives, in that order."""
        return self.group.all_to_all(halo.to(self.sent_as or halo.dtype), self.num_sent, self.num_received)


@dataclass(frozen=True, eq=False)
class ExchangedOperator(Operator):
    """The rows of an operator that one rank owns; ``matrix`` is what they read of each other, ``outer`` of others."""

    outer: Tensor
    outer_transpose: Tensor
    exchange: HaloExchange

    def multiply(self, h: Tensor, out: Tensor, transposed: bool = False) -> Tensor:
        """The rows of the operator, or of its transpose, times ``h``; rows come from their owners and go to them."""
        if not transposed:
            pending = self.exchange.to_readers(h)
            super().multiply(h, out)
            return out.addmm_(self.outer, pending.wait().to(h.dtype))
        elsewhere = multiply(self.outer_transpose, h, h.new_empty(self.outer.shape[1], h.shape[1]))
        pending = self.exchange.to_owners(elsewhere)
        super().multiply(h, out, transposed=True)
        return out.index_add_(0, self.exchange.rows, pending.wait().to(h.dtype))

    def single_matrix(self, transposed: bool = False) -> None:
        """None: a part of every product is computed by other ranks."""

    def sum_over_ranks(self, values: Tensor) -> Tensor:
        """The sum over all ranks, written over ``values``."""
        return self.exchange.group.sum_(values)

    def to(self, target: torch.dtype | torch.device | str) -> Operator:
        """The same operator in another precision or on another device."""
        own, outer, back = super().to(target), self.outer.to(target), self.outer_transpose.to(target)
        exchange = self.exchange
        if not isinstance(target, torch.dtype):
            exchange = replace(exchange, rows=exchange.rows.to(target))
        return ExchangedOperator(own.matrix, own.transpose, self.direction, self.self_loops, outer, back, exchange)


def exchanged_operator(rows: Rows, exchange: HaloExchange, self_loops: bool, dtype: torch.dtype) -> ExchangedOperator:
    """The normalised rows of one rank, ready for products."""
    own, outer = normalised(rows, self_loops)
    tensors = (csr_tensor(sp.csr_array(item), dtype) for item in (own, own.T, outer, outer.T))
    matrix, transpose, outside, outside_transpose = tensors
    return ExchangedOperator(matrix, transpose, "directed", self_loops, outside, outside_transpose, exchange)


@dataclass(frozen=True, eq=False)
class StoredOperator(Operator):
    """The normalised adjacency of a partition, in files of ``folder``; it has no transpose and gives no gradient."""

    parts: Parts
    folder: Path

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.parts.manifest.num_nodes

    def multiply(self, h: Tensor, out: Tensor, transposed: bool = False) -> Tensor:
        """The operator times ``h``, written into ``out`` part by part."""
        if transposed:
            raise InputError("StoredOperator: there is no transpose, hence no gradient.")
        for number, (start, end) in enumerate(pairwise(self.parts.manifest.offsets.tolist())):
            stored = safetensors.torch.load_file(self.folder / f"{number}.safetensors")
            own, outer = (
                csr(*(stored[f"{name}.{key}"] for key in _CSR_PARTS), (end - start, width))  # type: ignore[call-arg,arg-type]
                for name, width in (("own", end - start), ("outer", len(stored["halo"])))
            )
            rows = multiply(own, h[start:end], out[start:end])
            if len(stored["halo"]):
                rows.addmm_(outer, h.index_select(0, stored["halo"]))
        return out

    def single_matrix(self, transposed: bool = False) -> None:
        """None: the matrix is in several files."""


@contextmanager
def stored_operator(parts: Parts, self_loops: bool, folder: Path) -> Iterator[StoredOperator]:
    """Writes the normalised rows of all parts below ``folder``, and removes them when the context ends."""
    place = temporary_beside(folder / "rows")
    place.mkdir()
    try:
        for number in range(len(parts)):
            rows = parts[number].rows()
            tensors = {"halo": torch.from_numpy(rows.halo)}
            for key, matrix in zip(("own", "outer"), normalised(rows, self_loops), strict=True):
                tensor = csr_tensor(matrix)
                tensors |= {f"{key}.{part}": getattr(tensor, part)() for part in _CSR_PARTS}
            safetensors.torch.save_file(tensors, place / f"{number}.safetensors")
        empty = torch.empty(0)
        yield StoredOperator(empty, empty, "directed", self_loops, parts, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def parts_of_rank(num_parts: int, rank: int, size: int) -> range:
    """The parts of a rank: consecutive ones, and about as many for each rank."""
    if num_parts < size:
        raise InputError(f"{size} ranks need at least {size} parts, but the partition has {num_parts}.")
    return range(num_parts * rank // size, num_parts * (rank + 1) // size)


def bounds_of_ranks(parts: Parts, size: int) -> np.ndarray:
    """The number of the first node of each rank, and the number of all nodes at the end."""
    firsts = [parts_of_rank(len(parts), rank, size).start for rank in range(size)]
    return parts.manifest.offsets[[*firsts, len(parts)]]
