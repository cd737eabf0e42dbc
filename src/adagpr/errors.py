"""The exceptions of the package, and the wording that they share."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["AdaGPRError", "BusyError", "InputError", "StorageError", "unknown_name"]


class AdaGPRError(Exception):
    """Base of every error that the package raises on purpose; its text is one sentence for a person."""


class InputError(AdaGPRError, ValueError):
    """What the caller gave cannot be used. The command line ends with exit code 2."""


class BusyError(InputError):
    """Another process is at work in the same folder."""


class StorageError(AdaGPRError, OSError):
    """A file could not be written or read although the request was fine. The command line ends with exit code 1."""


def unknown_name(kind: str, name: object, known: Iterable[str], see: str = "") -> InputError:
    """Builds the error for a name that nobody knows, offering the nearest known one."""
    names = sorted(known)
    near = get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else f" Known: {', '.join(names)}."
    return InputError(f"Unknown {kind} '{name}'.{hint}{f' See: {see}' if see else ''}")
