"""Kernels in C for the inner loops of layers: a product, what is added to it and what is measured of it in one pass.

They are compiled when the package is installed (see ``hatch_build.py``), once for each kind of processor, and take
their threads from torch's own pool; their bits do not depend on how many there are. Where there is no compiler, on
another device, or for numbers that are neither float32 nor float64, `supports_dense` is false and torch's operations do
the same, slower; the tests hold the two against each other. With ``ADAGPR_KERNELS=torch`` in the environment they are
left out.

Matrices are contiguous, of one shape and type. Weights are given block by block, for rows that are several blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Around = Callable[[str, tuple[Any, ...], Callable[[], None]], None]

# What torch calls the processor, and what a file for it is called; the first that is there is taken.
_KINDS = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}
_TYPES = {torch.float32: "float", torch.float64: "double"}

# The widths of `multiply_square` and `outer`: multiples of the longest vector, such that a square stays in the cache.
_VECTOR, _WIDEST = 16, 256
# How the rows are cut whose sums `outer` adds up.
_MOST_SEGMENTS, _ROWS_PER_SEGMENT = 16, 256

_N, _I, _F, _P = ctypes.c_int64, ctypes.c_int, ctypes.c_double, ctypes.c_void_p
_SHAPE, _MATRIX = [_N, _N, _N], [_P, _P, _P]
_ARGUMENTS = {
    "hop": [_N, _N, _P, _F, _P, _F, _P, _F, _P, _I],
    "hop_back": [*_SHAPE, *_MATRIX, _P, _P, _P, _P, _P, _P, _P, _P, _F, _I, _P, _P, _I],
    "mix": [*_SHAPE, *_MATRIX, _P, _N, _P, _P, _F, _P, _P, _I],
    "mix_back": [*_SHAPE, *_MATRIX, _P, _P, _N, _P, _P, _P, _P, _F, _I, _P, _P, _P, _I],
    "map": [_N, _N, _P, _P, _P, _I, _I],
    "outer": [_N, _N, _P, _P, _P, _P, _N, _I],
    "adam": [_N, *[_P] * 8, _F, _F, _F, _I],
    "relu_drop": [_N, _P, _P, _I, _I],
    "drop": [_N, _P, _P, _P, _N, _I, _F, _P, _I],
    "drop_values": [_N, _P, _P, _I, _F, _P, _P, _P, _I],
    "first": [*_SHAPE, *_MATRIX, _P, _I, _F, _P, _P, _P, _P, _P, _P, _I],
    "first_back": [*_SHAPE, *_MATRIX, _N, _P, _N, _P, _I],
    "stack": [_N, *_SHAPE, *_MATRIX, _P, _P, _P, _N, _P, _N, _P, _P, _P, _P, _P, _I, _F, _P, _P, _N, _P, _P, _P, _I],
    "stack_back": [
        *[_N, *_SHAPE, *_MATRIX, _P, _P, _N, _P, _N, _P, _P, _P, _P, _P, _P, _N],
        *[_P, _F, _P, _P, _P, _P, _P, _P, _P, _P, _N, _P, _P, _P, _I],
    ],
}


def folder() -> Path:
    """Where sources and compiled files are."""
    return Path(__file__).parent / "kernels"


@cache
def library() -> ctypes.CDLL | None:
    """The kernels for this processor, where they were compiled."""
    if os.environ.get("ADAGPR_KERNELS") == "torch":
        return None
    kinds = _KINDS.get(torch.backends.cpu.get_cpu_capability(), ("default",))
    path = next((path for kind in kinds if (path := folder() / f"kernels-{kind}.so").exists()), None)
    if path is None:
        return None
    try:
        found = ctypes.CDLL(str(path))
        for name, arguments in _ARGUMENTS.items():
            for kind in _TYPES.values():
                function = getattr(found, f"{name}_{kind}")
                function.argtypes, function.restype = arguments, None
        found.count_chunks.argtypes, found.count_chunks.restype = [_N, _N], _N
        found.rows_per_chunk.argtypes, found.rows_per_chunk.restype = [], _N
    except (OSError, AttributeError):  # compiled for another system, or from other sources
        return None
    return found


# Told of every call where somebody watches.
_around: Around | None = None


def call_kernel(name: str, dtype: torch.dtype, *arguments: Any) -> None:
    """Calls a kernel; a tensor, an array or a list of numbers is given as its address."""
    if _around is None:
        _run(name, dtype, arguments)
    else:
        _around(name, arguments, lambda: _run(name, dtype, arguments))


def _run(name: str, dtype: torch.dtype, arguments: tuple[Any, ...]) -> None:
    found = getattr(library(), f"{name}_{_TYPES[dtype]}")
    found(*map(_plain, arguments), torch.get_num_threads())


@contextlib.contextmanager
def watch_kernels(around: Around) -> Iterator[None]:
    """Until the context ends ``around`` is given each kernel's name, its arguments and what runs it.

    Layers are then computed one by one, so that every kernel is seen; their bits are the same.
    """
    global _around
    before, _around = _around, around
    try:
        yield
    finally:
        _around = before


def is_watched() -> bool:
    """Whether somebody watches."""
    return _around is not None


def _plain(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.data_ptr()
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data
    return (ctypes.c_double * len(argument))(*argument) if isinstance(argument, list) else argument


def supports_dense(h: Tensor) -> bool:
    """Whether the kernels can compute with a matrix."""
    return h.is_contiguous() and supports_kernels(h)


def supports_kernels(h: Tensor) -> bool:
    """Whether the kernels can read the numbers of a tensor in the order in which they lie in memory."""
    return h.device.type == "cpu" and h.dtype in _TYPES and library() is not None


def supports_csr(matrix: Tensor, h: Tensor) -> bool:
    """Whether the kernels can multiply a CSR tensor with a matrix that they serve."""
    return matrix.dtype == h.dtype and matrix.col_indices().dtype == torch.int32


def supports_square(h: Tensor) -> bool:
    """Whether `multiply_square` and `outer` can compute with a matrix that the kernels serve."""
    return h.shape[1] % _VECTOR == 0 and h.shape[1] <= _WIDEST


def csr_parts(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a CSR tensor consists of."""
    return matrix.crow_indices(), matrix.col_indices(), matrix.values()


def addresses(items: Sequence[Tensor | np.ndarray]) -> np.ndarray:
    """Where each of some tensors or arrays begins."""
    return np.array([_plain(item) for item in items], dtype=np.uint64)


def count_chunks(num_rows: int, num_blocks: int) -> int:
    """In how many chunks rows are worked on; sums over rows need two numbers for each."""
    found: int = library().count_chunks(num_rows, num_blocks)  # type: ignore[union-attr]
    return found


def room_for_chunks(h: Tensor) -> Tensor:
    """Memory in which every thread can hold two chunks of rows of a matrix like ``h``."""
    num_rows: int = library().rows_per_chunk()  # type: ignore[union-attr]
    return h.new_empty(2 * num_rows * torch.get_num_threads(), h.shape[1])


def num_segments(num_rows: int) -> int:
    """In how many segments `outer` cuts rows."""
    return max(1, min(_MOST_SEGMENTS, num_rows // _ROWS_PER_SEGMENT))


def add_hop(
    product: Tensor, factor: float, h: Tensor, own: float, out: Tensor, plus: Tensor | None, share: float
) -> Tensor:
    """``factor * product + own * h + share * plus``, written into ``out``: a hop of `weighted_hops`."""
    call_kernel("hop", out.dtype, *out.shape, product, factor, h, own, plus if share != 0.0 else None, share, out)
    return out


def add_back(
    power: Tensor,
    first: Tensor | None,
    h: Tensor,
    weight: list[float],
    own: list[float],
    total: Tensor,
    shared: Tensor | None,
    share: float,
    masked: bool,
) -> tuple[list[float], list[float]]:
    """A hop of `weighted_hops_backward` whose product is made.

    Args:
        power: The product.
        first: With the first hop the gradient that all starts from: ``total`` then begins with ``own`` times it.
        h: What the mix was made of.
        weight: Weight of the power.
        own: Weight of ``first``.
        total: The sum so far, and after.
        shared: With the first hop, what ``share`` times ``first`` is added to.
        share: Its weight.
        masked: Whether ``total`` is set to 0 where ``h`` is not positive.

    Returns:
        The inner products of each block of ``h`` with the power, and with ``first`` where it is given.
    """
    blocks, extra = len(weight), shared if share != 0.0 else None
    shape = (total.shape[0], blocks, total.shape[1])
    inner, parts = np.empty(2 * blocks), np.empty(2 * count_chunks(total.shape[0], blocks))
    call_kernel("hop_back", total.dtype, *shape, None, None, None, power, first, h, weight, own, total, None, extra,
         share, masked, inner, parts)  # fmt: skip
    return inner[::2].tolist(), inner[1::2].tolist()


def weighted_hops(
    matrix: Tensor,
    h: Tensor,
    mu: Sequence[list[float]],
    out: Tensor,
    spare: Tensor | None = None,
    plus: Tensor | None = None,
    share: float = 0.0,
) -> Tensor:
    """``share * plus + sum_k mu[k] matrix^k h``, written into ``out``.

    Args:
        matrix: A CSR tensor that `supports_csr`.
        h: The signal.
        mu: The weights hop by hop.
        out: Where the result is written; none of the others.
        spare: A matrix that is written over, needed where there are more than two hops.
        plus: What is added.
        share: Its weight.
    """
    extra, blocks = plus if share != 0.0 else None, len(mu[0])
    weights = [value for row in mu for value in row]
    shape = (out.shape[0], blocks, out.shape[1])
    call_kernel("mix", out.dtype, *shape, *csr_parts(matrix), h, len(mu), weights, extra, share, out, spare)
    return out


def weighted_hops_backward(
    matrix: Tensor,
    first: Tensor,
    h: Tensor,
    mu: Sequence[list[float]],
    total: Tensor,
    spare: Tensor | None,
    shared: Tensor | None,
    share: float,
    masked: bool,
) -> list[list[float]]:
    """The gradients of `weighted_hops`; see `add_back`.

    That of ``h`` is written into ``total``, those of the weights are returned hop by hop; ``first`` is written over.
    """
    blocks, extra = len(mu[0]), shared if share != 0.0 else None
    weights = [value for row in mu for value in row]
    inner, pairs = np.empty((len(mu), blocks)), np.empty(2 * blocks)
    parts = np.empty(2 * count_chunks(total.shape[0], blocks))
    shape = (total.shape[0], blocks, total.shape[1])
    call_kernel("mix_back", total.dtype, *shape, *csr_parts(matrix), first, h, len(mu), weights, total, spare, extra,
         share, masked, inner, pairs, parts)  # fmt: skip
    rows: list[list[float]] = inner.tolist()
    return rows


def multiply_square(s: Tensor, m: Tensor, out: Tensor, adds: bool = False) -> Tensor:
    """``s @ m`` for a small square ``m``, written into ``out``, or added to what is there."""
    call_kernel("map", out.dtype, *s.shape, s, m, out, adds)
    return out


def outer(s: Tensor, z: Tensor) -> Tensor:
    """``s.T @ z`` for two matrices of one shape."""
    segments, width = num_segments(s.shape[0]), s.shape[1]
    sums = s.new_empty(segments + 1, width, width)
    call_kernel("outer", s.dtype, *s.shape, s, z, sums, sums[1:], segments)
    return sums[0]


def relu_drop_(x: Tensor, words: np.ndarray | None = None, threshold: int = 0) -> Tensor:
    """In place: 0 where ``x`` is negative or its 16-bit word is below the threshold."""
    call_kernel("relu_drop", x.dtype, x.numel(), x, words, threshold)
    return x


def drop_values(
    values: Tensor, words: np.ndarray, threshold: int, scale: float, order: Tensor
) -> tuple[Tensor, Tensor]:
    """``values`` times ``scale`` where their word is not below the threshold, else 0; and the same in another order."""
    kept, reordered = torch.empty_like(values), torch.empty_like(values)
    call_kernel("drop_values", values.dtype, len(values), values, words, threshold, scale, order, kept, reordered)
    return kept, reordered
