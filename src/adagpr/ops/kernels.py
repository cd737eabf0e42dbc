"""Kernels in C for the inner loops of layers: a product, what is added to it and what is measured of it in one pass.

They are compiled when the package is installed (see ``hatch_build.py``), once for each kind of processor, and have
threads of their own (``kernels/threads.h``); their bits do not depend on how many. A kernel takes a pointer to one
struct, declared in ``kernels/arguments.h``, where its members are explained; that file is read here, so that both sides
agree. Where there are no kernels torch's operations do the same, slower (see `adagpr.ops.backend`); with
``ADAGPR_KERNELS=torch`` in the environment they do it everywhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from adagpr.errors import InputError
from adagpr.ops.buffers import matrix, matrix_like
from adagpr.seeding import set_states, states_of

Around = Callable[[str, dict[str, Any], Callable[[], None]], None]

# What torch calls the processor, and what a file for it is called; the first that is there is taken.
_KINDS = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}
_TYPES = {torch.float32: "float", torch.float64: "double"}

# The widths of `multiply_square` and `outer`: multiples of the longest vector, such that a square stays in the cache.
_VECTOR, _WIDEST = 16, 256
# How the rows are cut whose sums `outer` adds up.
_MOST_SEGMENTS, _ROWS_PER_SEGMENT = 16, 256


def folder() -> Path:
    """Where sources and compiled files are."""
    return Path(__file__).parent / "kernels"


def source_hash(folder: Path) -> int:
    """What tells sources apart; ``hatch_build.py`` has the same function and compiles its result in."""
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.[ch]")))
    return int(hashlib.sha256(sources).hexdigest()[:16], 16)


@cache
def library() -> ctypes.CDLL | None:
    """The kernels for this processor, where they were compiled from the sources that are here."""
    if os.environ.get("ADAGPR_KERNELS") == "torch":
        return None
    kinds = _KINDS.get(torch.backends.cpu.get_cpu_capability(), ("default",))
    path = next((path for kind in kinds if (path := folder() / f"kernels-{kind}.so").exists()), None)
    if path is None:
        return None
    with contextlib.suppress(OSError, ValueError):  # compiled for another system, or without a hash
        found = ctypes.CDLL(str(path))
        if ctypes.c_uint64.in_dll(found, "compiled_hash").value == source_hash(folder()):
            return found
    warnings.warn(
        f"adagpr: {path.name} was compiled from other sources, so layers are computed without kernels of their own, "
        "slower. Install the package again to compile it.",
        stacklevel=2,
    )
    return None


@cache
def _structures() -> dict[str, type[ctypes.Structure]]:
    """The arguments of each kernel as ``arguments.h`` declares them; see there."""
    kinds = {"int64_t": ctypes.c_int64, "double": ctypes.c_double}
    text = re.sub(r"/\*.*?\*/", "", (folder() / "arguments.h").read_text(), flags=re.DOTALL)
    found: dict[str, type[ctypes.Structure]] = {}
    for members, names in re.findall(r"typedef struct \{(.*?)\} (.*?);\n", text, flags=re.DOTALL):
        fields: list[tuple[str, Any]] = []
        for declaration in members.split(";")[:-1]:
            kind, declared = declaration.strip().removeprefix("const ").split(maxsplit=1)
            for item in declared.split(","):
                fields.append((item.split("*")[-1].strip(), ctypes.c_void_p if "*" in item else kinds[kind]))
        structure = type("Arguments", (ctypes.Structure,), {"_fields_": fields})
        found |= dict.fromkeys(re.findall(r"NAME\((\w+)_arguments\)", names), structure)
    return found


# How many threads kernels use; none for as many as torch's operations.
_num_threads: int | None = None


def num_threads() -> int:
    """How many threads kernels use now."""
    return _num_threads or torch.get_num_threads()


@contextlib.contextmanager
def compute_threads(count: int | None = None) -> Iterator[None]:
    """Until the context ends kernels use so many threads, by default as many as before, and torch's operations one.

    The bits of torch's sums and products depend on how many threads they use, those of the kernels do not: this way
    the number is a matter of speed alone.
    """
    global _num_threads
    before = _num_threads, torch.get_num_threads()
    _num_threads = count or num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _num_threads = before[0]
        torch.set_num_threads(before[1])


# Told of every call where somebody watches.
_around: Around | None = None


def call_kernel(name: str, dtype: torch.dtype, **arguments: Any) -> None:
    """Calls a kernel with the members of its struct; a tensor or an array is given as its address.

    Raises:
        InputError: A tensor is not contiguous, is on another device, or has floating-point numbers of another type.
    """
    if _around is None:
        _run(name, dtype, arguments)
    else:
        _around(name, arguments, lambda: _run(name, dtype, arguments))


def _run(name: str, dtype: torch.dtype, arguments: dict[str, Any]) -> None:
    types, members = (dtype, torch.int32, torch.int64), dict(arguments)
    for key, value in arguments.items():
        if isinstance(value, Tensor):
            if not (value.is_cpu and value.is_contiguous() and value.dtype in types):
                raise InputError(f"{name}: {key} must be contiguous {dtype} on a CPU, got {value.dtype}.")
            members[key] = value.data_ptr()
        elif isinstance(value, np.ndarray):
            members[key] = value.ctypes.data
    structure = _structures()[name](num_threads=num_threads(), **members)
    getattr(library(), f"{name}_{_TYPES[dtype]}")(ctypes.byref(structure))


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


def supports_dense(h: Tensor) -> bool:
    """Whether the kernels can compute with a matrix."""
    return h.is_contiguous() and supports_kernels(h)


def supports_kernels(h: Tensor) -> bool:
    """Whether the kernels can read the numbers of a tensor in the order in which they lie in memory."""
    return h.device.type == "cpu" and h.dtype in _TYPES and library() is not None


def supports_csr(matrix: Tensor, h: Tensor) -> bool:
    """Whether the kernels can multiply a CSR tensor with a matrix that they support."""
    return matrix.dtype == h.dtype and matrix.col_indices().dtype == torch.int32


def supports_square(h: Tensor) -> bool:
    """Whether `multiply_square` and `outer` can compute with a matrix that the kernels support."""
    return h.shape[1] % _VECTOR == 0 and h.shape[1] <= _WIDEST


def csr_parts(matrix: Tensor) -> dict[str, Tensor]:
    """What a CSR tensor consists of, as kernels take it."""
    return {"starts": matrix.crow_indices(), "columns": matrix.col_indices(), "values": matrix.values()}


def addresses(items: Sequence[Tensor | np.ndarray]) -> np.ndarray:
    """Where each of some tensors or arrays begins."""
    found = [item.data_ptr() if isinstance(item, Tensor) else item.ctypes.data for item in items]
    return np.array(found, dtype=np.uint64)


def room_for_chunks(h: Tensor, count: int) -> Tensor:
    """Memory for so many chunks of rows for each thread."""
    return h.new_empty(count * _rows_per_chunk() * num_threads(), h.shape[1])


def _rows_per_chunk() -> int:
    return ctypes.c_int64.in_dll(library(), "rows_per_chunk").value  # type: ignore[arg-type]


def room_for_sums(num_rows: int, num_blocks: int) -> dict[str, np.ndarray]:
    """Memory that the sums over rows need: two numbers for each block, and two for each chunk of rows."""
    return {"pairs": np.empty(2 * num_blocks), "parts": np.empty(2 * chunks_of(num_rows, num_blocks))}


def chunks_of(num_rows: int, num_blocks: int) -> int:
    """In how many chunks of rows a matrix is computed."""
    return num_blocks * math.ceil(num_rows // num_blocks / _rows_per_chunk())


def num_segments(num_rows: int) -> int:
    """In how many segments `outer` cuts rows."""
    return max(1, min(_MOST_SEGMENTS, num_rows // _ROWS_PER_SEGMENT))


def shape_of(h: Tensor, num_blocks: int, *others: Tensor | None) -> dict[str, int]:
    """The shape of a matrix, which all others must have."""
    for other in others:
        if other is not None and other.shape != h.shape:
            raise InputError(f"kernels: matrices must all be {tuple(h.shape)}, got {tuple(other.shape)}.")
    return {"num_rows": h.shape[0], "num_blocks": num_blocks, "width": h.shape[1]}


def weighted_hops(
    matrix: Tensor, h: Tensor, mu: np.ndarray, out: Tensor, spare: Tensor | None, plus: Tensor | None, share: float
) -> Tensor:
    """``share * plus + sum_k mu[k] matrix^k h``, written into ``out``, for a CSR tensor that `supports_csr`."""
    if (out.shape[0], h.shape[0]) != matrix.shape:
        raise InputError(f"kernels: {tuple(matrix.shape)} times {tuple(h.shape)} does not give {tuple(out.shape)}.")
    num_hops, num_blocks = mu.shape
    call_kernel("weighted_hops", out.dtype, **shape_of(out, num_blocks, spare, plus), **csr_parts(matrix), h=h, mu=mu,
                num_hops=num_hops, plus=plus if share != 0.0 else None, share=share, out=out, spare=spare)  # fmt: skip
    return out


def multiply_square(s: Tensor, m: Tensor, out: Tensor, adds: bool = False) -> Tensor:
    """``s @ m`` for a small square ``m``, written into ``out``, or added to what is there."""
    shape = shape_of(s, 1, out)
    call_kernel("multiply_square", out.dtype, num_rows=len(s), width=shape["width"], s=s, m=m, out=out, adds=adds)
    return out


def outer(s: Tensor, z: Tensor) -> Tensor:
    """``s.T @ z`` for two matrices of one shape."""
    segments, width = num_segments(s.shape[0]), shape_of(s, 1, z)["width"]
    sums = s.new_empty(segments + 1, width, width)
    call_kernel("outer", s.dtype, num_rows=len(s), width=width, s=s, z=z, out=sums, partial=sums[1:],
                num_segments=segments)  # fmt: skip
    return sums[0]


def normalise(name: str, z: Tensor, grad: Tensor | None, num_blocks: int, **others: Any) -> Tensor:
    """A kernel of ``kernels/norms.h``; returns the sums that it gives, float64, ``[blocks, 2, columns]``."""
    shape = shape_of(z, num_blocks, grad)
    sums, parts = (np.empty((count, 2, z.shape[1])) for count in (num_blocks, chunks_of(len(z), num_blocks)))
    call_kernel(name, z.dtype, **shape, z=z, grad=grad, sums=sums, parts=parts, **others)
    return torch.from_numpy(sums)


class FusedStack(torch.autograd.Function):
    """All layers of a residual stack in one call each way, for operators that are one matrix; see `residual_stack`.

    The same kernels in the same order as layer by layer, hence the same bits, without the time of Python and torch in
    between: on a small graph that is a third of an epoch. Dropout draws the words that the generators would give, and
    leaves them where they would be then.
    """

    @staticmethod
    def forward(ctx: Any, h_0: Tensor, coeffs: Tensor, layers: Any, keep: bool, *weights: Tensor) -> Tensor:
        """The output of the last layer."""
        (num_rows, width), depth = h_0.shape, len(coeffs) if keep else 1
        mu, num_hops = layers.weights_of(coeffs)
        ys, sums = (matrix(depth * num_rows, width, h_0.dtype) for _ in range(2))
        masks, last, states, words = layers.masks, matrix_like(h_0), None, None
        if masks.rate > 0:
            num_blocks, states = coeffs.shape[1], states_of(masks.generators)
            words = matrix(2 * num_blocks, -(-num_rows // num_blocks * width // 4), torch.int64)
        call_kernel(
            "stack", h_0.dtype, **_of_layers(layers, h_0, mu, num_hops, weights), threshold=masks.threshold,
            states=states, words=words, stride=num_rows * width if keep else 0, y=ys, s=sums, last=last,
            maps=h_0.new_empty(len(weights) * layers.num_maps, width, width),
        )  # fmt: skip
        if states is not None:
            set_states(masks.generators, states)
        if keep:
            ctx.save_for_backward(h_0, ys, sums, last, *weights)
            ctx.layers, ctx.num_hops, ctx.mu = layers, num_hops, mu
        return last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the first matrix, of the coefficients and of the weights."""
        h_0, ys, sums, last, *weights = ctx.saved_tensors
        layers, num_hops, mu = ctx.layers, ctx.num_hops, ctx.mu
        (num_rows, width), num_blocks, num_maps = last.shape, mu.shape[2], len(weights) * layers.num_maps
        given, grad, shared, back = grad.contiguous(), matrix_like(last), matrix_like(last), matrix_like(last)
        segments, inner = num_segments(num_rows // num_blocks), np.zeros(mu.shape)
        squares = last.new_empty(2 * num_maps + segments, width, width)
        outers, maps, partial = squares.split([num_maps, num_maps, segments])
        # What is positive in a layer's output was positive and kept: the output is its own mask.
        call_kernel(
            "stack_backward", last.dtype, **_of_layers(layers, h_0, mu, num_hops, weights, transposed=True),
            stride=num_rows * width, y=ys, s=sums, last=last, given=given, grad=grad, shared=shared, back=back,
            outers=outers, inner=inner, maps=maps, partial=partial, num_segments=segments,
            **room_for_sums(num_rows, num_blocks),
        )  # fmt: skip
        gradients = outers.view(len(weights), -1, width).unbind()
        return grad, layers.coeff_gradients(torch.from_numpy(inner), last), None, None, *gradients


def _of_layers(
    layers: Any, h_0: Tensor, mu: np.ndarray, num_hops: np.ndarray, weights: Sequence[Tensor], transposed: bool = False
) -> dict[str, Any]:
    """What both directions of a stack are given."""
    depth, most_hops, num_blocks = mu.shape
    return {
        **shape_of(h_0, num_blocks),
        **csr_parts(layers.operator.single_matrix(transposed)),
        "h_0": h_0,
        "num_layers": depth,
        "most_hops": most_hops,
        "num_hops": num_hops,
        "mu": mu,
        "num_maps": layers.num_maps,
        "weights": addresses(weights),
        "shapes": layers.shapes(h_0, num_blocks),
        "shares": np.array(layers.shares),
        "scale": layers.masks.scale,
        "room": room_for_chunks(h_0, 2),
        "spare": matrix_like(h_0) if num_hops.max() > 2 else None,
    }
