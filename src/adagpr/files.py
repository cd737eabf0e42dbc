"""Files: atomic writes, TOML and JSON, hashes, and a lock that a killed process cannot leave behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from adagpr.errors import BusyError, InputError, StorageError, reason_of

T = TypeVar("T")

# Of a file that is being written. Nobody else names files like this, so that leftovers can be removed safely.
_TEMPORARY = re.compile(r"\..+\.\d+\.adagpr-tmp")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets ``write`` fill a temporary file beside ``path`` and renames it over ``path`` once it is safely on disk.

    Whatever happens, ``path`` holds either its old content or the whole new one.
    """
    require_file(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.adagpr-tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageError(
                f"Cannot write {path}: {reason_of(error)}. What was there before is unchanged."
            ) from error
        raise


def cache_folder() -> Path:
    """The user's cache for this package, below ``XDG_CACHE_HOME`` where that is set."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "adagpr"


def _mark(path: str | os.PathLike[str]) -> Path:
    return cache_folder() / "named" / hashlib.sha256(os.fsencode(Path(path).resolve())).hexdigest()


def remember_named(*paths: str | os.PathLike[str]) -> None:
    """Keeps in the user's cache that the user named these files, so that the runs on them may open them again."""
    for path in paths:
        # Without a cache they are named again each time.
        with contextlib.suppress(OSError):
            _mark(path).parent.mkdir(parents=True, exist_ok=True)
            _mark(path).touch()


def require_named(paths: Iterable[Path | str], author: Path | None, way: str) -> None:
    """Refuses files that the user never named, and only ``author`` did, a configuration or a run's folder.

    Those in the author's own folder are fine; ``way`` is how to name the others.
    """
    home = None if author is None else (author if author.is_dir() else author.parent).resolve()
    for path in paths:
        if not (_mark(path).exists() or (home is not None and Path(path).resolve().is_relative_to(home))):
            named = f"{author or 'The run'} names the file {path}"
            raise InputError(f"{named}, which is not opened unless you name it: {way}.")


def make_folder(path: Path) -> None:
    """Creates a folder with its parents and makes sure that a file can be written in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Such a file is gone when it is closed, however the process ends.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(f"Cannot write to the folder {path}: {reason_of(error)}.") from error


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Locks ``folder`` for this process, or raises `BusyError`, and removes what a killed one left half written."""
    with exclusive(folder, waits=False):
        for path in [*folder.iterdir(), *folder.glob("*/*")]:
            if _TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)
        yield


@contextlib.contextmanager
def exclusive(folder: Path, waits: bool = True) -> Iterator[None]:
    """Waits until no other process is in such a context with this folder; for reading, changing and writing a file."""
    from filelock import FileLock, Timeout

    try:
        lock = FileLock(folder / ".lock", blocking=waits)
        lock.acquire()
    except Timeout as error:
        raise BusyError(f"Another process is working in {folder}. Wait for it or choose another folder.") from error
    except OSError as error:
        raise InputError(f"Cannot write to the folder {folder}: {reason_of(error)}.") from error
    try:
        yield
    finally:
        lock.release()


def write_bytes(path: Path, content: bytes) -> None:
    """Writes bytes, atomically."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    """Writes text, atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    """Writes ``content`` as readable JSON, atomically; NaN and infinity are refused."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Reads a JSON file; a broken one is an `InputError` that names it."""
    return _read(path, json.loads)


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a TOML file; a broken one is an `InputError` that names it."""
    return _read(path, tomllib.loads)


def _read(path: Path, parse: Callable[[str], T]) -> T:
    try:
        require_file(path)
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot read {path}: {reason_of(error)}.") from error


def require_file(path: Path) -> None:
    """Refuses a folder, or a pipe that would be waited for; whether there is a file is for others to say."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: this is a folder, a pipe or a device, not a file.")


def to_toml(content: Mapping[str, Any]) -> str:
    """TOML text of a nested mapping. ``None``, which TOML does not have, is written as the text ``none``."""
    import tomli_w

    return tomli_w.dumps(_none_to_text(content))


def _none_to_text(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _none_to_text(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_none_to_text(item) for item in content]
    return "none" if content is None else content


def none_from_text(content: Mapping[str, Any]) -> dict[str, Any]:
    """Puts ``None`` where `to_toml` wrote the text ``none``; for options of which none is a free text."""
    return {
        key: none_from_text(value) if isinstance(value, Mapping) else None if value == "none" else value
        for key, value in content.items()
    }


def sha256_file(path: Path) -> str:
    """The SHA-256 sum of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(content: Any, length: int = 12) -> str:
    """A short hash of plain data that does not depend on the order of keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]
