"""`fit_partition`: training on a graph that lies in parts on disk, by one process or by several.

Without ``per_batch`` training is exact: each process holds the rows of its parts (see `adagpr.training.shares`). With
it one process reads batches of parts (see `adagpr.training.batches`), which is approximate, and the record says so.

Rank 0 alone writes checkpoints, configuration and record. A run may go on with another number of processes: nothing in
its configuration depends on it. Predictions are written by each process for its own parts, one file a part.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from adagpr.errors import InputError
from adagpr.files import read_json
from adagpr.ops import buffer_pool
from adagpr.partitioning import (
    Group,
    Parts,
    group_from_environment,
    open_parts,
    parts_of_rank,
    positions,
    stored_operator,
)
from adagpr.system import forget_peak_memory, keep_freed_memory, num_cores
from adagpr.task import balanced_weights
from adagpr.training.batches import Batches
from adagpr.training.config import Setup, TrainingConfig, plain_options, resolve_options
from adagpr.training.fit import CHECKPOINT_SECONDS, ignore_epoch, set_memory, threads, train
from adagpr.training.folder import RunFolder, load_bytes
from adagpr.training.partitioned_record import Strategy, finish
from adagpr.training.shares import read_shard
from adagpr.training.state import OnEpoch, State

__all__ = ["Precision", "fit_partition"]

Precision = Literal["float32", "bfloat16"]


def fit_partition(
    partition: Path | str,
    model: str = "adagpr",
    *,
    out: Path | str,
    per_batch: int | None = None,
    border: Precision = "float32",
    on_epoch: OnEpoch | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **options: Any,
) -> dict[str, Any]:
    """Trains a model on a partition; the same call goes on from the last checkpoint, or reads a complete run's record.

    Where ``torchrun`` started several processes, each calls this and they train together.

    Args:
        partition: Folder of the partition.
        model: Name of the model: ``"adagpr"`` or ``"gcnii"``.
        out: Folder of the run; rank 0 writes it.
        per_batch: Parts of a batch, for a graph that memory does not hold; none to train exactly on all of it.
        border: In which precision rows travel between processes.
        on_epoch: Called in rank 0 after each epoch with its number, its measurements and the stopping rule.
        checkpoint_seconds: Seconds between two checkpoints.
        options: Arguments of the model and fields of `TrainingConfig`, by their names.

    Returns:
        The record.

    Raises:
        InputError: Something does not fit, in this process or in another; nothing was written.
    """
    folder = Path(out)
    with ExitStack() as stack:
        group = stack.enter_context(group_from_environment(options.get("device", "cpu")))
        parts = group.run_on_all_ranks(lambda: _checked_parts(Path(partition), group, per_batch))
        record = _record(folder, group)
        config, plain, state = group.run_on_all_ranks(
            lambda: _opened(folder, group, parts, model, per_batch, border, options, record is not None, stack)
        )
        if record is not None:
            return record
        forget_peak_memory()
        keep_freed_memory()
        stack.enter_context(threads(config.num_threads or 1))
        if per_batch is None:
            # Batches differ in size: what one leaves would not serve the next.
            stack.enter_context(buffer_pool())
        _restore(state, folder, group)
        ground = stack.enter_context(_ground(parts, group, config, per_batch, border, folder))
        save, report = _writer(folder, group, state), (on_epoch or ignore_epoch) if group.rank == 0 else ignore_epoch
        train(state, ground, config, report, save, checkpoint_seconds)
        return finish(state, ground, config, plain, parts, group, folder)


def _checked_parts(folder: Path, group: Group, per_batch: int | None) -> Parts:
    """The partition, once the parts that this process reads are found to be whole."""
    parts = open_parts(folder)
    if per_batch is None:
        numbers = parts_of_rank(len(parts), group.rank, group.size)
    elif group.size > 1:
        raise InputError("Batches of parts are read by one process; without --batch-parts several train exactly.")
    elif not 1 <= per_batch <= len(parts):
        raise InputError(f"A batch takes 1 to {len(parts)} parts of this partition, got {per_batch}.")
    else:
        numbers = range(len(parts))
    for number in numbers:
        parts[number].check()
    return parts


def _record(folder: Path, group: Group) -> dict[str, Any] | None:
    """The record of a run that is complete, as rank 0 has it."""
    path = folder / "record.json"
    own = group.run_on_all_ranks(lambda: read_json(path) if group.rank == 0 and path.exists() else None)
    record: dict[str, Any] | None = json.loads(group.broadcast(json.dumps(own).encode()))
    return record


def _opened(
    folder: Path,
    group: Group,
    parts: Parts,
    model: str,
    per_batch: int | None,
    border: Precision,
    options: dict[str, Any],
    is_complete: bool,
    stack: ExitStack,
) -> tuple[TrainingConfig, dict[str, Any], State]:
    """Checks what is asked for; in rank 0 takes the folder and writes the configuration."""
    config, plain, state = _resolved(parts, group.size, model, per_batch, border, options)
    setup = Setup(config, state.model, plain, options)
    if group.rank == 0:
        setup = RunFolder(folder).adopt(setup)
        if not is_complete:
            stack.enter_context(RunFolder(folder).hold(setup))
    return setup.config, setup.plain, state


def _resolved(
    parts: Parts, num_ranks: int, model: str, per_batch: int | None, border: Precision, options: dict[str, Any]
) -> tuple[TrainingConfig, dict[str, Any], State]:
    manifest = parts.manifest
    config, built = resolve_options(manifest, model, options)
    if not built.capabilities.partitioned:
        raise InputError("Partitions are for AdaGPR and GCNII without drop_edge and pair_norm.")
    if config.direction == "symmetric" and not manifest.is_symmetric:
        raise InputError(
            "direction is 'symmetric', but the edges of this partition go one way: partition it both ways."
        )
    if options.get("num_threads") is None:
        beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        most = max(1, num_cores() // beside)
        config = config.model_copy(update={"num_threads": min(config.num_threads or 1, most)})
    data = {"name": manifest.name, **manifest.origin, "split": manifest.split}
    data |= {"graph_sha256": manifest.graph_sha256, "split_sha256": manifest.split_sha256}
    scale = {"parts": len(parts), "per_batch": per_batch, "border": border}
    built.seed(config.seed)
    largest = max(part.num_nodes for part in manifest.parts)
    set_memory(built, config, largest * per_batch if per_batch else manifest.num_nodes // num_ranks)
    return (
        config,
        {"data": data, **plain_options(config, built), "scale": scale},
        State(built.to(config.device), config),
    )


def _restore(state: State, folder: Path, group: Group) -> None:
    """Puts back the last checkpoint, which rank 0 has and all get."""
    run_folder = RunFolder(folder)
    content = group.broadcast(run_folder.checkpoint_bytes() if group.rank == 0 else b"")
    if content:
        run_folder.restore_from(state, lambda: load_bytes(content))


@contextmanager
def _ground(
    parts: Parts, group: Group, config: TrainingConfig, per_batch: int | None, border: Precision, folder: Path
) -> Iterator[Strategy]:
    if per_batch is None:
        yield read_shard(parts, group, config, torch.bfloat16 if border == "bfloat16" else None)
        return
    weights = None
    if config.class_weights == "balanced":
        targets = (parts[number].targets() for number in range(len(parts)))
        counts = [
            torch.bincount(y[positions(role, "train")], minlength=parts.manifest.num_classes) for y, role in targets
        ]
        weights = balanced_weights(torch.stack(counts).sum(0))
    with stored_operator(parts, config.self_loops, folder) as operator:
        yield Batches(parts, per_batch, operator, config, weights)


def _writer(folder: Path, group: Group, state: State) -> Any:
    def save() -> None:
        if group.rank == 0:
            RunFolder(folder).save_checkpoint(state)

    return save
