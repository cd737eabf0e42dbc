"""The matrix products of an epoch: which they are, how often they run, and what each takes alone."""

from __future__ import annotations

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

__all__ = ["PRODUCT", "Found", "Product", "Recorder", "seconds_of"]

PRODUCT = re.compile(r"^(aten::)?(mm|addmm|bmm|baddbmm|mv|addmv)_?$")
_REPEATS = 5


@dataclass(frozen=True)
class Product:
    """A matrix product of the epoch.

    Attributes:
        kind: ``"sparse"`` where an operand is a CSR matrix, else ``"dense"``.
        shapes: Shapes of both operands.
        training: How often the training step computes it.
        evaluation: How often the evaluation does.
        seconds: Time of one, alone.
    """

    kind: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    training: int
    evaluation: int
    seconds: float


@dataclass
class Found:
    """A matrix product as it ran: its operands, how often in each phase, and its time alone in each round."""

    left: Tensor
    right: Tensor
    counts: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """``"sparse"`` or ``"dense"``."""
        return "sparse" if self.left.is_sparse_csr or self.right.is_sparse_csr else "dense"

    @torch.inference_mode()
    def measure(self) -> None:
        """Times it once more."""
        left, right = self.left, self.right
        product = torch.baddbmm if left.ndim == 3 else torch.addmv if right.ndim == 1 else torch.addmm
        out = torch.matmul(left, right)
        times = [seconds_of(lambda: product(out, left, right, beta=0, out=out)) for _ in range(_REPEATS)]
        self.times.append(median(times))

    def product(self, speeds: list[float]) -> Product:
        """What was found, each round's time brought to the same speed."""
        shapes = (tuple(self.left.shape), tuple(self.right.shape))
        seconds = median(time * speed for time, speed in zip(self.times, speeds, strict=True))
        return Product(self.kind, shapes, self.counts["training"], self.counts["evaluation"], seconds)


class Recorder(TorchDispatchMode):
    """Finds the distinct matrix products that run, and the order of sparse and dense ones in each phase."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[tuple[Any, ...], Found] = {}
        self.kinds: dict[str, list[str]] = {}

    def record(self, steps: Mapping[str, Callable[[], Tensor]]) -> None:
        """Runs the steps, each a phase of its own."""
        for phase, step in steps.items():
            self.kinds[phase] = []
            with self:
                step()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Without gradients, operations that torch composes of others arrive whole.
        with self:
            result = func.decompose(*args, **(kwargs or {}))
        if result is not NotImplemented:
            return result
        if PRODUCT.match(func.overloadpacket.__name__):
            phase = [*self.kinds][-1]
            left, right = args[-2:]
            key = (_layout(left), _layout(right))
            if key not in self.found:
                self.found[key] = Found(*(item if item.is_sparse_csr else item.clone() for item in (left, right)))
            self.found[key].counts[phase] += 1
            self.kinds[phase].append(self.found[key].kind)
        return func(*args, **(kwargs or {}))


def _layout(operand: Tensor) -> tuple[Any, ...]:
    # Dropout gives sparse features new values at every step; their structure stays.
    own = operand.col_indices().data_ptr() if operand.is_sparse_csr else operand.stride()
    return tuple(operand.shape), operand.dtype, own


def seconds_of(step: Callable[[], Tensor]) -> float:
    """How long a step takes."""
    # One thread has a clock of its own, which stands still while other processes have its core.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    began = clock()
    step()
    return clock() - began
