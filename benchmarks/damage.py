"""Ways to damage a file, for `benchmarks/attack.py`: each changes it in place and says in a few words what it did."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import tomli_w

Damage = Callable[[Path, np.random.Generator], str]


def flip_bits(path: Path, chance: np.random.Generator) -> str:
    """A few bits are the other way round."""
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    where = chance.integers(0, len(content), int(chance.integers(1, 9)))
    content[where] ^= (1 << chance.integers(0, 8, len(where))).astype(np.uint8)
    path.write_bytes(content.tobytes())
    return f"{len(where)} bits"


def cut(path: Path, chance: np.random.Generator) -> str:
    """The end is missing."""
    left = int(chance.integers(0, path.stat().st_size))
    os.truncate(path, left)
    return f"cut to {left} bytes"


def noise(path: Path, chance: np.random.Generator) -> str:
    """A piece is random bytes, or zeros, or is there twice."""
    content = path.read_bytes()
    low, high = sorted(int(place) for place in chance.integers(0, len(content) + 1, 2))
    how = chance.choice(["random", "zero", "twice", "gone"])
    piece = {"random": chance.bytes(high - low), "zero": b"\0" * (high - low), "twice": 2 * content[low:high]}
    path.write_bytes(content[:low] + piece.get(str(how), b"") + content[high:])
    return f"bytes {low} to {high} {how}"


def replace_file(path: Path, chance: np.random.Generator) -> str:
    """The file is gone, empty, a folder, a text, or a file of another kind."""
    how = str(chance.choice(["gone", "empty", "folder", "text", "other"]))
    others = [item for item in path.parent.iterdir() if item.is_file() and item != path]
    path.unlink()
    if how == "empty":
        path.touch()
    elif how == "folder":
        path.mkdir()
    elif how == "text":
        path.write_text("not what you think\n")
    elif how == "other" and others:
        shutil.copy(others[int(chance.integers(len(others)))], path)
    return how


STRANGE = [None, True, -1, 0, 7, 10**7, 2**70, 1e300, -0.5, "", "none", "x" * 300, "../../etc/passwd", "\x1b[31mred",
           [], [1, "a"], {}, {"a": 1}, [[0.1] * 3] * 2, "nan"]  # fmt: skip


def edit(path: Path, chance: np.random.Generator) -> str:
    """One value of a file of plain data, or a column of a table, or a tensor, is another one."""
    kind = path.name.rsplit(".", 1)[-1]
    if kind in ("json", "toml"):
        text = path.read_text()
        content = json.loads(text) if kind == "json" else tomllib.loads(text)
        what = edit_value(content, chance)
        path.write_text(json.dumps(content) if kind == "json" else tomli_w.dumps(without_none(content)))
        return what
    if kind == "jsonl":
        lines = path.read_text().splitlines()
        at = int(chance.integers(len(lines)))
        content = json.loads(lines[at])
        what = edit_value(content, chance)
        lines[at] = json.dumps(content)
        path.write_text("\n".join(lines) + "\n")
        return f"line {at}: {what}"
    if kind in ("parquet", "arrow", "feather"):
        table = pq.read_table(path) if kind == "parquet" else feather.read_table(str(path), memory_map=False)
        edited, what = edit_table(table, chance)
        pq.write_table(edited, path) if kind == "parquet" else feather.write_feather(
            edited, str(path), compression="uncompressed"
        )
        return what
    if kind == "safetensors":
        return edit_tensors(path, chance)
    if kind == "npz":
        with np.load(path) as file:
            arrays = dict(file)
        name = str(chance.choice(list(arrays)))
        edited = edit_array(arrays[name], chance)
        arrays = {key: value for key, value in {**arrays, name: edited}.items() if value is not None}
        np.savez(path, **arrays)
        return f"{name} is {None if edited is None else (edited.dtype, edited.shape)}"
    if kind == "csv":
        lines = path.read_text().split("\n")
        at = int(chance.integers(len(lines)))
        lines[at] = str(
            chance.choice(
                [
                    "",
                    ",",
                    lines[at] + ",1",
                    '"' + lines[at],
                    lines[at].replace(",", ";"),
                    "\0",
                    "é\x1b[2J",
                    "1e999,,,",
                    lines[0],
                ]
            )
        )
        path.write_text("\n".join(lines))
        return f"line {at}: {lines[at][:40]!r}"
    return flip_bits(path, chance)


def edit_value(content: Any, chance: np.random.Generator) -> str:
    """Replaces, removes or adds one value somewhere in plain data."""
    places = [place for place in walk(content) if place[1]]
    owner, path = places[int(chance.integers(len(places)))]
    key = path[-1]
    how = str(chance.choice(["replace", "replace", "replace", "remove", "rename"]))
    name = ".".join(map(str, path))
    if how == "remove":
        del owner[key]
        return f"{name} removed"
    if how == "rename" and isinstance(owner, dict):
        owner[f"{key}x"] = owner.pop(key)
        return f"{name} renamed"
    value = STRANGE[int(chance.integers(len(STRANGE)))]
    owner[key] = value
    return f"{name} = {str(value)[:30]!r}"


def walk(content: Any, path: tuple[Any, ...] = (), owner: Any = None) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every value of plain data with what holds it; of a long list the first three."""
    yield owner, path
    items = (
        content.items() if isinstance(content, dict) else enumerate(content[:3]) if isinstance(content, list) else ()
    )
    for key, value in items:
        yield from walk(value, (*path, key), content)


def without_none(content: Any) -> Any:
    """What TOML can hold."""
    if isinstance(content, dict):
        return {key: without_none(value) for key, value in content.items()}
    if isinstance(content, list):
        return [without_none(item) for item in content]
    return (
        "none"
        if content is None
        else content
        if not isinstance(content, int) or abs(content) < 2**63
        else float(content)
    )


def edit_table(table: pa.Table, chance: np.random.Generator) -> tuple[pa.Table, str]:
    """A column is missing, renamed, of another type, all null or repeated; or rows are missing or twice there."""
    how = str(chance.choice(["drop", "rename", "text", "null", "twice", "fewer", "none", "double", "huge"]))
    at = int(chance.integers(table.num_columns))
    name = table.column_names[at]
    if how == "drop":
        return table.drop_columns([name]), f"{name} dropped"
    if how == "rename":
        return table.rename_columns(
            [f"{each}x" if each == name else each for each in table.column_names]
        ), f"{name} renamed"
    if how in ("text", "null", "huge"):
        values = {
            "text": pa.array(["?"] * len(table)),
            "null": pa.nulls(len(table)),
            "huge": pa.array([1e300] * len(table)),
        }
        return table.set_column(at, name, values[how]), f"{name} {how}"
    if how == "twice":
        return table.append_column(name, table.column(at)), f"{name} twice"
    rows = {
        "fewer": table.slice(0, len(table) // 2),
        "none": table.slice(0, 0),
        "double": pa.concat_tables([table, table]),
    }
    return rows[how], f"rows {how}"


def edit_array(array: np.ndarray, chance: np.random.Generator) -> np.ndarray | None:
    """Another type, shape or value."""
    how = str(chance.choice(["gone", "text", "flat", "less", "nan", "huge", "negative", "complex", "scalar"]))
    if how in ("nan", "huge", "negative"):
        edited = array.astype(np.float64) if how != "negative" else array.copy()
        edited.flat[int(chance.integers(edited.size))] = {"nan": np.nan, "huge": 1e300, "negative": -(2**40) % 2**31}[
            how
        ]
        return edited
    return {"gone": None, "text": array.astype(str), "flat": array.ravel(), "less": array[: len(array) // 2],
            "complex": array.astype(complex), "scalar": np.array(3)}[how]  # fmt: skip


def edit_tensors(path: Path, chance: np.random.Generator) -> str:
    """A tensor is missing, of another type or shape, or not a number; or the header is another one."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    meta = header.pop("__metadata__", {})
    how = str(chance.choice(["gone", "dtype", "shape", "nan", "meta", "meta"]))
    name = str(chance.choice(list(header)))
    body = bytearray(content[8 + size :])
    if how == "gone":
        del header[name]
    elif how == "dtype":
        header[name]["dtype"] = str(chance.choice(["I32", "F16", "BF16", "BOOL", "F64"]))
    elif how == "shape":
        header[name]["shape"] = [*header[name]["shape"][::-1], 1]
    elif how == "nan":
        low, high = header[name]["data_offsets"]
        body[low:high] = b"\xff" * (high - low)
    else:
        inner = json.loads(meta.get("header", "{}"))
        if [*walk(inner)][1:]:
            edit_value(inner, chance)
        meta = {} if chance.random() < 0.2 else {"header": json.dumps(inner)}
    text = json.dumps({**header, "__metadata__": meta}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(body))
    return f"{name} {how}"


DAMAGES: dict[str, Damage] = {"bits": flip_bits, "cut": cut, "noise": noise, "file": replace_file, "edit": edit}
SHARES = [0.15, 0.15, 0.15, 0.1, 0.45]
