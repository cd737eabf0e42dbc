"""`fit_partition`: training on a graph that is on disk in parts, by one process or by several ranks.

Without ``per_batch`` training is exact, with it approximate; see `adagpr.training.partition_strategies` for both. Rank
0 alone writes checkpoints, configuration and record, each rank the predictions for its own parts, one file per part. A
run may resume with another number of ranks: nothing in its configuration depends on it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr.errors import InputError
from adagpr.files import make_folder
from adagpr.graph import SPLIT_NAMES
from adagpr.ops import buffer_pool, compute_threads
from adagpr.partitioning import (
    Group,
    Part,
    Parts,
    group_from_environment,
    open_parts,
    parts_of_rank,
    positions,
    stored_operator,
)
from adagpr.system import forget_peak_memory, keep_freed_memory, num_cores
from adagpr.task import METRICS, Classification, balanced_accuracy, class_counts, macro_f1
from adagpr.training.config import Setup, check_monitor, resolve_options, training_options
from adagpr.training.fit import CHECKPOINT_SECONDS, set_memory, train
from adagpr.training.folder import RunFolder, read_record, write_table
from adagpr.training.partition_strategies import Batches, Shard, deciding, read_shard, scaling_of
from adagpr.training.run import class_table, history_table, make_record, with_labels
from adagpr.training.state import Epoch, OnEpoch, State, Stopping
from adagpr.training.threads import ThreadChoice

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
    """Trains a model on a partition; the same call resumes from the last checkpoint, or reads a complete run's record.

    Where ``torchrun`` started several processes, each calls this and they train together.

    Args:
        partition: Folder of the partition.
        model: Name of the model: ``"adagpr"`` or ``"gcnii"``.
        out: Folder of the run; rank 0 writes it.
        per_batch: Parts per batch, for a graph that memory does not hold; none to train exactly on all of it.
        border: In which precision rows are sent between ranks.
        on_epoch: Called in rank 0 after each epoch with its number, its measurements and the stopping rule. If it
            returns ``"stop"``, training ends there, and the best epoch so far counts.
        checkpoint_seconds: Seconds between two checkpoints.
        options: Arguments of the model and fields of `TrainingConfig`, by their names.

    Returns:
        The record.

    Raises:
        InputError: Something does not fit, in this rank or in another; nothing was written.
    """
    with ExitStack() as stack:
        group = stack.enter_context(group_from_environment(options.get("device", "cpu")))
        parts = group.run_on_all_ranks(lambda: _checked_parts(Path(partition), group, per_batch))
        folder = RunFolder(Path(out))

        monitor = {**training_options(model), **options}["monitor"]
        deciding_y = _deciding_classes(parts, group) if monitor == "val_metric" else None

        def open_folder() -> tuple[Setup, dict[str, Any] | None]:
            scale = {"parts": len(parts), "per_batch": per_batch, "border": border}
            setup = _resolve(parts, group.size, model, options, scale)
            if deciding_y is not None:
                check_monitor(deciding_y, parts.manifest.split, setup.config)
            if group.rank > 0:
                return setup, None
            stack.enter_context(folder.hold(setup))
            return setup, read_record(folder.path) if folder.is_complete else None

        setup, stored = group.run_on_all_ranks(open_folder)
        record = group.broadcast(stored)
        if record is not None:
            return record
        forget_peak_memory()
        keep_freed_memory()
        stack.enter_context(compute_threads(1))
        strategy: Shard | Batches
        if per_batch is None:
            # Batches differ in size: what one leaves would not serve the next.
            stack.enter_context(buffer_pool())
            strategy = read_shard(parts, group, setup.config, torch.bfloat16 if border == "bfloat16" else None)
        else:
            operator = stack.enter_context(stored_operator(parts, setup.config.self_loops, folder.path))
            strategy = Batches(parts, per_batch, operator, setup.config, scaling_of(parts, group, setup.config))
        state = State(setup.model.to(setup.config.device), setup.config)
        checkpoint = group.run_on_all_ranks(lambda: folder.read_checkpoint(state) if group.rank == 0 else None)
        folder.restore(state, group.broadcast(checkpoint))

        def save() -> None:
            if group.rank == 0:
                folder.save_checkpoint(state)

        def tell(number: int, epoch: Epoch, stopping: Stopping) -> Any:
            answer = on_epoch(number, epoch, stopping) if on_epoch is not None and group.rank == 0 else None
            return group.broadcast(answer)

        train(state, strategy, _threads(setup, group.size), tell, save, checkpoint_seconds)
        return _finish(parts, group, folder, setup, state, strategy)


def _checked_parts(folder: Path, group: Group, per_batch: int | None) -> Parts:
    """The partition, once the parts that this rank reads are found to be intact."""
    parts = open_parts(folder)
    if per_batch is not None and group.size > 1:
        raise InputError("Batches of parts are read by one process; without --batch-parts several train exactly.")
    if per_batch is not None and not 1 <= per_batch <= len(parts):
        raise InputError(f"A batch takes 1 to {len(parts)} parts of this partition, got {per_batch}.")
    for number in parts_of_rank(len(parts), group.rank, group.size):
        parts[number].check()
    return parts


def _deciding_classes(parts: Parts, group: Group) -> Tensor:
    """The classes that occur among the nodes of all ranks that choose the epoch."""
    counts = torch.zeros(parts.manifest.num_classes, dtype=torch.int64)
    for number in parts_of_rank(len(parts), group.rank, group.size):
        y, role = parts[number].targets()
        counts += torch.bincount(y[positions(role, deciding(parts))], minlength=len(counts))
    return group.sum_(counts).nonzero().squeeze(1)


def _resolve(parts: Parts, num_ranks: int, model: str, options: Mapping[str, Any], scale: Mapping[str, Any]) -> Setup:
    """Checks what is asked for; the model is seeded and knows what to keep for the backward pass."""
    manifest, per_batch = parts.manifest, scale["per_batch"]
    data = {"name": manifest.name, **manifest.origin, "split": manifest.split}
    data |= {"graph_sha256": manifest.graph_sha256, "split_sha256": manifest.split_sha256}
    setup = resolve_options(manifest, data, model, options)
    if not setup.model.capabilities.partitioned:
        raise InputError(
            "Partitions are for adagpr and gcnii without drop_edge and pair_norm, and for adagpr-signed with "
            "directions 'one'."
        )
    if setup.config.direction == "symmetric" and not manifest.is_symmetric:
        raise InputError("direction is 'symmetric', but this partition is directed: partition it without --directed.")
    setup.model.seed(setup.config.seed)
    largest = max(part.num_nodes for part in manifest.parts)
    set_memory(setup.model, setup.config, largest * per_batch if per_batch else manifest.num_nodes // num_ranks)
    return replace(setup, plain={**setup.plain, "scale": scale})


def _threads(setup: Setup, num_ranks: int) -> ThreadChoice:
    """Ranks share the cores of their machine; an epoch takes all of them as long as the slowest."""
    found = setup.threads()
    if num_ranks == 1 or setup.config.num_threads is not None:
        return found
    cores = num_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return ThreadChoice(max(1, min(found.most, cores)), is_fixed=True)


def _finish(
    parts: Parts, group: Group, folder: RunFolder, setup: Setup, state: State, strategy: Shard | Batches
) -> dict[str, Any]:
    """Measures the best epoch's model on all nodes, writes the predictions and, last, the record."""
    state.model.load_state_dict(state.best)
    logits = [(parts[number], own) for number, own in strategy.logits_of_parts(state.model)]
    temperature = _temperature(logits, group)
    scores = _scores(logits, parts.manifest.num_classes, group)
    machine = {"ranks": group.size, "bytes_sent": int(group.sum_(torch.tensor([group.num_bytes])))}
    data = _describe_data(parts, setup.plain["scale"]["per_batch"])
    record = make_record(state, setup.plain, data, scores, temperature, machine, strategy.scaling)

    def write_predictions() -> None:
        for part, own in logits:
            _write_predictions(folder.path, part, own, parts.manifest.class_names, temperature)

    # The record is written when every rank has written its predictions.
    group.run_on_all_ranks(write_predictions)
    if group.rank == 0:
        history = {"history": history_table(state)}
        folder.save(record, state.model, history, parts.manifest.recipe, strategy.scaling)
    return record


def _scores(logits: list[tuple[Part, Tensor]], num_classes: int, group: Group) -> dict[str, dict[str, float]]:
    """The scores of the train, val and test nodes of all ranks, if there are any."""
    sums = np.zeros((len(SPLIT_NAMES), 1 + 3 * num_classes))
    for part, own in logits:
        y, role = part.targets()
        for row, name in zip(sums, SPLIT_NAMES, strict=True):
            index = positions(role, name)
            row[0] += F.cross_entropy(own[index].double(), y[index], reduction="sum").item()
            row[1:] += class_counts(own[index], y[index]).reshape(-1)
    scores = {}
    for name, row in zip(SPLIT_NAMES, group.sum_(torch.from_numpy(sums)).numpy(), strict=True):
        counts = row[1:].reshape(3, num_classes)
        num_nodes = counts[2].sum()
        if num_nodes:
            loss, accuracy = float(row[0] / num_nodes), float(counts[0].sum() / num_nodes)
            scores[name] = {"loss": loss, "accuracy": accuracy, "macro_f1": macro_f1(counts)}
            scores[name]["balanced_accuracy"] = balanced_accuracy(counts)
    for name in scores if num_classes == 2 else ():
        every = _gathered(logits, name, group)
        measured = {key: metric.measure(*every) for key, metric in METRICS.items() if metric.for_two_classes}
        scores[name] |= {key: value for key, value in measured.items() if value is not None}
    return scores


def _temperature(logits: list[tuple[Part, Tensor]], group: Group) -> float:
    """The temperature that fits the validation nodes of all ranks."""
    return Classification().calibrate(*_gathered(logits, "val", group))


def _gathered(logits: list[tuple[Part, Tensor]], name: str, group: Group) -> tuple[Tensor, Tensor]:
    """The logits of all ranks' train, val or test nodes, and their classes, in every rank."""
    targets = [(positions(role, name), y) for y, role in (part.targets() for part, _ in logits)]
    own = torch.cat([item[index] for (_, item), (index, _) in zip(logits, targets, strict=True)])
    every = group.gather((own, torch.cat([y[index] for index, y in targets])))
    found, y = (torch.cat(items) for items in zip(*every, strict=True))
    return found, y


def _write_predictions(
    folder: Path, part: Part, logits: Tensor, class_names: tuple[str, ...], temperature: float
) -> None:
    y, role = part.targets()
    is_isolated = (part.tensors("graph.safetensors")["indptr"].diff() == 0).numpy()
    ids = part.nodes()["node_id"].combine_chunks()
    table = class_table(ids, logits, class_names, temperature, {"no neighbours": is_isolated})
    roles = np.array(["", *SPLIT_NAMES], dtype=object)
    path = folder / "predictions.parquet" / f"{part.folder.name}.parquet"
    make_folder(path.parent)
    write_table(path, with_labels(table, roles[role], y, class_names))


def _describe_data(parts: Parts, per_batch: int | None) -> dict[str, Any]:
    manifest, size = parts.manifest, len(parts)
    cut = f"{manifest.edge_cut} of {manifest.num_edges} edges between them"
    message = f"Trained on {size} parts ({manifest.method}), {cut}."
    is_approximate = per_batch is not None and per_batch < size
    if is_approximate:
        message += (
            f" Approximate: steps saw batches of {per_batch} parts, without the edges to other parts; "
            "what was measured is exact."
        )
    keys = ("name", "num_nodes", "num_edges", "num_features", "split", "num_train", "num_val", "num_test")
    return {
        **{key: getattr(manifest, key) for key in keys},
        "class_names": list(manifest.class_names),
        "is_approximate": is_approximate,
        "notes": [*manifest.notes, message],
    }
