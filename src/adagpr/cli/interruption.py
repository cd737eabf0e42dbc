"""A command that is stopped, by Ctrl-C or by a signal, says what the same command will do."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

# What trainings leave behind, the most telling first.
TRAINING: Mapping[str, str] = {
    "checkpoint/state.safetensors": "The same command resumes from the last checkpoint.",
    "record.json": "The same command resumes with the runs that are not complete.",
}
_NOTHING = "Nothing was saved yet; the same command starts again."


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM; whatever cleans up after Ctrl-C cleans up after it, too."""


@contextmanager
def terminable() -> Iterator[None]:
    """Lets SIGTERM end a command as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruptible(
    folder: Path | Callable[[], Path | None] | None = None, saved: Mapping[str, str] = TRAINING
) -> Iterator[None]:
    """Ends a stopped command with exit code 130 or 143, and the first sentence whose pattern fits a saved file."""
    try:
        yield
    except KeyboardInterrupt as error:
        place = folder() if callable(folder) else folder
        outlook = ""
        if place is not None:
            found = (sentence for pattern, sentence in saved.items() if any(place.rglob(pattern)))
            outlook = f" {next(found, _NOTHING)}"
        sys.stderr.write(f"Stopped.{outlook}\n")
        raise typer.Exit(143 if isinstance(error, Terminated) else 130) from None
