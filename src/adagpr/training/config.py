"""The configuration of a run: what is asked, resolved and checked before anything is written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from adagpr.arguments import Count, Nonnegative, Positive, check
from adagpr.errors import InputError, unknown_name
from adagpr.graph import Graph, Split
from adagpr.nn import build, model_options
from adagpr.ops import Direction

__all__ = ["TrainingConfig", "choose_num_threads", "differences", "resolve"]

DEFAULT_HIDDEN_CHANNELS = 64

# Below this many multiplications a product, a second thread costs more than it brings.
_WORK_PER_THREAD = 40_000_000


class TrainingConfig(BaseModel):
    """How a model is trained. Every field has one name here, in TOML files and on the command line.

    Attributes:
        seed: Seed of parameters and dropout.
        lr: Adam's learning rate.
        max_epochs: Epochs at the most.
        weight_decay: Decay of all parameters, or one for each named parameter group.
        decay: ``"adam"`` adds ``w * parameter`` to the gradient, as Adam's own L2 decay does. ``"penalty"`` adds
            ``w * |parameter|^2`` to the loss, as the paper does for its semi-supervised runs.
        monitor: What the best epoch is best in: the validation loss, the validation loss with the penalties
            (``"val_objective"``, the paper's), or the validation accuracy.
        patience: Epochs without progress after which training stops; none for never. The paper's is 100; see
            ``docs/stopping.md`` for how 300 was chosen.
        progress: What counts as progress: a better ``"monitor"`` alone as in the paper, or any better ``"validation"``
            figure, loss or accuracy.
        direction: How the graph's edges are read.
        self_loops: Whether each node is its own neighbour.
        num_threads: Threads of torch; bits depend on it. Chosen from the work of one product unless given.
        device: Where the tensors live.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    lr: Positive = 0.01
    max_epochs: Count = 1500
    weight_decay: Nonnegative | dict[str, Nonnegative] = 5e-4
    decay: Literal["adam", "penalty"] = "adam"
    monitor: Literal["val_loss", "val_objective", "val_acc"] = "val_loss"
    patience: Count | None = 300
    progress: Literal["monitor", "validation"] = "validation"
    direction: Direction = "directed"
    self_loops: bool = True
    num_threads: Count | None = None
    device: Literal["cpu", "cuda"] = "cpu"


def resolve(
    graph: Graph, split: Split, model: str, options: Mapping[str, Any]
) -> tuple[TrainingConfig, dict[str, Any]]:
    """Sorts flat options into training and model, fills in every default, and checks that all fits the data.

    Returns:
        The training part, and the whole configuration as plain data with the keys ``data``, ``model`` and ``training``.

    Raises:
        InputError: An option is unknown or out of range, or graph and split do not fit.
    """
    chosen = model_options(model)
    unknown = [key for key in options if key not in chosen and key not in TrainingConfig.model_fields]
    if unknown:
        known = [*chosen, *TrainingConfig.model_fields]
        raise unknown_name(f"key for the model '{model}'", unknown[0], known)
    asked = {key: value for key, value in options.items() if key in TrainingConfig.model_fields}
    training = check("training", TrainingConfig, asked)
    split.check(graph)
    arguments = {key: value for key, value in options.items() if key in chosen}
    if "hidden_channels" in chosen:
        arguments.setdefault("hidden_channels", DEFAULT_HIDDEN_CHANNELS)
    built = build(model, {**arguments, "in_channels": graph.num_features, "out_channels": graph.num_classes})
    _check_groups(training, list(built.parameter_groups()))
    if training.device == "cuda" and not torch.cuda.is_available():
        raise InputError("training: device is 'cuda', but torch sees no such device here.")
    if training.num_threads is None:
        width = int(built.arguments.get("hidden_channels", DEFAULT_HIDDEN_CHANNELS))
        training = training.model_copy(update={"num_threads": choose_num_threads(graph, width)})
    own = {key: value for key, value in built.arguments.items() if key not in ("in_channels", "out_channels")}
    plain = {
        "data": _describe(graph, split),
        "model": {"name": model, **own},
        "training": training.model_dump(),
    }
    return training, plain


def _check_groups(training: TrainingConfig, groups: list[str]) -> None:
    if isinstance(training.weight_decay, dict):
        for name in training.weight_decay:
            if name not in groups:
                raise unknown_name("parameter group in weight_decay", name, groups)


def choose_num_threads(graph: Graph, width: int) -> int:
    """Threads that pay off: one for each few million multiplications of a product, up to the cores there are."""
    work = (graph.num_edges + graph.num_nodes) * width + graph.num_nodes * width * width
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(cores, work // _WORK_PER_THREAD))


def _describe(graph: Graph, split: Split) -> dict[str, Any]:
    hasher = hashlib.sha256()
    for part in (split.train, split.val, split.test):
        hasher.update(f"{len(part)}:".encode() + part.numpy().tobytes())
    return {
        "name": graph.name,
        "split": split.name,
        "graph_sha256": graph.fingerprint,
        "split_sha256": hasher.hexdigest(),
    }


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of the keys whose values differ between two nested configurations; a missing key equals ``None``."""
    found: list[str] = []
    for key in sorted({*one, *other}):
        left, right = one.get(key), other.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found += differences(left, right, f"{prefix}{key}.")
        elif left != right:
            found.append(f"{prefix}{key}")
    return found
