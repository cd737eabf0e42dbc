"""The ranks that train one model together, as ``torchrun`` starts them; a process alone is a group of one.

What fails in one rank is reported by all: a part that is missing on one machine must not leave the others waiting.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from adagpr.errors import AdaGPRError, InputError

T = TypeVar("T")
# How long to wait for a rank that neither answers nor has closed its connections, as after a power failure. A process
# that ends closes them at once.
PATIENCE = timedelta(minutes=10)
_SIOCGIFADDR = 0x8915


class Group:
    """One rank among those of a training; what it sends has to be on ``device``."""

    def __init__(self, rank: int = 0, size: int = 1, device: str = "cpu") -> None:
        self.rank, self.size, self.device = rank, size, device
        self.num_bytes = 0  # that this rank has sent to others for products, by `all_to_all`

    def sum_(self, values: Tensor) -> Tensor:
        """Adds up a tensor over all ranks, in place."""
        if self.size > 1:
            sent = values.to(self.device)
            with _connected():
                dist.all_reduce(sent)
            values.copy_(sent)
        return values

    def all_to_all(self, sent: Tensor, num_received: list[int], num_sent: list[int]) -> PendingRows:
        """Begins to send blocks of rows to every other rank, those for rank 0 first, and to receive theirs."""
        sent = sent.to(self.device)
        received = sent.new_empty(sum(num_received), sent.shape[1])
        if self.size == 1:
            return PendingRows(received, sent, None)
        self.num_bytes += sent.numel() * sent.element_size()
        # As bytes, since not every backend knows every type of number.
        out, into = sent.contiguous().view(torch.uint8), received.view(torch.uint8)
        with _connected():
            return PendingRows(received, out, dist.all_to_all_single(into, out, num_received, num_sent, async_op=True))

    def run_on_all_ranks(self, action: Callable[[], T]) -> T:
        """Does something in every rank; where it fails in one, all raise the sentence that says why."""
        try:
            result = action()
        except AdaGPRError as error:
            self.gather(str(error))
            raise
        messages: list[str | None] = self.gather(None)
        for rank, message in enumerate(messages):
            if message is not None:
                raise InputError(f"{message} (rank {rank} of {self.size})")
        return result

    def gather(self, content: T) -> list[T]:
        """What each rank has, in every rank."""
        values = [content] * self.size
        if self.size > 1:
            with _connected():
                dist.all_gather_object(values, content)
        return values

    def broadcast(self, content: T) -> T:
        """What rank 0 has, in every rank."""
        values = [content]
        if self.size > 1:
            with _connected():
                dist.broadcast_object_list(values, 0)
        return values[0]


class PendingRows:
    """Rows on their way."""

    def __init__(self, received: Tensor, sent: Tensor, work: dist.Work | None) -> None:
        # What is sent must live until it has gone.
        self._received, self._sent, self._work = received, sent, work

    def wait(self) -> Tensor:
        """The rows, once they are here."""
        if self._work is not None:
            with _connected():
                self._work.wait()
        return self._received


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise AdaGPRError(
            "The connection to another rank was lost, or was never made. "
            "The same command resumes from the last checkpoint."
        ) from error


@contextlib.contextmanager
def group_from_environment(device: str = "cpu") -> Iterator[Group]:
    """The group that ``torchrun`` started this process in, or a group of one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Group(device=device)
        return
    rank = int(os.environ["RANK"])
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    _name_interface()
    with _connected():
        dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Group(rank, size, device)
    finally:
        dist.destroy_process_group()


def _name_interface() -> None:
    """Tells gloo by which network the first rank is reached, unless the user did.

    By default it takes the address of the machine's own name, which on many systems no other machine can reach.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ or not hasattr(socket, "if_nameindex"):
        return
    # Without fcntl, on Windows, and without an answer gloo chooses itself.
    with contextlib.suppress(OSError, ImportError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        import fcntl

        # Nothing is sent: the system only chooses the address that it would send from.
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            # Some interfaces have no address.
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if answer[20:24] == own:
                    os.environ["GLOO_SOCKET_IFNAME"] = name
