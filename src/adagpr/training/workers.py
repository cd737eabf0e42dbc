"""Work spread over processes of this machine that report back while they run.

Processes are forked, so that they start at once with all that is in memory. Each computes with one thread: the threads
of the process that it was forked from do not exist in it, and to wait for them would be to wait for ever. They end with
the process that started them, however that one ends. Where a system cannot fork, all work is done in one process.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import torch

from adagpr.errors import AdaGPRError

__all__ = ["spread"]

T = TypeVar("T")
_PR_SET_PDEATHSIG = 1


def spread(
    items: Sequence[T],
    work: Callable[[Sequence[T], Callable[[Any], None]], None],
    receive: Callable[[Any], None],
    num_workers: int,
) -> None:
    """Has the items worked on by several processes, each with an equal share.

    Args:
        items: What there is to do.
        work: Given its share of the items and a function that reports, does them.
        receive: Called here with whatever is reported.
        num_workers: Number of processes.

    Raises:
        AdaGPRError: What a process raised, or that one was ended from outside.
    """
    if num_workers < 2 or len(items) < 2 or "fork" not in multiprocessing.get_all_start_methods():
        work(items, receive)
        return
    context = multiprocessing.get_context("fork")
    workers: dict[Connection, BaseProcess] = {}
    try:
        for number in range(min(num_workers, len(items))):
            reader, writer = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(work, items[number::num_workers], writer, os.getpid()))
            process.start()
            writer.close()
            workers[reader] = process
        open_readers = list(workers)
        while open_readers:
            ready = wait(open_readers)
            for reader in [item for item in open_readers if item in ready]:
                _receive(reader, workers[reader], receive, open_readers)
    finally:
        for reader, worker in workers.items():
            worker.terminate()
            worker.join()
            reader.close()


def _receive(
    reader: Connection, process: BaseProcess, receive: Callable[[Any], None], open_readers: list[Connection]
) -> None:
    try:
        message = reader.recv()
    except EOFError:
        raise AdaGPRError(
            "A process of this command was ended from outside. The same command goes on from the last checkpoint."
        ) from None
    if message is None:
        open_readers.remove(reader)
        process.join()
    elif isinstance(message, AdaGPRError | OSError | MemoryError):
        raise message
    else:
        receive(message)


def _run(
    work: Callable[[Sequence[T], Callable[[Any], None]], None], items: Sequence[T], writer: Connection, parent: int
) -> None:
    torch.set_num_threads(1)
    # The parent ends this process when it is interrupted itself; if it is killed, the kernel does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    try:
        work(items, writer.send)
        writer.send(None)
    except (AdaGPRError, OSError, MemoryError) as error:
        writer.send(error)
