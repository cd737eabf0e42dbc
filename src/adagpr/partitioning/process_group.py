"""The processes that train one model together, as ``torchrun`` starts them; a process alone is a group of one.

Whatever one of them cannot do, all say: a part that is missing on one machine must not leave the others waiting.
"""

from __future__ import annotations

import contextlib
import fcntl
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

__all__ = ["Group", "PendingRows", "group_from_environment"]

T = TypeVar("T")
# How long a rank is waited for that neither answers nor has closed its connections, as after a power failure. A process
# that ends closes them at once.
PATIENCE = timedelta(minutes=10)
_SIOCGIFADDR = 0x8915


class Group:
    """A process among those of one training.

    Attributes:
        rank: Number of this process.
        size: How many there are.
        num_bytes: What this process has sent to others for products, see `all_to_all`.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.num_bytes = 0

    def sum_(self, values: Tensor) -> Tensor:
        """Adds up a tensor over all processes, in place."""
        if self.size > 1:
            with _lost():
                dist.all_reduce(values)
        return values

    def all_to_all(self, sent: Tensor, num_received: list[int], num_sent: list[int]) -> PendingRows:
        """Begins to send blocks of rows to every other process and to receive theirs.

        Args:
            sent: The rows that go to rank 0, then those to rank 1, and so on.
            num_received: How many rows come from each.
            num_sent: How many rows go to each.
        """
        received = sent.new_empty(sum(num_received), sent.shape[1])
        if self.size == 1:
            return PendingRows(received, sent, None)
        self.num_bytes += sent.numel() * sent.element_size()
        # As bytes, since not every backend knows every type of number.
        out, into = sent.contiguous().view(torch.uint8), received.view(torch.uint8)
        with _lost():
            return PendingRows(received, out, dist.all_to_all_single(into, out, num_received, num_sent, async_op=True))

    def together(self, action: Callable[[], T]) -> T:
        """Does something in every process; where it fails in one, all raise the sentence that says why."""
        result: T | None = None
        failure: AdaGPRError | None = None
        try:
            result = action()
        except AdaGPRError as error:
            failure = error
        said = self._gathered(b"" if failure is None else str(failure).encode() or b"?")
        if failure is not None:
            raise failure
        for rank, text in enumerate(said):
            if text:
                raise InputError(f"{text.decode()} (rank {rank} of {self.size})")
        return result  # type: ignore[return-value] # only a failure leaves it empty

    def broadcast(self, content: bytes) -> bytes:
        """What rank 0 has, in every process."""
        if self.size == 1:
            return content
        with _lost():
            size = torch.tensor([len(content)])
            dist.broadcast(size, 0)
            values = torch.empty(int(size), dtype=torch.uint8)
            if self.rank == 0:
                values.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else values)
            dist.broadcast(values, 0)
        return values.numpy().tobytes()

    def _gathered(self, content: bytes) -> list[bytes]:
        """The content of every process, in every process."""
        if self.size == 1:
            return [content]
        with _lost():
            sizes = torch.zeros(self.size, dtype=torch.int64)
            sizes[self.rank] = len(content)
            dist.all_reduce(sizes)
            row = torch.zeros(max(1, int(sizes.max())), dtype=torch.uint8)
            row[: len(content)] = torch.tensor(list(content), dtype=torch.uint8)
            rows = [torch.empty_like(row) for _ in range(self.size)]
            dist.all_gather(rows, row)
        return [item[:size].numpy().tobytes() for item, size in zip(rows, sizes.tolist(), strict=True)]


class PendingRows:
    """Rows on their way."""

    def __init__(self, received: Tensor, sent: Tensor, work: dist.Work | None) -> None:
        # What is sent must live until it has gone.
        self._received, self._sent, self._work = received, sent, work

    def wait(self) -> Tensor:
        """The rows, once they are here."""
        if self._work is not None:
            with _lost():
                self._work.wait()
        return self._received


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise AdaGPRError(
            "The connection to another rank was lost, or never came about. "
            "The same command goes on from the last checkpoint."
        ) from error


@contextlib.contextmanager
def group_from_environment(device: str = "cpu") -> Iterator[Group]:
    """The group that ``torchrun`` started this process in; of one process where it did not."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Group()
        return
    rank = int(os.environ["RANK"])
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    _name_interface()
    with _lost():
        dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Group(rank, size)
    finally:
        dist.destroy_process_group()


def _name_interface() -> None:
    """Tells gloo by which network the first rank is reached, unless the user did.

    It would take the address that the machine's own name stands for, which on many systems no other machine can reach.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ or not hasattr(socket, "if_nameindex"):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the system only chooses the address that it would send from.
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            if _address(probe, name) == own:
                os.environ["GLOO_SOCKET_IFNAME"] = name


def _address(probe: socket.socket, interface: str) -> str | None:
    """The address of an interface, if it has one."""
    try:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
    except OSError:
        return None
    return socket.inet_ntoa(answer[20:24])
