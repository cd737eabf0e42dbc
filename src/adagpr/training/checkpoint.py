"""Checkpoints: one file that holds all of a training in progress, replaced atomically.

It carries parameters, the best parameters so far, Adam's moments, the history, the stopping rule's counters and the
state of every random stream, so that a resumed training ends with the bits of an uninterrupted one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from adagpr.errors import InputError
from adagpr.files import write_atomically

__all__ = ["load_bytes", "load_tensors", "save_tensors"]


def save_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Writes named tensors and a header of plain data as safetensors, atomically."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = safetensors.torch.save(contiguous, {"header": json.dumps(header)})
    write_atomically(path, lambda temporary: _write(temporary, content))


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def load_bytes(content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads the content of a file that `save_tensors` wrote."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["header"])
    return safetensors.torch.load(content), header


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads what `save_tensors` wrote; a damaged file is an `InputError` that names it."""
    try:
        with safe_open(path, "pt") as file:
            header: dict[str, Any] = json.loads(file.metadata()["header"])
            return {name: file.get_tensor(name).clone() for name in file.keys()}, header  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}). Remove its folder to start this run anew.") from error
