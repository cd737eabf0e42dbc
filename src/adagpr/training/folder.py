"""The folder of a run, and how a run that was killed resumes.

A folder holds ``config.toml``, while it trains ``checkpoint/state.safetensors`` and the checkpoint before it,
``checkpoint/previous.safetensors``, and at the end ``model.safetensors``, for standardised features
``scaling.safetensors``, ``history.parquet``, ``predictions.parquet``, for a graph from tables ``recipe.json``, and,
written last, ``record.json``: if it is there, the run is complete. Every file is replaced atomically. A checkpoint
carries parameters, the best parameters so far, Adam's moments, the history, the stopping rule's counters and the state
of every random stream, so that a resumed training ends with the bits of an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from safetensors import safe_open

from adagpr.data import tables
from adagpr.errors import DamagedError, InputError
from adagpr.files import (
    folder_lock,
    make_folder,
    remove_leftovers,
    to_toml,
    write_atomically,
    write_json,
    write_text,
)
from adagpr.graph import SPLIT_NAMES
from adagpr.nn import Model, build
from adagpr.ops import FeatureScaling
from adagpr.schemas import (
    Column,
    EmptyHeader,
    RunRecipe,
    RunRecord,
    check_tensors,
    conform,
    damaged,
    kinds,
    load_tensors,
    parse_tensors,
    read_json,
    read_parquet,
    reading,
    save_tensors,
    start_anew,
)
from adagpr.task import primary_of, scores_of_result
from adagpr.training.config import Setup, differences, read_config, recipe_sum, with_defaults
from adagpr.training.run import Run, coefficient_column
from adagpr.training.state import Epoch, State

_RESULTS = ("model.safetensors", "history.parquet", "predictions.parquet", "recipe.json", "scaling.safetensors")


class RunFolder:
    """The folder of one run, on a graph in memory or on a partition."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checkpoint = path / "checkpoint" / "state.safetensors"
        self._previous = path / "checkpoint" / "previous.safetensors"
        self._way_out = start_anew(path)

    @property
    def is_complete(self) -> bool:
        """Whether the folder holds a finished run."""
        return (self.path / "record.json").exists()

    def check(self, setup: Setup) -> None:
        """Refuses a folder that holds a run of another configuration."""
        path = self.path / "config.toml"
        try:
            if not path.exists():
                foreign = [name for name in _RESULTS if not self.is_complete and (self.path / name).exists()]
                if foreign:
                    raise InputError(f"{self.path} holds {foreign[0]} of something else. Choose another folder.")
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
        """Makes the folder, locks it for this process, and writes the configuration.

        From the folder of a complete run only what a killed process left is removed. What fails before anything is
        saved leaves nothing.
        """
        self.check(setup)
        if self.is_complete:
            self.remove_checkpoint()
            remove_leftovers(self.path.iterdir())
            yield
            return
        with folder_lock(self.path):
            # Another process may have started the run since it was looked at.
            self.check(setup)
            config = self.path / "config.toml"
            is_new = not config.exists()
            try:
                if is_new:
                    # TOML has no null, and a column may be called "none": what was not given is left out.
                    data = {key: value for key, value in setup.plain["data"].items() if value is not None}
                    write_text(config, to_toml({**setup.plain, "data": data}))
                yield
            except BaseException:
                if is_new and {path.name for path in self.path.iterdir()} <= {".lock", "config.toml"}:
                    config.unlink(missing_ok=True)
                raise

    def save_checkpoint(self, state: State) -> None:
        """Writes all of a training in progress; the checkpoint before is kept."""
        make_folder(self._checkpoint.parent)
        save_tensors(self._checkpoint, *state.tensors(), previous=self._previous)

    def read_checkpoint(self, state: State) -> bytes | None:
        """The content of the last checkpoint that is intact and fits ``state``, if there is one.

        Where the last one is damaged, the one before it takes its place, with a warning.
        """
        failures: list[DamagedError] = []
        for path in (self._checkpoint, self._previous):
            if not path.exists():
                continue
            try:
                with reading(path, self._way_out):
                    content = path.read_bytes()
                num_epochs = state.check(path, *parse_tensors(path, content, self._way_out), self._way_out)
            except DamagedError as error:
                failures.append(error)
                continue
            if path == self._previous:
                with reading(self._checkpoint, self._way_out):
                    path.replace(self._checkpoint)
            if failures:
                resumed = f"The run resumes from the checkpoint before it, after epoch {num_epochs}."
                sys.stderr.write(f"Warning: {failures[0].finding}. {resumed}\n")
            return content
        if not failures:
            return None
        also = ", and so is the one before it" if len(failures) > 1 else ""
        raise DamagedError(f"{failures[0].finding}{also}", self._way_out)

    def restore(self, state: State, checkpoint: bytes | None) -> None:
        """Puts the content of a checkpoint that was read, if there is one, into ``state``."""
        if checkpoint is not None:
            state.restore(*parse_tensors(self._checkpoint, checkpoint, self._way_out))

    def remove_checkpoint(self) -> None:
        """Removes the checkpoint of a complete run, and its folder unless there is something else in it."""
        with contextlib.suppress(OSError):
            for path in (self._previous, self._checkpoint):
                path.unlink(missing_ok=True)
            self._checkpoint.parent.rmdir()

    def save(
        self,
        record: dict[str, Any],
        model: Model,
        tables: Mapping[str, pa.Table],
        recipe: Any,
        scaling: FeatureScaling,
    ) -> None:
        """Writes a finished run, the record last."""
        save_tensors(self.path / "model.safetensors", model.state_dict(), {})
        for name, table in tables.items():
            write_table(self.path / f"{name}.parquet", table)
        if recipe is not None:
            write_json(self.path / "recipe.json", recipe)
        if scaling.tensors:
            save_tensors(self.path / "scaling.safetensors", scaling.tensors, {})
        write_json(self.path / "record.json", record)
        self.remove_checkpoint()


def saved_epochs(checkpoint: Path) -> int:
    """After how many epochs a checkpoint was written."""
    with reading(checkpoint, start_anew(checkpoint.parents[1])), safe_open(checkpoint, "pt") as file:
        return int(file.get_slice("history").get_shape()[0])


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a complete run."""
    path, way_out = folder / "record.json", start_anew(folder)
    record = read_json(path, RunRecord, way_out)
    with_defaults(path, record["config"])
    return record


def load_run(folder: Path | str) -> Run:
    """Reads a complete run back from its folder."""
    folder = Path(folder)
    if not (folder / "record.json").exists():
        raise InputError(f"{folder} holds no complete run: there is no record.json in it.")
    record, way_out = read_record(folder), start_anew(folder)
    _check_config(folder, record)
    data, num_epochs = record["data"], record["result"]["num_epochs"]
    model = _load_model(folder, record)
    path, coefficients = folder / "history.parquet", record.get("coefficients", [])
    columns: dict[str, Column] = {"epoch": "whole", **dict.fromkeys(_history_columns(record), "real")}
    for layer, row in enumerate(coefficients, 1):
        columns |= {coefficient_column(layer, hop): "real" for hop in range(len(row))}
    history = read_parquet(path, columns, num_epochs, way_out)
    if history["epoch"].to_pylist() != [*range(1, num_epochs + 1)]:
        raise damaged(path, f"column 'epoch' does not count from 1 to {num_epochs}", way_out)
    predictions = _read_predictions(folder / "predictions.parquet", data, way_out)
    recipe, scaling = _read_recipe(folder, record), _read_scaling(folder, record)
    return Run(record, model, history, predictions, folder, recipe, scaling)


def _history_columns(record: Mapping[str, Any]) -> list[str]:
    """The columns of a run's history besides coefficients; the metric has one unless it is accuracy or undefined."""
    result, decided_on = record["result"], "val" if record["data"]["num_val"] else "train"
    metric = primary_of(result)
    has_metric = metric != "accuracy" and metric in scores_of_result(result)[decided_on]
    return [name for name in Epoch._fields if name != "val_metric" or has_metric]


def _check_config(folder: Path, record: Mapping[str, Any]) -> None:
    """Raises unless configuration and record say the same, but for what the machine decides."""
    path = folder / "config.toml"
    if path.exists():
        own, recorded = read_config(path), with_defaults(folder / "record.json", record["config"])
        found = [key for key in differences(own, recorded) if key != "training.recompute"]
        if found:
            raise damaged(path, f"{', '.join(found)} differ from record.json", start_anew(folder))


def _load_model(folder: Path, record: Mapping[str, Any]) -> Model:
    """The model of a record; it is built when its sizes are found to be those of the tensors that there are."""
    path, way_out, data = folder / "model.safetensors", start_anew(folder), record["data"]
    tensors, header = load_tensors(path, way_out)
    conform(path, EmptyHeader, header, way_out)
    arguments = {"in_channels": data["num_features"], "out_channels": len(data["class_names"])}
    arguments |= {key: value for key, value in record["config"]["model"].items() if key != "name"}
    name, few = record["config"]["model"]["name"], dict(arguments)
    if isinstance(few.get("num_layers"), int):
        # Every layer has a tensor, so that this many cannot fit, however many more were asked for.
        few["num_layers"] = min(few["num_layers"], len(tensors) + 1)
    with reading(folder / "record.json", way_out):
        with torch.device("meta"):
            expected = build(name, few).state_dict()
        check_tensors(path, tensors, kinds(expected), way_out)
        model = build(name, arguments)
    for key, value in tensors.items():
        if not value.isfinite().all():
            raise damaged(path, f"tensor '{key}' holds a value that is no finite number", way_out)
    model.load_state_dict(tensors)
    found, stored = model.coefficients(), record.get("coefficients")
    if (found is None) != (stored is None):
        raise damaged(folder / "record.json", "coefficients and the model do not agree", way_out)
    if found is not None:
        recorded = torch.tensor(stored)
        if recorded.shape != found.shape or not torch.allclose(recorded, found, atol=1e-3):
            raise damaged(folder / "record.json", "coefficients are not those of the model", way_out)
    return model.eval()


def _read_predictions(path: Path, data: Mapping[str, Any], way_out: str) -> pa.Table:
    names = data["class_names"]
    columns: dict[str, Column] = {"node_id": "id", "part": "text", "label": "optional text", "prediction": "text"}
    columns |= {f"p_{name}": "real" for name in names}
    table = read_parquet(path, columns, data["num_nodes"], way_out)
    known = {"part": ["", *SPLIT_NAMES], "label": [*names, None], "prediction": names}
    for name, values in known.items():
        if odd := {*table[name].unique().to_pylist()}.difference(values):
            raise damaged(path, f"column '{name}' holds {sorted(map(str, odd))[0]!r:.80}", way_out)
    is_of_split = pc.not_equal(table["part"], "")
    if pc.any(pc.and_(is_of_split, pc.is_null(table["label"]))).as_py():
        raise damaged(path, "column 'label' is empty for a node of the split", way_out)
    return table


def _read_recipe(folder: Path, record: Mapping[str, Any]) -> dict[str, Any] | None:
    path, way_out = folder / "recipe.json", start_anew(folder)
    known = record["config"]["data"].get("recipe_sha256")
    if known is None and not path.exists():
        return None
    recipe = read_json(path, RunRecipe, way_out)
    if known is not None and recipe_sum(recipe) != known:
        raise damaged(path, "its content does not have the sum in record.json", way_out)
    with reading(path, way_out):
        tables.Recipe.from_plain(recipe["features"])
    return recipe


def _read_scaling(folder: Path, record: Mapping[str, Any]) -> FeatureScaling:
    """The scaling that the record names, with its statistics where it has any."""
    kind, path, way_out = record.get("feature_scaling", "none"), folder / "scaling.safetensors", start_anew(folder)
    if kind != "standardise":
        return FeatureScaling(kind)
    tensors, header = load_tensors(path, way_out)
    conform(path, EmptyHeader, header, way_out)
    each = (torch.float64, (record["data"]["num_features"],))
    check_tensors(path, tensors, {"shift": each, "factor": each}, way_out)
    for key, value in tensors.items():
        if not value.isfinite().all():
            raise damaged(path, f"tensor '{key}' holds a value that is no finite number", way_out)
    if (tensors["factor"] < 0).any():
        raise damaged(path, "tensor 'factor' holds a value below 0", way_out)
    return FeatureScaling(kind, **tensors)


def write_table(path: Path, table: pa.Table) -> None:
    """Writes a table as Parquet, atomically."""
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, write_page_checksum=True))
