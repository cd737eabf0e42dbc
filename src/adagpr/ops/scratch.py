"""Memory for large matrices that is used again, epoch after epoch.

The C library gives blocks of more than 32 MB back to the system as soon as they are free, and the system clears every
page when they are asked for again: on a graph of a million nodes that is a third of an epoch. Within `reused` they
stay, on large pages where the system has them, and are handed out again once no tensor looks at them any more.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["matrix_like", "reused"]

# Below this the C library keeps blocks itself.
_LARGE = 16 * 2**20
_HUGE_PAGE, _MADV_HUGEPAGE = 2 * 2**20, 14
# How many tensors look at a storage; without it nothing is used again.
_users = getattr(torch._C, "_storage_Use_Count", None)
_kept: list[torch.UntypedStorage] | None = None


@contextlib.contextmanager
def reused() -> Iterator[None]:
    """Until the context ends large matrices are kept for those to come; contexts may be nested."""
    global _kept
    before = _kept
    _kept = [] if before is None else before
    try:
        yield
    finally:
        _kept = before


def matrix_like(h: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A contiguous tensor of the shape of ``h``, and of its type unless another is given, with any content."""
    dtype = dtype or h.dtype
    size = h.numel() * dtype.itemsize
    if _kept is None or _users is None or size < _LARGE or h.device.type != "cpu":
        return torch.empty_like(h, dtype=dtype, memory_format=torch.contiguous_format)
    storage = next((item for item in _kept if item.nbytes() == size and _users(item._cdata) == 1), None)
    if storage is None:
        storage = torch.UntypedStorage(size)
        _ask_for_huge_pages(storage)
        _kept.append(storage)
    steps = torch.empty_like(h, memory_format=torch.contiguous_format, device="meta").stride()
    return torch.empty(0, dtype=dtype).set_(storage, 0, h.shape, steps)


def _ask_for_huge_pages(storage: torch.UntypedStorage) -> None:
    start = -(-storage.data_ptr() // _HUGE_PAGE) * _HUGE_PAGE
    size = (storage.data_ptr() + storage.nbytes() - start) // _HUGE_PAGE * _HUGE_PAGE
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_HUGEPAGE)
