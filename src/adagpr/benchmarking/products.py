"""The matrix products of an epoch: which they are, how often they run, and what each takes alone."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from adagpr.ops import call_kernel, watch_kernels

# Kernels of `adagpr.ops.kernels` that are products, with what they add in the same pass.
SPARSE_KERNELS, DENSE_KERNELS = ("weighted_hops", "weighted_hops_backward"), ("multiply_square", "outer")
PRODUCT = re.compile(r"^(aten::)?(mm|addmm|bmm|baddbmm|mv|addmv)_?$")
_REPEATS = 5


@dataclass
class Product:
    """A matrix product of the epoch: how to run it alone, how often it runs in each phase, and how long it takes."""

    kind: str  # sparse where an operand is a CSR matrix, else dense
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    multiplications: int
    number: int  # of products that `step` does, one hop after another where it sums weighted hops
    step: Callable[[], Any]  # on operands of its own
    counts: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)  # seconds of one product, alone, in each round
    seconds: float = math.nan  # their median, all rounds brought to the same speed

    @classmethod
    def of_torch(cls, left: Tensor, right: Tensor) -> Product:
        """A product of torch's, into memory that is already there."""
        left, right = (item if item.is_sparse_csr else item.clone() for item in (left, right))
        product = torch.baddbmm if left.ndim == 3 else torch.addmv if right.ndim == 1 else torch.addmm
        out = torch.matmul(left, right)
        is_sparse = left.is_sparse_csr or right.is_sparse_csr
        count = len(left.values()) * right.shape[1] if is_sparse else left.numel() * right.shape[-1]
        shapes = (tuple(left.shape), tuple(right.shape))
        kind = "sparse" if is_sparse else "dense"
        return cls(kind, shapes, count, 1, lambda: product(out, left, right, beta=0, out=out))

    @classmethod
    def of_kernel(cls, name: str, arguments: dict[str, Any], number: int) -> Product:
        """A product by a kernel of our own, with all that it does in the same pass."""
        own: dict[str, Any] = {
            key: item.clone() if isinstance(item, Tensor) else item for key, item in arguments.items()
        }
        tensor = next(item for item in own.values() if isinstance(item, Tensor) and item.is_floating_point())
        rows, width = own["num_rows"], own["width"]
        if name in SPARSE_KERNELS:
            shapes, count = ((rows, rows), (rows, width)), len(own["values"]) * width
        else:
            shapes, count = ((rows, width), (width, width)), rows * width * width
        kind = "sparse" if name in SPARSE_KERNELS else "dense"
        return cls(kind, shapes, count, number, lambda: call_kernel(name, tensor.dtype, **own))

    @torch.inference_mode()
    def measure(self) -> None:
        """Times it once more."""
        self.step()
        self.times.append(median(seconds_of(self.step) for _ in range(_REPEATS)) / self.number)

    def to_plain(self) -> dict[str, Any]:
        """For a record."""
        counts = {phase: self.counts[phase] for phase in ("training", "evaluation")}
        return {"kind": self.kind, "shapes": self.shapes, **counts, "seconds": self.seconds}


class Recorder(TorchDispatchMode):
    """Finds the distinct matrix products that run, and the order of sparse and dense ones of torch's in each phase."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[tuple[Any, ...], Product] = {}
        self.kinds: dict[str, list[str]] = {}

    def record(self, steps: Mapping[str, Callable[[], Any]]) -> None:
        """Runs the steps, each a phase of its own."""
        for phase, step in steps.items():
            self.kinds[phase] = []
            with self, watch_kernels(self._kernel):
                step()

    def _kernel(self, name: str, arguments: dict[str, Any], run: Callable[[], None]) -> None:
        number = _num_hops(name, arguments) if name in SPARSE_KERNELS else int(name in DENSE_KERNELS)
        if number:
            values = tuple(arguments.values())
            key = (name, number, *(item for item in values if isinstance(item, int)), _layout(values))
            if key not in self.found:
                self.found[key] = Product.of_kernel(name, arguments, number)
            self.found[key].counts[[*self.kinds][-1]] += number
        run()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Without gradients, operations that torch composes of others arrive whole.
        with self:
            result = func.decompose(*args, **(kwargs or {}))
        if result is not NotImplemented:
            return result
        if PRODUCT.match(func.overloadpacket.__name__):
            phase = [*self.kinds][-1]
            left, right = args[-2:]
            key = (_layout((left,)), _layout((right,)))
            if key not in self.found:
                self.found[key] = Product.of_torch(left, right)
            self.found[key].counts[phase] += 1
            self.kinds[phase].append(self.found[key].kind)
        return func(*args, **(kwargs or {}))


def _num_hops(name: str, arguments: dict[str, Any]) -> int:
    """How many products a weighted sum of hops does: forward none beyond the last hop with a weight."""
    num_hops: int = arguments["num_hops"]
    used = arguments["mu"].reshape(num_hops, -1).any(axis=1).nonzero()[0]
    return int(used.max(initial=0)) if name == "weighted_hops" else num_hops - 1


def _layout(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """What tells operands apart: dropout gives sparse features new values at every step, their structure stays."""
    found: list[Any] = []
    for item in operands:
        if isinstance(item, Tensor) and item.is_sparse_csr:
            found.append((tuple(item.shape), item.dtype, item.col_indices().data_ptr()))
        elif isinstance(item, Tensor):
            place = None if item.is_floating_point() else item.data_ptr()
            found.append((tuple(item.shape), item.dtype, item.stride(), place))
    return tuple(found)


def seconds_of(step: Callable[[], Any]) -> float:
    """How long a step takes."""
    # One thread has a clock of its own, which stops while other processes have its core.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    began = clock()
    step()
    return clock() - began
