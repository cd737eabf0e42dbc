"""Files: atomic writes, TOML and JSON, hashes, and a lock that a killed process cannot leave behind."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from adagpr.errors import BusyError, InputError, StorageError, reason_of

T = TypeVar("T")

# Of what is being written, by which process of which machine. Nobody else names files like this.
_TEMPORARY = re.compile(r"\..+\.(\d+)\.adagpr-tmp")
_MACHINE = zlib.crc32(platform.node().encode())


def temporary_beside(path: Path) -> Path:
    """A name that only this process uses, for something that is gone at the end; a killed process leaves it behind."""
    return path.with_name(f".{path.name}.{_MACHINE << 32 | os.getpid()}.adagpr-tmp")


def remove_leftovers(paths: Iterable[Path], is_locked: bool = False) -> None:
    """Removes those paths that a killed process left half written; if nothing is locked, one of this machine."""
    for path in paths:
        found = _TEMPORARY.fullmatch(path.name)
        if found is not None and (is_locked or _is_gone(int(found[1]))):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _is_gone(number: int) -> bool:
    machine, process = divmod(number, 2**32)
    if machine != _MACHINE or os.name != "posix":
        return False
    try:
        os.kill(process, 0)
    except OSError as error:
        return error.errno == errno.ESRCH
    return False


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets ``write`` fill a temporary file beside ``path`` and renames it over ``path`` once it is safely on disk.

    Whatever happens, ``path`` holds either its old content or the whole new one.
    """
    write_together({path: write})


def write_together(writers: Mapping[Path, Callable[[Path], object]]) -> None:
    """Writes several files as `write_atomically` does one; if that fails for one of them, none is left that is new.

    Should it fail after some of them have taken the place of older ones, the error names these.
    """
    for path in writers:
        require_file(path)
    temporaries: dict[Path, Path] = {}
    new: list[Path] = []
    replaced: list[Path] = []
    path = Path()
    try:
        for path, write in writers.items():
            temporaries[path] = temporary_beside(path)
            write(temporaries[path])
            with temporaries[path].open("rb") as file:
                os.fsync(file.fileno())
        for path, temporary in temporaries.items():
            was_there = path.exists()
            temporary.replace(path)
            (replaced if was_there else new).append(path)
    except BaseException as error:
        for each in (*temporaries.values(), *new):
            with contextlib.suppress(OSError):
                each.unlink(missing_ok=True)
        if isinstance(error, OSError):
            names = ", ".join(each.name for each in replaced)
            rest = f"Written before it: {names}." if replaced else "What was there before is unchanged."
            raise StorageError(f"Cannot write {path}: {reason_of(error)}. {rest}") from error
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
    """Creates a folder with its parents, and makes sure that a file can be written in it and nothing is left over."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.iterdir())
        # Such a file is gone when it is closed, however the process ends.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(f"Cannot write to the folder {path}: {reason_of(error)}.") from error


@contextlib.contextmanager
def tidied(folder: Path) -> Iterator[None]:
    """If the context fails, removes ``folder`` and its parents again, as far as they were not there and are empty."""
    missing = list(takewhile(lambda place: not place.exists(), (folder, *folder.parents)))
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for place in missing:
                place.rmdir()
        raise


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Makes ``folder`` and locks it for this process, or raises `BusyError`; removes what a killed one left.

    If the context fails with nothing in the folder but the lock, that is gone, too.
    """
    with tidied(folder):
        make_folder(folder)
        was_locked = (folder / ".lock").exists()
        with exclusive(folder, waits=False):
            try:
                remove_leftovers([*folder.iterdir(), *folder.glob("*/*")], is_locked=True)
                yield
            except BaseException:
                if not was_locked and [path.name for path in folder.iterdir()] == [".lock"]:
                    (folder / ".lock").unlink()
                raise


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


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Writes the bytes of several files, all of them or, if one cannot be written, none that is new."""
    write_together({path: partial(Path.write_bytes, data=content) for path, content in contents.items()})


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
