"""Ctrl-C in a command that can be repeated."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["interruptible"]


@contextmanager
def interruptible(outlook: str) -> Iterator[None]:
    """Ends an interrupted command with exit code 130 and a sentence.

    Args:
        outlook: What the same command does when it is repeated.
    """
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"Stopped. The same command goes on{outlook}.\n")
        raise typer.Exit(130) from None
