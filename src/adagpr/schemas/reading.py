"""Reading plain data, tables and tensors that the package wrote itself, each checked against what it must hold.

Files of tensors carry a SHA-256 sum of themselves in their header, and pages of Parquet their own sums, so that a bit
that has changed is noticed wherever it is. What was written before that is read, too, and checked as far as it can be.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from torch import Tensor

from adagpr.errors import DamagedError, escaped, memory_errors, reason_of
from adagpr.files import digest, write_atomically

T = TypeVar("T")
# What a column holds: whole numbers, finite numbers, texts, texts or nothing, or names of nodes.
Column = Literal["whole", "real", "text", "optional text", "id"]
# The type and the shape of a tensor.
Kind = tuple[torch.dtype, tuple[int, ...]]

# The sum in a header while it is computed.
_NO_SUM = "0" * 64
_LONGEST = 80
_FROM_LIBRARIES = (SafetensorError, pa.ArrowException)


def start_anew(folder: Path) -> str:
    """The way out of damage to a run's folder."""
    return f"Remove the folder {folder} to start this run anew."


def damaged(path: Path, reason: str, way_out: str) -> DamagedError:
    """The error for a file that does not hold what it must."""
    return DamagedError(escaped(f"{path} is damaged ({reason})"), escaped(way_out))


@contextlib.contextmanager
def reading(path: Path, way_out: str) -> Iterator[None]:
    """Whatever fails in the context is an error that calls this file damaged, unless memory ran out."""
    try:
        with memory_errors():
            yield
    except DamagedError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, *_FROM_LIBRARIES) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else reason_of(error)
        raise damaged(path, f"{reason} is missing" if isinstance(error, KeyError) else reason, way_out) from error


def read_json(path: Path, schema: type[BaseModel], way_out: str) -> dict[str, Any]:
    """The content of a JSON file that fits a schema."""
    return _read(path, schema, way_out, lambda text: json.loads(text, parse_float=_finite, parse_constant=_finite))


def read_toml(path: Path, schema: type[BaseModel], way_out: str) -> dict[str, Any]:
    """The content of a TOML file that fits a schema."""
    return _read(path, schema, way_out, tomllib.loads)


def _read(path: Path, schema: type[BaseModel], way_out: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    with reading(path, way_out):
        content = parse(path.read_text(encoding="utf-8"))
    content = conform(path, schema, content, way_out)
    if "sha256" in schema.model_fields and content.pop("sha256", None) not in (None, digest(content, 64)):
        raise damaged(path, "its content does not have the sum in it", way_out)
    return content


def with_sum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with their sum, which `read_json` compares and takes out where the schema has it."""
    return {**content, "sha256": digest(content, 64)}


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def conform(path: Path, schema: type[BaseModel], content: Any, way_out: str) -> dict[str, Any]:
    """Plain data of a file as they are, once they are found to fit a schema."""
    try:
        schema.model_validate(content, strict=True)
    except ValidationError as error:
        raise damaged(path, _first_mistake(error), way_out) from None
    return dict(content)


def _first_mistake(error: ValidationError) -> str:
    item = error.errors(include_url=False)[0]
    place = ".".join(map(str, item["loc"]))
    rule = re.sub("^[A-Za-z]+ should", "must", item["msg"]).replace("Value error, ", "")
    if item["type"] == "missing":
        return f"{place} is missing"
    if item["type"] == "value_error":
        return f"{place} {rule}" if place else rule
    text = repr(item["input"])
    return f"{place or 'the content'} {rule}, got {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'}"


def read_parquet(path: Path, columns: Mapping[str, Column], num_rows: int, way_out: str) -> pa.Table:
    """A Parquet file, or a folder of them, with so many rows and at least these columns."""
    with reading(path, way_out):
        table = pq.read_table(path, page_checksum_verification=True)
        table.validate(full=True)
    check_columns(path, table, columns, num_rows, way_out)
    return table


def check_columns(path: Path, table: pa.Table, columns: Mapping[str, Column], num_rows: int, way_out: str) -> None:
    """Raises unless a table has so many rows and each of these columns once, with what it must hold."""
    if len(table) != num_rows:
        raise damaged(path, f"there must be {num_rows} rows, got {len(table)}", way_out)
    for name, kind in columns.items():
        if (count := table.column_names.count(name)) != 1:
            raise damaged(path, f"column '{name}' {'is missing' if count == 0 else 'is there twice'}", way_out)
        values = table[name]
        is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        fits = {
            "whole": pa.types.is_integer(values.type),
            "real": pa.types.is_floating(values.type),
            "text": is_text,
            "optional text": is_text or pa.types.is_null(values.type),
            "id": is_text or pa.types.is_integer(values.type),
        }[kind]
        if not fits:
            raise damaged(path, f"column '{name}' must hold {kind} values, got {values.type}", way_out)
        if kind != "optional text" and values.null_count:
            raise damaged(path, f"column '{name}' lacks values", way_out)
        if kind == "real" and not np.isfinite(values.to_numpy()).all():
            raise damaged(path, f"column '{name}' holds a value that is no finite number", way_out)


def check_tensors(path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Kind], way_out: str) -> None:
    """Raises unless there are exactly the expected tensors, each of its type and shape."""
    for name in sorted({*tensors, *expected}):
        if name not in expected:
            raise damaged(path, f"there must be no tensor '{name}'", way_out)
        if name not in tensors:
            raise damaged(path, f"tensor '{name}' is missing", way_out)
    for name, found in kinds(tensors).items():
        if found != expected[name]:
            raise damaged(path, f"tensor '{name}' must be {_words(expected[name])}, got {_words(found)}", way_out)


def kinds(tensors: Mapping[str, Tensor]) -> dict[str, Kind]:
    """The type and the shape of each tensor."""
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def _words(kind: Kind) -> str:
    dtype, shape = kind
    return f"{' x '.join(map(str, shape)) or 'one number'} of {str(dtype).removeprefix('torch.')}"


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any], previous: Path | None = None
) -> None:
    """Writes named tensors and a header of plain data as safetensors, atomically; ``previous`` keeps what was there."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = safetensors.torch.save(contiguous, {"header": json.dumps({"sha256": _NO_SUM, **header})})
    sealed = content.replace(_NO_SUM.encode(), hashlib.sha256(content).hexdigest().encode(), 1)

    def write(temporary: Path) -> None:
        temporary.write_bytes(sealed)
        if previous is not None and path.exists():
            path.replace(previous)

    write_atomically(path, write)


def load_tensors(path: Path, way_out: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads what `save_tensors` wrote."""
    with reading(path, way_out):
        content = path.read_bytes()
    return parse_tensors(path, content, way_out)


def parse_tensors(path: Path, content: bytes, way_out: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a file's content, which must have the sum that it carries, if it carries one."""
    with reading(path, way_out):
        tensors = safetensors.torch.load(content)
        end = 8 + int.from_bytes(content[:8], "little")
        header = dict(json.loads(json.loads(content[8:end])["__metadata__"]["header"]))
        stored = header.pop("sha256", None)
        if stored is not None:
            found = hashlib.sha256(content[:end].replace(str(stored).encode(), _NO_SUM.encode(), 1))
            found.update(memoryview(content)[end:])
            if found.hexdigest() != stored:
                raise ValueError("its content does not have the sum in its header")
    return tensors, header
