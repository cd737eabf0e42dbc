"""A command that is stopped, by Ctrl-C or by a signal, says what the same command will do."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import typer

from adagpr.errors import InputError

# What trainings leave behind, the most telling first; ``{epochs}`` are those of checkpoints.
TRAINING: Mapping[str, str] = {
    "checkpoint/state.safetensors": "The same command resumes from {epochs}.",
    "record.json": "The same command resumes with the runs that are not complete.",
}
_NOTHING = "Nothing was saved yet; the same command starts again."


class Terminated(KeyboardInterrupt):
    """The process was asked to end by the signal in its arguments; what cleans up after Ctrl-C cleans up after it."""


@contextmanager
def terminable() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP, unless they are ignored, end a command as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    with ExitStack() as handlers:
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                handlers.callback(signal.signal, number, signal.signal(number, stop))
        yield


@contextmanager
def interruptible(
    folder: Path | Callable[[], Path | None] | None = None, saved: Mapping[str, str] = TRAINING
) -> Iterator[None]:
    """Ends a stopped command with exit code 130, 143 or 129, and the first sentence whose pattern fits a saved file."""
    try:
        yield
    except KeyboardInterrupt as error:
        place = folder() if callable(folder) else folder
        outlook = ""
        if place is not None:
            files = {sentence: list(place.rglob(pattern)) for pattern, sentence in saved.items()}
            sentence = next((sentence for sentence in saved.values() if files[sentence]), _NOTHING)
            outlook = f" {sentence.format(epochs=_epochs(files[sentence]))}" if "{" in sentence else f" {sentence}"
        sys.stderr.write(f"Stopped.{outlook}\n")
        number = error.args[0] if isinstance(error, Terminated) else signal.SIGINT
        raise typer.Exit(128 + number) from None


def _epochs(checkpoints: Sequence[Path]) -> str:
    """After how many epochs checkpoints were written."""
    from adagpr.training import saved_epochs

    try:
        found = sorted(map(saved_epochs, checkpoints))
    except InputError:
        return "the last checkpoint"
    epochs = f"epoch {found[0]}" if found[0] == found[-1] else f"epochs {found[0]} to {found[-1]}"
    return epochs if len(found) == 1 else f"{epochs} in {len(found)} runs"
