"""Files: atomic writes, TOML and JSON, hashes, and a lock that a killed process cannot leave behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from adagpr.errors import BusyError, InputError, StorageError

__all__ = [
    "cache_folder",
    "digest",
    "exclusive",
    "folder_lock",
    "make_folder",
    "read_json",
    "read_toml",
    "sha256_file",
    "to_toml",
    "write_atomically",
    "write_json",
    "write_text",
    "write_toml",
]


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Lets ``write`` fill a temporary file beside ``path`` and renames it over ``path`` once it is safely on disk.

    Whatever happens, ``path`` holds either its old content or the whole new one.

    Raises:
        StorageError: The file could not be written; the temporary file is removed and ``path`` is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageError(f"Cannot write {path}: {_reason(error)}. What was there before is unchanged.") from error
        raise


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full"
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).rstrip(".")


def cache_folder() -> Path:
    """The user's cache for this package, below ``XDG_CACHE_HOME`` where that is set."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "adagpr"


def make_folder(path: Path) -> None:
    """Creates a folder with its parents and makes sure that a file can be written in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe.{os.getpid()}"
        probe.touch()
        # Whoever holds the folder clears such files away.
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"Cannot write to the folder {path}: {_reason(error)}.") from error


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Holds ``folder`` for this process and clears away what a killed one left half written.

    The kernel lets go of the lock however the process ends.
    """
    try:
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise InputError(f"Cannot write to the folder {folder}: {_reason(error)}.") from error
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(f"Another process is working in {folder}. Wait for it or choose another folder.") from error
        for leftover in [*folder.rglob(".*.tmp"), *folder.glob(".probe.*")]:
            leftover.unlink(missing_ok=True)
        yield


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Waits until no other process is in such a context with this folder; for reading, changing and writing a file."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_text(path: Path, text: str) -> None:
    """Writes text, atomically."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_json(path: Path, content: Any) -> None:
    """Writes ``content`` as readable JSON, atomically; NaN and infinity are refused."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Reads a JSON file; a broken one is an `InputError` that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot read {path}: {error}.") from error


def write_toml(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a nested mapping of plain values as TOML, atomically."""
    write_text(path, to_toml(content))


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a TOML file; a broken one is an `InputError` that names it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot read {path}: {error}.") from error


def to_toml(content: Mapping[str, Any], prefix: str = "") -> str:
    """TOML text of a nested mapping. ``None``, which TOML does not have, is written as the text ``none``."""
    plain = {key: value for key, value in content.items() if not isinstance(value, Mapping)}
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in plain.items()]
    for key, value in content.items():
        if isinstance(value, Mapping):
            name = f"{prefix}{_toml_key(key)}"
            lines += ["", f"[{name}]", to_toml(value, f"{name}.").rstrip("\n")]
    return "\n".join(lines).strip("\n") + "\n"


def _toml_key(key: str) -> str:
    bare = key.replace("_", "").replace("-", "")
    return key if bare.isascii() and bare.isalnum() else _toml_text(key)


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, (int, float)):
        return json.dumps(value)
    raise TypeError(f"TOML has no form for {type(value).__name__}")


def sha256_file(path: Path) -> str:
    """The SHA-256 sum of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(content: Any, length: int = 12) -> str:
    """A short hash of plain data that does not depend on the order of keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]
