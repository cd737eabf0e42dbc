"""The folder of a run, and how a run that was killed resumes.

A folder holds ``config.toml``, while it trains ``checkpoint/state.safetensors``, and at the end ``model.safetensors``,
``history.parquet``, ``predictions.parquet``, for a graph from tables ``recipe.json``, and, written last,
``record.json``: if it is there, the run is complete. Every file is replaced atomically. The checkpoint carries
parameters, the best parameters so far, Adam's moments, the history, the stopping rule's counters and the state of
every random stream, so that a resumed training ends with the bits of an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from adagpr.errors import InputError, memory_errors, reason_of
from adagpr.files import folder_lock, make_folder, read_json, to_toml, write_atomically, write_json, write_text
from adagpr.nn import Model, build
from adagpr.training.config import Setup, differences, read_config
from adagpr.training.run import RECORD_FORMAT, Run
from adagpr.training.state import State


class RunFolder:
    """The folder of one run, on a graph in memory or on a partition."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checkpoint = path / "checkpoint" / "state.safetensors"

    @property
    def is_complete(self) -> bool:
        """Whether the folder holds a finished run."""
        return (self.path / "record.json").exists()

    def check(self, setup: Setup) -> None:
        """Refuses a folder that holds a run of another configuration."""
        path = self.path / "config.toml"
        try:
            if not path.exists():
                return
            stored = read_config(path)
        except OSError as error:
            raise InputError(f"Cannot read the folder {self.path}: {error.strerror}.") from error
        # Both sides go through JSON, so that a tuple and a list count as equal.
        different = differences(stored, json.loads(json.dumps(setup.plain)))
        if different:
            raise InputError(
                f"{self.path} holds a run of another configuration; these keys differ: {', '.join(different)}. "
                "Choose another folder, or remove this one."
            )

    @contextlib.contextmanager
    def hold(self, setup: Setup) -> Iterator[None]:
        """Makes the folder, locks it for this process, and writes the configuration; that of a complete run stays."""
        self.check(setup)
        if self.is_complete:
            yield
            return
        make_folder(self.path)
        with folder_lock(self.path):
            # Another process may have started the run since it was looked at.
            self.check(setup)
            if not (self.path / "config.toml").exists():
                # TOML has no null, and a column may be called "none": what was not given is left out.
                data = {key: value for key, value in setup.plain["data"].items() if value is not None}
                write_text(self.path / "config.toml", to_toml({**setup.plain, "data": data}))
            yield

    def save_checkpoint(self, state: State) -> None:
        """Writes all of a training in progress."""
        make_folder(self._checkpoint.parent)
        save_tensors(self._checkpoint, *state.tensors())

    def read_checkpoint(self) -> bytes | None:
        """The content of the last checkpoint, if there is one."""
        with _damage(self._checkpoint):
            return self._checkpoint.read_bytes() if self._checkpoint.exists() else None

    def restore(self, state: State, checkpoint: bytes | None) -> None:
        """Puts the content of a checkpoint, if there is one, into ``state``."""
        if checkpoint is not None:
            with _damage(self._checkpoint):
                state.restore(*_parse_tensors(checkpoint))

    def remove_checkpoint(self) -> None:
        """Removes the checkpoint of a complete run."""
        shutil.rmtree(self._checkpoint.parent, ignore_errors=True)

    def save(self, record: dict[str, Any], model: Model, tables: Mapping[str, pa.Table], recipe: Any) -> None:
        """Writes a finished run, the record last."""
        save_tensors(self.path / "model.safetensors", model.state_dict(), {})
        for name, table in tables.items():
            write_table(self.path / f"{name}.parquet", table)
        if recipe is not None:
            write_json(self.path / "recipe.json", recipe)
        write_json(self.path / "record.json", record)
        self.remove_checkpoint()


def load_run(folder: Path | str) -> Run:
    """Reads a complete run back from its folder."""
    folder = Path(folder)
    if not (folder / "record.json").exists():
        raise InputError(f"{folder} holds no complete run: there is no record.json in it.")
    try:
        with memory_errors():
            record = read_json(folder / "record.json")
            if not 1 <= record["format"] <= RECORD_FORMAT:
                known = f"this version reads up to {RECORD_FORMAT}"
                raise InputError(f"its record has the format {record['format']}; {known}")
            data, arguments = record["data"], dict(record["config"]["model"])
            sizes = {"in_channels": data["num_features"], "out_channels": len(data["class_names"])}
            model = build(arguments.pop("name"), {**sizes, **arguments})
            model.load_state_dict(load_tensors(folder / "model.safetensors")[0])
            tables = [pq.read_table(folder / f"{part}.parquet") for part in ("history", "predictions")]
            recipe = read_json(folder / "recipe.json") if (folder / "recipe.json").exists() else None
    except (InputError, KeyError, TypeError, RuntimeError, OSError, pa.ArrowException) as error:
        raise InputError(
            f"The run in {folder} is damaged ({reason_of(error)}). Remove the folder to start it anew."
        ) from error
    model.eval()
    return Run(record, model, tables[0], tables[1], folder, recipe)


def write_table(path: Path, table: pa.Table) -> None:
    """Writes a table as Parquet, atomically."""
    write_atomically(path, lambda temporary: pq.write_table(table, temporary))


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Writes named tensors and a header of plain data as safetensors, atomically."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = safetensors.torch.save(contiguous, {"header": json.dumps(header)})
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads what `save_tensors` wrote; a damaged file is an `InputError` that names it."""
    with _damage(path):
        return _parse_tensors(path.read_bytes())


def _parse_tensors(content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = safetensors.torch.load(content)
    size = int.from_bytes(content[:8], "little")
    return tensors, json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["header"])


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Whatever fails in the context is an `InputError` that calls this file damaged, unless memory ran out."""
    try:
        with memory_errors():
            yield
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{path} is damaged ({reason_of(error)}). Remove its folder to start this run anew."
        ) from error
