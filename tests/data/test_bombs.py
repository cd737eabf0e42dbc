"""Small files that unpack to more than there is memory for."""

from __future__ import annotations

import gzip
import resource
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import adagpr
from adagpr.errors import InputError

SIZE = 1 << 30


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is free is 1 GB, so that a file may take 250 MB."""
    monkeypatch.setattr("adagpr.system.available_memory", lambda: 1e9)


def npz(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file, file.open("edges.npy", "w") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "|i1", "fortran_order": False, "shape": (SIZE, 1)})
        out.write(bytes(1 << 20))  # the header alone claims the rest


def csv_gz(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(b"id,y\n")
        for _ in range(40):
            out.write(b"1,a\n" * (2 << 20))


def long_header(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as out:
        for _ in range(40):
            out.write(b"x" * (8 << 20))


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array(np.zeros(SIZE // 16, dtype=np.int64))}), path)


def dictionary(path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, dtype=np.int32)), pa.array(["x" * (1 << 20)]))
    pq.write_table(pa.table({"id": texts.cast(pa.large_string())}), path)


def feather(path: Path) -> None:
    table = pa.table({"id": pa.array(np.zeros(SIZE // 16, dtype=np.int64))})
    pyarrow.feather.write_feather(table, str(path), compression="zstd")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
@pytest.mark.parametrize(
    ("write", "name"),
    [
        (npz, "a.npz"),
        (csv_gz, "a.csv.gz"),
        (long_header, "a.csv.gz"),
        (parquet, "a.parquet"),
        (dictionary, "a.parquet"),
        (feather, "a.feather"),
    ],
)
def test_a_file_that_unpacks_to_too_much_is_refused_as_memory(
    tmp_path: Path, write: Callable[[Path], None], name: str
) -> None:
    path, before = tmp_path / name, resource.getrlimit(resource.RLIMIT_AS)
    write(path)
    assert path.stat().st_size < 5_000_000
    with pytest.raises(InputError, match="not enough memory for it; unpacked it takes more than"):
        adagpr.load(path) if name.endswith("npz") else adagpr.from_tables(path, path)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
