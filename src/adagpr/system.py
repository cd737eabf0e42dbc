"""The machine: cores, memory, signals, and what a record says about it."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
import signal
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch

from adagpr.errors import InputError

# The limit is the process's, and one file at a time has it.
_GUARD = threading.RLock()
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


# Which control group a process is in, and where the groups are.
_CGROUP = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
# Of a process that is one of several; see `use_one_core`.
_most_cores = math.inf


def num_cores() -> int:
    """Cores that this process may use, by its affinity and by the quotas of its control groups."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, int(min(cores, _quota(), _most_cores)))


def use_one_core() -> None:
    """Leaves the other cores to the processes beside this one."""
    global _most_cores
    _most_cores = 1


def _quota() -> float:
    """How many cores the control groups of this process give it (Linux); infinite if they set no limit."""
    found = [math.inf]
    with contextlib.suppress(OSError, ValueError):
        own = Path(_CGROUP[0].read_text().rpartition("0::/")[2].strip())
        for folder in (_CGROUP[1] / own, *(_CGROUP[1] / parent for parent in own.parents)):
            with contextlib.suppress(OSError, ValueError):
                most, period = (folder / "cpu.max").read_text().split()
                found.append(float(most) / float(period))
    return min(found)


def forget_peak_memory() -> None:
    """Starts the measurement of peak memory anew, where the system can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def keep_freed_memory() -> None:
    """Has the C library keep what an epoch frees for the next one, instead of asking the system for it each time.

    Fresh pages cost 5 to 10 percent of an epoch. Only with the GNU C library; elsewhere nothing happens.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 * 2**20)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def peak_memory_mb() -> float:
    """Largest resident memory of this process since `forget_peak_memory`, else since it started."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    try:
        import resource
    except ImportError:  # Windows
        return math.nan
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def available_memory() -> float:
    """Bytes that this process may still ask for (Linux and its control groups); infinite where this is not known."""
    found = [float("inf")]
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(1024 * float(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        most, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
        found.append(float(most) - float(used))
    return min(found)


def require_memory(num_bytes: float, what: str) -> None:
    """Raises an `InputError` if this process may not ask for so many bytes."""
    room = available_memory()
    if num_bytes > room:
        raise InputError(f"{what} would take {num_bytes / 1e9:,.1f} GB, but {room / 1e9:,.1f} GB of memory are free.")


@contextlib.contextmanager
def memory_guard(file: str) -> Iterator[None]:
    """Refuses the ``file`` that is read in the context if that asks for more than a quarter of the free memory.

    A small file can unpack to anything. Linux keeps the limit, so that it holds inside every library.
    """
    room = available_memory() / 4
    with _GUARD, contextlib.ExitStack() as stack:
        if room < math.inf:
            import resource

            before = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            most = used + int(room)
            stack.callback(resource.setrlimit, resource.RLIMIT_AS, before)
            resource.setrlimit(resource.RLIMIT_AS, (most if soft < 0 else min(most, soft), hard))
        try:
            yield
        except MemoryError as error:
            unpacked = f"unpacked it takes more than {room / 1e9:.1f} GB, a quarter of the memory that is free"
            raise InputError(f"{file}: there is not enough memory for it; {unpacked}.") from error


def describe_machine(seconds: float) -> dict[str, Any]:
    """The ``machine`` part of a record."""
    peak = peak_memory_mb()
    return {
        "seconds": round(seconds, 3),
        "peak_memory_mb": None if math.isnan(peak) else round(peak, 1),
        "num_cores": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "adagpr": version("adagpr"),
    }


def without_machine(content: Any) -> Any:
    """Plain data without what equal results may differ in: what is under ``machine``, at any depth."""
    if isinstance(content, dict):
        return {key: without_machine(value) for key, value in content.items() if key != "machine"}
    return [without_machine(item) for item in content] if isinstance(content, list) else content


class DeferredSignals:
    """Holds back Ctrl-C, SIGTERM and SIGHUP, so that work can be saved, until `deliver` or the end of the context."""

    def __init__(self) -> None:
        self._arrived: int | None = None
        self._handlers = contextlib.ExitStack()  # puts back those of before

    @property
    def has_arrived(self) -> bool:
        """Whether a signal is held back."""
        return self._arrived is not None

    def deliver(self) -> None:
        """Lets a signal that was held back take effect, as if it came now."""
        if self._arrived is not None:
            number, self._arrived = self._arrived, None
            self._handlers.close()
            signal.raise_signal(number)

    def __enter__(self) -> Self:
        # An ignored signal stays ignored, and only a main thread can hold any back.
        is_main = threading.current_thread() is threading.main_thread()
        for name in ("SIGINT", "SIGTERM", "SIGHUP") if is_main else ():
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._handlers.callback(signal.signal, number, signal.signal(number, self._receive))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._handlers.close()
        if kind is None:
            self.deliver()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        is_second = self.has_arrived
        self._arrived = number
        if is_second:
            # Whoever asks twice does not want to wait.
            self.deliver()


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Has signals wait while a process is forked: Python would swallow the exception that one raises right after that.

    In the new process they wait until `may_be_stopped` is called.
    """
    with DeferredSignals():
        _mask("SIG_BLOCK")
        try:
            yield
        finally:
            _mask("SIG_UNBLOCK")


def may_be_stopped() -> None:
    """Lets a process that was forked receive signals, once it has said what they do."""
    _mask("SIG_UNBLOCK")


def _mask(how: str) -> None:
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(getattr(signal, how), {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
