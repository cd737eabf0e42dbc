"""Where the files of a data set are, and how they get there.

The data folder is the one that the caller names, else the one of ``ADAGPR_DATA``, else the user's cache. Only the cache
is filled without being asked. No byte of a file is looked at before its SHA-256 sum has matched the pinned one.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from adagpr.data.catalogue import DatasetRow, home_of, row, sums, url_of
from adagpr.errors import InputError, StorageError, reason_of
from adagpr.files import cache_folder, make_folder, sha256_file, write_bytes

OnDownload = Callable[[str, int, int | None], None]
"""Called with a file, the bytes received so far, and their total if the server says it."""

Presence = Literal["built in", "present", "partly", "missing"]
Status = Literal["ok", "missing", "altered"]

TIMEOUT = 30.0
MAX_BYTES = 64 * 2**20
_CHUNK = 64 * 2**10


@dataclass(frozen=True)
class FileStatus:
    """What `verify` found out about one file."""

    dataset: str
    file: str
    status: Status


def data_root(root: Path | str | None = None) -> Path:
    """The data folder: ``root`` if given, else ``ADAGPR_DATA`` if set, else the user's cache."""
    named = root or os.environ.get("ADAGPR_DATA")
    return Path(named).expanduser() if named else cache_folder()


def open_file(
    dataset: DatasetRow, file: str, root: Path | str | None = None, progress: OnDownload | None = None
) -> bytes:
    """The bytes of one file of a data set, with their sum checked.

    A file that the user's cache lacks is downloaded into it; a folder that the caller or ``ADAGPR_DATA`` names is only
    read.
    """
    path = data_root(root) / file
    if not path.is_file():
        if not dataset.can_be_downloaded:
            raise _not_public(dataset.name, file)
        if root or os.environ.get("ADAGPR_DATA"):
            hint = f"Get it with: {_command(dataset.name, root)}"
            raise InputError(f"Data set {dataset.name}: {file} is missing in {data_root(root)}. {hint}")
        _download(dataset.name, file, path, None, progress)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    _check(dataset.name, path, file, hashlib.sha256(content).hexdigest(), root)
    return content


def fetch(
    names: Iterable[str],
    root: Path | str | None = None,
    base_url: str | None = None,
    force: bool = False,
    progress: OnDownload | None = None,
) -> list[Path]:
    """Downloads what is missing of some data sets, or all with ``force``, and returns the files that it downloaded.

    They come from the public homes, or from ``base_url``, which is laid out like the data folder. An unknown name, an
    altered file, or one that cannot be had is an error; files that came before it stay, and none is left half written.
    """
    if base_url is not None and (urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).netloc):
        raise InputError(f"fetch: the address must start with http:// or https://, got '{base_url}'.")
    downloaded: list[Path] = []
    for dataset in [row(name) for name in names]:
        for file in dataset.files():
            path = data_root(root) / file
            if path in downloaded:
                continue
            if path.is_file() and not force:
                _check(dataset.name, path, file, sha256_file(path), root)
                continue
            _download(dataset.name, file, path, base_url, progress)
            downloaded.append(path)
    return downloaded


def verify(names: Iterable[str], root: Path | str | None = None) -> list[FileStatus]:
    """Compares every file of some data sets with its sum; downloads nothing."""
    found = []
    for dataset in [row(name) for name in names]:
        for file, total in dataset.files().items():
            path = data_root(root) / file
            status: Status = "missing" if not path.is_file() else "ok" if sha256_file(path) == total else "altered"
            found.append(FileStatus(dataset.name, file, status))
    return found


def presence(dataset: DatasetRow, root: Path | str | None = None) -> Presence:
    """Whether the files of a data set are there, without reading them."""
    found = [(data_root(root) / file).is_file() for file in dataset.files()]
    if not found:
        return "built in"
    return "present" if all(found) else "partly" if any(found) else "missing"


def _check(name: str, path: Path, file: str, found: str, root: Path | str | None) -> None:
    """Raises an `InputError` unless the sum that was ``found`` is the pinned one."""
    if found != sums()[file]:
        raise InputError(
            f"Data set {name}: {path} is not the expected file: its SHA-256 sum is {found[:12]}..., not "
            f"{sums()[file][:12]}.... Replace it with: {_command(name, root)} --force"
        )


def _command(name: str, root: Path | str | None) -> str:
    """How to download a data set into the folder that was asked for."""
    return f"adagpr data fetch {name}" + (f" --data-root {root}" if root else "")


def _not_public(name: str, file: str) -> InputError:
    """What to say about a file that has no public address."""
    home = home_of(file)
    return InputError(
        f"Data set {name}: {file} is missing and cannot be downloaded, because it is a conversion of "
        f"{home.converted_from} of github.com/{home.repository}. Name a folder that has it: ADAGPR_DATA or --data-root."
    )


def _download(name: str, file: str, path: Path, base_url: str | None, progress: OnDownload | None) -> None:
    """Receives one file, checks its sum and only then puts it in place."""
    if base_url is None and not row(name).can_be_downloaded:
        raise _not_public(name, file)
    url = url_of(file) if base_url is None else f"{base_url.rstrip('/')}/{quote(file)}"
    make_folder(path.parent)
    try:
        content = _receive(url, file, progress)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or reason_of(error)
        raise InputError(
            f"Data set {name}: {file} is missing, and {urlsplit(url).netloc} gave none ({reason}). With a network, "
            f"run: adagpr data fetch {name}. Without one, name a folder that has the files: ADAGPR_DATA or --data-root."
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != sums()[file]:
        raise InputError(
            f"Data set {name}: what {url} sent is not the expected file: its SHA-256 sum is {found[:12]}..., not "
            f"{sums()[file][:12]}.... Nothing was kept."
        )
    write_bytes(path, content)


def _receive(url: str, file: str, progress: OnDownload | None) -> bytes:
    """The whole body behind an http or https address."""
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response:  # noqa: S310 - callers admit http and https only
        stated = response.headers.get("Content-Length")
        total = int(stated) if stated and stated.isdigit() else None
        content = bytearray()
        while chunk := response.read(_CHUNK):
            content += chunk
            if len(content) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes")
            if progress is not None:
                progress(file, len(content), total)
        if total is not None and len(content) != total:
            raise ValueError(f"the connection ended after {len(content)} of {total} bytes")
        return bytes(content)
