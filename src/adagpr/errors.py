"""The exceptions of the package, and the wording that they share."""

from __future__ import annotations

import contextlib
import errno
import re
import unicodedata
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

# How torch says that there is not enough memory, on a processor and on a graphics card.
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory")


# Of what another library says, so much is quoted.
_QUOTED = 200


class AdaGPRError(Exception):
    """Base of every error that the package raises on purpose; its text is one sentence for a person."""


class InputError(AdaGPRError, ValueError):
    """The caller's input cannot be used. The command line ends with exit code 2."""


class DamagedError(InputError):
    """A file that the package wrote does not hold what it must; ``finding`` says so, ``way_out`` what to do."""

    def __init__(self, finding: str, way_out: str = "") -> None:
        super().__init__(f"{finding}. {way_out}" if way_out else finding)
        self.finding, self.way_out = finding, way_out


class BusyError(InputError):
    """Another process is at work in the same folder."""


class StorageError(AdaGPRError, OSError):
    """A file could not be written or read although the request was fine. The command line ends with exit code 1."""


class OutOfMemoryError(AdaGPRError, MemoryError):
    """There was not enough memory."""


class DivergedError(AdaGPRError):
    """The loss of a training is no longer finite."""


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """Turns what Python and torch raise when memory runs out into an `OutOfMemoryError`."""
    try:
        yield
    except AdaGPRError:
        raise
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in _OUT_OF_MEMORY):
            raise
        raise OutOfMemoryError("There is not enough memory for this.") from error


def escaped(text: object) -> str:
    r"""A text on one line, in which what a terminal would act on is written out, such as ``\x1b``."""
    found = str(text)
    if found.isprintable():
        return found
    # Other spaces than the usual one count as not printable, too.
    kept = (letter.isprintable() or unicodedata.category(letter) == "Zs" for letter in found)
    return "".join(
        letter if keep else letter.encode("unicode_escape").decode() for letter, keep in zip(found, kept, strict=True)
    )


def reason_of(error: BaseException) -> str:
    """What an exception says, for the inside of a sentence: one line without a full stop, short unless it is ours."""
    said = str(error)
    if isinstance(error, OSError):
        said = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or said
    reason = escaped(" ".join(said.split())).rstrip(".") or type(error).__name__
    return reason if len(reason) <= _QUOTED or isinstance(error, AdaGPRError) else f"{reason[:_QUOTED]} ..."


def unknown_name(kind: str, name: object, known: Iterable[str], see: str = "") -> InputError:
    """Builds the error for a name that nobody knows, offering the nearest known one."""
    names = sorted(known)
    hint = did_you_mean(name, names) or f" Known: {', '.join(names)}."
    return InputError(f"Unknown {kind} '{name}'.{hint}{f' See: {see}' if see else ''}")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Asks whether the nearest known name was meant, with a space in front; empty where none is near."""
    near = get_close_matches(str(name), sorted(known), n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""


def without_password(address: str) -> str:
    """The address of a database as it may be printed and kept; any other text as it is."""
    hidden = re.sub(r"(?i)(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]*)", r"\1...", address)
    return re.sub(r"(?<=://)([^@:]*):.*@", r"\1@", hidden, flags=re.DOTALL)
