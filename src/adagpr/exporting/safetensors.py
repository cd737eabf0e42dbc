"""Pruned networks as safetensors files: the weights, and a description as JSON in the file's metadata.

The description, under the key ``adagpr``, holds the version of the form, the sizes, whether the network needs a graph
and how its operator is made, every layer's hops and residual, the class names, and what the run was: its model, its
trained coefficients and the SHA-256 sum of its configuration. Fields with a default came later: files without them are
read, too. Reading a file runs no code from it.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from adagpr.arguments import Positive
from adagpr.errors import InputError, reason_of
from adagpr.exporting.module import About, Directions, Exported, PrunedLayer
from adagpr.ops import Direction

_KEY = "adagpr"

_Size = Annotated[int, Field(ge=1)]
_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True)


class _LayerPart(BaseModel):
    """One layer without its weights."""

    model_config = _STRICT

    layer: _Size
    hops: Annotated[tuple[FiniteFloat, ...], Field(min_length=1)]
    residual: FiniteFloat
    has_weight_0: bool
    backward_hops: tuple[FiniteFloat, ...] = ()
    has_weight_own: bool = False
    has_shift: bool = False
    has_row_norm: bool = False


class _Description(BaseModel):
    """All of a network but its weights; fields that `About` has, too, have the same names there."""

    model_config = _STRICT

    version: Literal[1]
    model: str
    in_channels: _Size
    hidden_channels: _Size
    out_channels: _Size
    needs_graph: bool
    direction: Direction
    self_loops: bool
    class_names: tuple[str, ...]
    layers: tuple[_LayerPart, ...]
    coefficients: tuple[tuple[FiniteFloat, ...], ...]
    alphas: tuple[FiniteFloat, ...]
    config_sha256: str
    temperature: Positive = 1.0
    divides_rows: bool = False
    directions: Directions = "one"
    hop_names: tuple[str, ...] = ()


def description(exported: Exported) -> str:
    """The description of a network as JSON."""
    in_channels, hidden_channels, out_channels = exported.sizes
    layers = tuple(
        _LayerPart(
            layer=item.number,
            hops=item.hops,
            residual=item.residual,
            has_weight_0=item.weight_0 is not None,
            backward_hops=item.backward_hops,
            has_weight_own=item.weight_own is not None,
            has_shift=item.shift is not None,
            has_row_norm=item.row_norm is not None,
        )
        for item in exported.layers
    )
    plain = _Description(
        version=1,
        in_channels=in_channels,
        hidden_channels=hidden_channels,
        out_channels=out_channels,
        needs_graph=exported.needs_graph,
        layers=layers,
        **vars(exported.about),
    )
    return json.dumps(plain.model_dump(), allow_nan=False)


def to_safetensors(exported: Exported) -> bytes:
    """The content of the file."""
    return safetensors.torch.save(exported.state_dict(), {_KEY: description(exported)})


def load_exported(path: Path | str) -> Exported:
    """Reads a network that ``adagpr export --format safetensors`` wrote.

    Args:
        path: The file.

    Raises:
        InputError: There is no such file, it is damaged, or it is another kind of file.

    Example:
        >>> load_exported("gone.safetensors")
        Traceback (most recent call last):
        adagpr.errors.InputError: There is no file gone.safetensors.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is damaged or no safetensors file ({reason_of(error)}).") from error
    if text is None:
        raise InputError(f"{path} was not written by adagpr export: its metadata have no key '{_KEY}'.")
    try:
        plain = _Description.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise InputError(f"{path}: the description of the network is wrong at {place} ({first['msg']}).") from error
    _check(path, plain, tensors)
    about = About(**{item.name: getattr(plain, item.name) for item in fields(About)})
    layers = []
    for number, item in enumerate(plain.layers):
        own = {name: tensors.pop(f"layers.{number}.{name}") for name in _layer_shapes(item, plain.hidden_channels)}
        layers.append(PrunedLayer(item.layer, item.hops, item.residual, backward_hops=item.backward_hops, **own))
    return Exported(about, layers, **tensors)


def _shapes(plain: _Description) -> dict[str, tuple[int, ...]]:
    """The weights that belong to a description."""
    width = plain.hidden_channels
    shapes: dict[str, tuple[int, ...]] = {"weight_in": (plain.in_channels, width), "bias_in": (width,)}
    for place, layer in enumerate(plain.layers):
        shapes |= {f"layers.{place}.{name}": shape for name, shape in _layer_shapes(layer, width).items()}
    return {**shapes, "weight_out": (width, plain.out_channels), "bias_out": (plain.out_channels,)}


def _layer_shapes(layer: _LayerPart, width: int) -> dict[str, tuple[int, ...]]:
    """The weights of one layer."""
    weights = {
        "weight": True,
        "weight_backward": bool(layer.backward_hops),
        "weight_own": layer.has_weight_own,
        "weight_0": layer.has_weight_0,
    }
    rows = {"shift": layer.has_shift, "row_norm": layer.has_row_norm}
    found: dict[str, tuple[int, ...]] = {name: (width, width) for name, is_there in weights.items() if is_there}
    return found | {name: (width,) for name, is_there in rows.items() if is_there}


def _check(path: Path, plain: _Description, tensors: dict[str, Tensor]) -> None:
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    expected = _shapes(plain)
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            raise InputError(
                f"{path}: '{name}' should be {_shape(expected.get(name))}, and is {_shape(found.get(name))}."
            )
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise InputError(f"{path}: a weight is no finite number.")
    kinds = {tensor.dtype for tensor in tensors.values()}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
        raise InputError(f"{path}: the weights must be all float32 or all float64.")
    if plain.needs_graph != any(max(len(item.hops), len(item.backward_hops)) > 1 for item in plain.layers):
        raise InputError(f"{path}: the description contradicts itself on whether the network needs a graph.")
    if plain.directions == "one" and any(item.backward_hops for item in plain.layers):
        raise InputError(f"{path}: the description contradicts itself on whether edges are read both ways.")
    if len(plain.class_names) != plain.out_channels:
        raise InputError(f"{path}: {len(plain.class_names)} class names for {plain.out_channels} classes.")


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else " x ".join(map(str, shape)) or "one number"
