r"""What a training needs: operations, memory, disk, and bytes that processes send each other; see ``docs/scaling.md``.

All counts are those of the code: of an epoch of AdaGPR or GCNII, one training step with dropout and one evaluation,
in float32. With :math:`n` nodes, :math:`e` entries of the operator, :math:`f` features, :math:`c` channels, :math:`y`
classes, :math:`l` layers and :math:`p` products, that is hops beyond hop 0 over all layers, an epoch has

.. math:: 3 e c p, \qquad n (4 l c^2 + 3 f c + c y), \qquad n (c (4 l + 35) + 2 f + 3 y)

multiplications of sparse products, multiplications of dense ones, and elements of matrices that are read or written by
all else. What a kernel adds to a sparse product in the same pass is part of it; the last map of a step is of the
training nodes alone. What they take depends on the machine: see `Speeds`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from adagpr.ops import is_large
from adagpr.partitioning import Parts, bounds_of_ranks, parts_of_rank

_FLOAT, _LONG = 4, 8
# At its peak, reading rows from a partition into an operator takes so many bytes an entry; measured.
_READING = 96


@dataclass(frozen=True)
class Shape:
    """How large a training is.

    Attributes:
        num_nodes: Nodes of the graph.
        num_entries: Stored entries of its adjacency beside self loops, which are added.
        num_features: Feature columns.
        num_classes: Classes.
        channels: Width of the hidden layers.
        num_layers: Graph layers.
        num_products: Hops beyond hop 0 that are kept, over all layers; ``layers * (K - 1)`` where all are.
        num_values: Stored values of sparse features; none where they are dense.
        is_symmetric: Whether every edge has its reverse, so that the operator is its own transpose.
        recompute: Whether a part of each layer is computed again in the backward pass.
        kept_size: Bytes of a number that is kept for the backward pass: 4, or 2 as bfloat16.
        num_train: Training nodes; none where they are few.
    """

    num_nodes: int
    num_entries: int
    num_features: int
    num_classes: int
    channels: int = 64
    num_layers: int = 4
    num_products: int = 12
    num_values: int | None = None
    is_symmetric: bool = True
    recompute: bool = False
    kept_size: int = _FLOAT
    num_train: int = 0

    @property
    def num_stored(self) -> int:
        """Entries of the operator: those of the adjacency and one self loop a node."""
        return self.num_entries + self.num_nodes

    @property
    def matrix(self) -> int:
        """Bytes of one hidden matrix."""
        return _FLOAT * self.num_nodes * self.channels

    @property
    def num_kept(self) -> int:
        """Hidden matrices that are kept for the backward pass, the first one apart."""
        return 1 + self.num_layers * (1 if self.recompute else 2)

    def share(self, count: float) -> Shape:
        """The same training on one of ``count`` equal shares of the graph."""
        sizes = (self.num_nodes, self.num_entries, self.num_train)
        nodes, entries, train = (round(value / count) for value in sizes)
        values = None if self.num_values is None else round(self.num_values / count)
        return replace(self, num_nodes=nodes, num_entries=entries, num_values=values, num_train=train)


@dataclass(frozen=True)
class Operations:
    """What is computed.

    Attributes:
        sparse: Multiplications (each with its addition) of products with a sparse matrix.
        dense: Those of products of dense matrices.
        elements: Elements of matrices that are read or written by all else.
    """

    sparse: int
    dense: int
    elements: int


@dataclass(frozen=True)
class Speeds:
    """Seconds that each operation takes on one core.

    Attributes:
        cached: A multiplication of a sparse product where the row that it reads is in the core's own cache.
        missed: The same where it is not.
        dense: A multiplication of a dense product.
        element: An element that is read or written.
    """

    cached: float
    missed: float
    dense: float
    element: float


def operations(shape: Shape) -> Operations:
    """What one epoch computes.

    A product of the graph is done in the forward and backward pass and in the evaluation, and once more where layers
    are computed again; that of a layer's weight forward, twice backward and in the evaluation. Features get no
    gradient.
    """
    n, c, depth, hops = shape.num_nodes, shape.channels, shape.num_layers, shape.num_products
    width = shape.num_features if shape.num_values is None else 0
    values = shape.num_values or 0
    again, half = int(shape.recompute), int(shape.kept_size < _FLOAT)
    # Passes over hidden matrices: two a layer in the forward pass and in the evaluation, for ReLU and dropout.
    passes = 4 * depth + 35 + half * 4 * shape.num_kept
    return Operations(
        sparse=(3 + again) * shape.num_stored * c * hops + 3 * values * c,
        dense=n * (4 * depth * c * c + 3 * width * c) + (n + 3 * shape.num_train) * c * shape.num_classes,
        elements=n * (c * passes + 2 * width + 3 * shape.num_classes) + 4 * values,
    )


def seconds(work: Operations, speeds: Speeds, missing: float = 1.0) -> float:
    """What operations take on one core.

    Args:
        work: The operations.
        speeds: What each takes.
        missing: Share of the entries that read a row which is not in the cache, see `missing_share`.
    """
    sparse = missing * speeds.missed + (1 - missing) * speeds.cached
    return work.sparse * sparse + work.dense * speeds.dense + work.elements * speeds.element


def missing_share(num_reads: np.ndarray, num_rows: int) -> float:
    """Share of the entries that read a row which is not in the cache, where that holds the rows most often read.

    Args:
        num_reads: How many entries read each row.
        num_rows: How many rows the cache holds.

    Example:
        >>> missing_share(np.array([1, 5, 1, 1]), 2)
        0.25
    """
    ordered = np.sort(num_reads)[::-1]
    return 1 - float(ordered[:num_rows].sum() / max(1, ordered.sum()))


def num_parameters(shape: Shape) -> int:
    """Numbers that are learned, those of coefficients included, where all hops are kept and none is fixed."""
    c, classes = shape.channels, shape.num_classes
    maps = (shape.num_features + 1) * c + shape.num_layers * c * c + (c + 1) * classes
    return maps + shape.num_products + shape.num_layers


def memory(shape: Shape) -> dict[str, int]:
    """Bytes at the peak of an epoch in one process with the whole graph, by what they are for."""
    # Features, labels and positions of a large graph, whose nodes stand in another order than they were given.
    return {
        **_epoch(shape),
        "order": _features(shape) + 2 * _LONG * shape.num_nodes if is_large(shape.num_nodes) else 0,
    }


def _epoch(shape: Shape) -> dict[str, int]:
    """The same where nodes stand as they were given."""
    more = 2 if shape.kept_size < _FLOAT else int(shape.recompute)
    dropped = _FLOAT * shape.num_nodes * shape.num_features if shape.num_values is None else 8 * shape.num_values
    # Backward: five hidden matrices, more where what was kept is made anew, and the first one. At the end of the run:
    # all logits twice, while memory that was used once is not given back.
    backward = (6 + more) * shape.matrix + dropped
    end = (3 + more) * shape.matrix + 2 * _FLOAT * shape.num_nodes * shape.num_classes
    return {
        "operator": _csr(shape.num_nodes, shape.num_stored) * (1 if shape.is_symmetric else 2),
        "features": _features(shape) + _LONG * shape.num_nodes,
        "kept": shape.num_kept * shape.matrix * shape.kept_size // _FLOAT,
        "working": max(backward, end),
        # With its gradient, two moments of Adam, and the best epoch's.
        "parameters": 5 * _FLOAT * num_parameters(shape),
    }


def _csr(num_rows: int, num_entries: int) -> int:
    """Bytes of a sparse matrix in CSR form."""
    index = 4 if max(num_rows, num_entries) < 2**31 else 8
    return (index + _FLOAT) * num_entries + index * (num_rows + 1)


def _features(shape: Shape) -> int:
    """Bytes of the features; sparse ones are there twice, with the order of the one in the other."""
    if shape.num_values is None:
        return _FLOAT * shape.num_nodes * shape.num_features
    both = _csr(shape.num_nodes, shape.num_values) + _csr(shape.num_features, shape.num_values)
    return both + _LONG * shape.num_values


def shared_memory(shape: Shape, size: int, num_border: float) -> dict[str, int]:
    """Bytes at the peak in one of several processes that train exactly, equal shares taken for granted.

    Args:
        shape: The training on the whole graph.
        size: How many processes share it.
        num_border: Rows that all of them together send for one product.
    """
    own = replace(shape.share(size), is_symmetric=False)
    found = _epoch(own)
    rows = round(num_border / size)
    # Its own rows and those elsewhere are two matrices, each with its transpose.
    found["operator"] += 4 * (own.num_nodes + rows + 2)
    # What is sent and what arrives, and which rows these are.
    found["border"] = rows * (2 * _FLOAT * own.channels + _LONG)
    return found


def reading_memory(shape: Shape) -> int:
    """Bytes at the peak while rows are read from a partition, before the first epoch; about."""
    return _READING * shape.num_stored + _features(shape)


def batch_memory(shape: Shape, num_batches: int) -> dict[str, int]:
    """Bytes at the peak of training on batches of parts: one trains while the next one is read.

    Args:
        shape: The training on the whole graph.
        num_batches: Batches of an epoch.
    """
    own = shape.share(num_batches)
    return {**_epoch(own), "next batch": reading_memory(own)}


def disk_space(shape: Shape, num_halo: float) -> dict[str, int]:
    """Bytes on disk of a training on batches of parts, by what they are for.

    Args:
        shape: The training on the whole graph, without weights of edges.
        num_halo: Nodes elsewhere that the parts read, over all parts.
    """
    n, halo = shape.num_nodes, round(num_halo)
    stored = _FLOAT * n * shape.num_features if shape.num_values is None else 8 * shape.num_values + 8 * n
    # Of a node: where its row begins, degree, class, role, id and position. Of one elsewhere: number and degree.
    return {
        "parts": 4 * shape.num_entries + 41 * n + 16 * halo + stored,
        "normalised rows": 8 * shape.num_stored + 8 * n + 8 * halo,
        "matrices": 6 * shape.matrix + _FLOAT * n * shape.num_classes,
    }


def disk_traffic(shape: Shape, num_halo: float) -> int:
    """Bytes that one epoch on batches of parts reads and writes on disk where nothing of it stays in memory.

    The parts are read once. The evaluation goes through the layers with matrices on disk: each product reads the
    normalised rows and a matrix and writes one, and all else counts as in `operations`.
    """
    space = disk_space(shape, num_halo)
    hops = shape.num_products
    passes = 5 * shape.num_layers + 3 * hops + 4 + 2 * hops
    return space["parts"] + hops * space["normalised rows"] + passes * shape.matrix


def border_rows(parts: Parts, size: int) -> int:
    """Rows that all processes together send for one product, with the parts shared by so many processes."""
    bounds = bounds_of_ranks(parts, size)
    total = 0
    for rank in range(size):
        numbers = parts_of_rank(len(parts), rank, size)
        read = [parts[number].tensors("graph.safetensors")["halo"].numpy() for number in numbers]
        nodes = np.unique(np.concatenate(read))
        total += int(((nodes < bounds[rank]) | (nodes >= bounds[rank + 1])).sum())
    return total


def expected_border_rows(shape: Shape, size: int, cut: float) -> float:
    r"""Rows that all processes together send for one product, where only the share of cut entries is known.

    .. math:: n (s - 1) \left( 1 - \left( 1 - \frac{q}{s - 1} \right)^d \right)

    for :math:`s` processes, a share :math:`q` of entries between them, and :math:`d` entries a node: how many of the
    others read a node whose cut entries fall on them at random. Nodes with more and fewer entries than the mean make it
    less.

    Args:
        shape: The training on the whole graph.
        size: How many processes share it.
        cut: Share of the entries whose row and column are with different processes.
    """
    if size == 1:
        return 0.0
    chance = cut / (size - 1)
    return float(shape.num_nodes * (size - 1) * (1 - (1 - chance) ** (shape.num_entries / shape.num_nodes)))


def border_bytes(parts: Parts, size: int, channels: int, num_products: int, itemsize: int = 4) -> int:
    """Bytes that all processes together send for some products.

    Args:
        parts: The partition.
        size: How many processes share it.
        channels: Width of the hidden layers.
        num_products: Products, those of transposes included. An epoch has three for each hop beyond the first that a
            layer keeps: forward, backward and in the evaluation.
        itemsize: Bytes of a number on its way: 4, or 2 as bfloat16.
    """
    return border_rows(parts, size) * channels * num_products * itemsize


def gradient_bytes(shape: Shape, size: int) -> int:
    """Bytes that all processes together send to add up the gradients of one step, in a ring."""
    return 2 * (size - 1) * _FLOAT * num_parameters(shape)
