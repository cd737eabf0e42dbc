"""Memory for large matrices that is used again, epoch after epoch.

The C library gives blocks of more than 32 MB back to the system as soon as they are free, and the system clears every
page when they are asked for again: on a graph of a million nodes that is a third of an epoch. Within `buffer_pool` they
stay, on large pages where the system has them, and are handed out again once no tensor looks at them any more; with a
folder they lie in files that are mapped into memory, for matrices that memory has no room for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from adagpr.errors import StorageError

# Smaller blocks the C library keeps itself, and has no large pages for.
_LARGE = 2**20
_HUGE_PAGE, _MADV_HUGEPAGE = 2 * 2**20, 14
# How many tensors look at a storage; without it nothing is used again.
_users = getattr(torch._C, "_storage_Use_Count", None)
_kept: list[torch.UntypedStorage] | None = None
_folder: Path | None = None


@contextlib.contextmanager
def buffer_pool(on_disk: Path | None = None) -> Iterator[None]:
    """Until the context ends large matrices are kept for those to come; contexts may be nested.

    With ``on_disk`` they lie in files of that folder, which nobody sees and which end with the process.
    """
    global _kept, _folder
    before = _kept, _folder
    if _kept is None or on_disk is not None:
        _kept, _folder = [], on_disk
    try:
        yield
    finally:
        _kept, _folder = before


def matrix_like(h: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A contiguous tensor of the shape of ``h``, and of its type unless another is given, with any content."""
    dtype = dtype or h.dtype
    size = h.numel() * dtype.itemsize
    if _kept is None or _users is None or size < _LARGE or h.device.type != "cpu":
        return torch.empty_like(h, dtype=dtype, memory_format=torch.contiguous_format)
    storage = next((item for item in _kept if item.nbytes() == size and _users(item._cdata) == 1), None)
    if storage is None:
        storage = _new(size) if _folder is None else _mapped(size, _folder)
        _kept.append(storage)
    steps = torch.empty_like(h, memory_format=torch.contiguous_format, device="meta").stride()
    return torch.empty(0, dtype=dtype).set_(storage, 0, h.shape, steps)


def matrix(
    num_rows: int, num_columns: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Tensor:
    """A matrix of any content, as `matrix_like` makes it."""
    return matrix_like(torch.empty(1, dtype=dtype, device=device).expand(num_rows, num_columns))


def _new(size: int) -> torch.UntypedStorage:
    """Memory on large pages, where the system has them."""
    storage = torch.UntypedStorage(size)
    start = -(-storage.data_ptr() // _HUGE_PAGE) * _HUGE_PAGE
    whole = (storage.data_ptr() + size - start) // _HUGE_PAGE * _HUGE_PAGE
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(whole), _MADV_HUGEPAGE)
    return storage


def _mapped(size: int, folder: Path) -> torch.UntypedStorage:
    """A file without a name: it is gone when nothing looks at it any more, however the process ends."""
    handle, path = tempfile.mkstemp(dir=folder)
    try:
        os.ftruncate(handle, size)
        return torch.from_file(path, True, size, dtype=torch.uint8).untyped_storage()
    except OSError as error:
        raise StorageError(f"Cannot keep {size} bytes in {folder}: {error.strerror}.") from error
    finally:
        os.close(handle)
        Path(path).unlink()
