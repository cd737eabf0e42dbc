"""Work spread over processes of this machine that report back while they run.

Processes are forked, so that they start at once with everything in memory. Each computes with one thread: the threads
of the process that it was forked from do not exist in it, and waiting for them would never end. Where a system cannot
fork, all work is done in one process.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import torch

from adagpr.errors import AdaGPRError, memory_errors
from adagpr.system import forking, may_be_stopped, use_one_core

T = TypeVar("T")
# Given an item and a function that reports, does what is to do; returns once all of it is reported.
Work = Callable[[T, Callable[..., Any]], None]
_PR_SET_PDEATHSIG = 1


def spread(items: Sequence[T], work: Work[T], receive: Callable[..., Any], num_workers: int) -> None:
    """Has several processes work on the items; whichever is free takes the next one.

    ``receive`` is called here with whatever ``work`` reports.

    Raises:
        AdaGPRError: A process raised it, or a process was killed.
    """
    if num_workers <= 1 or len(items) <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        for item in items:
            work(item, receive)
        return
    context = multiprocessing.get_context("fork")
    waiting = list(range(len(items)))
    workers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(min(num_workers, len(items))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_run, args=(work, items, theirs, [*workers, ours], os.getpid()))
            with forking():
                process.start()
                workers[ours] = process
            theirs.close()
            ours.send(waiting.pop(0))
        busy = list(workers)
        while busy:
            ready = wait(busy)
            for connection in [item for item in busy if item in ready]:
                try:
                    error, message = connection.recv()
                except EOFError:
                    again = "Repeat the command to resume from the last checkpoint."
                    error, message = AdaGPRError(f"A process of this command was killed. {again}"), None
                if error is not None:
                    raise error
                if message is not None:
                    receive(*message)
                elif waiting:
                    connection.send(waiting.pop(0))
                else:
                    busy.remove(connection)
    finally:
        try:
            for worker in workers.values():
                worker.terminate()
            for connection in workers:
                # A process that waits until its report is read ends only when nobody can read it any more.
                connection.close()
            for worker in workers.values():
                worker.join()
        except BaseException:
            # Whoever asks twice does not want to wait.
            for worker in workers.values():
                worker.kill()
            raise


def begin_child(parent: int) -> bool:
    """What a forked process does first: one thread, and it ends with its parent. False if that is gone already."""
    torch.set_num_threads(1)
    use_one_core()
    # The parent ends this process when it is interrupted itself; if it is killed, the kernel does.
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    may_be_stopped()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def _run(
    work: Work[T], items: Sequence[T], connection: Connection, inherited: Sequence[Connection], parent: int
) -> None:
    if not begin_child(parent):
        return
    # Copies of the parent's ends: with them open it would go unnoticed that the parent has closed its own.
    for end in inherited:
        end.close()

    def report(*message: Any) -> None:
        # A parent that is ending itself no longer listens, and has asked this process to save its work and end, too.
        with contextlib.suppress(OSError):
            connection.send((None, message))

    try:
        with memory_errors():
            while True:
                # An error and what is reported; neither of them says that an item is done.
                work(items[connection.recv()], report)
                connection.send((None, None))
    except Exception as error:
        if not isinstance(error, AdaGPRError | OSError):
            # A bug, which the parent cannot tell from this process being killed unless it gets the traceback.
            error = RuntimeError(f"A process of this command failed:\n{traceback.format_exc()}")
        with contextlib.suppress(OSError):
            connection.send((error, None))
