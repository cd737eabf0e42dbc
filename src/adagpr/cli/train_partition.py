"""``adagpr train --partitions``: one training on a partition, by this process or by all that torchrun started."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from adagpr.cli.console import show, show_json, training_bar
from adagpr.errors import InputError

Precision = Literal["float32", "bfloat16"]


def train_partition(
    folder: Path,
    model: str,
    seeds: Sequence[int],
    out: Path | None,
    batch_parts: int | None,
    border: Precision,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    """Trains and prints the result; only rank 0 prints."""
    if len(seeds) > 1:
        raise InputError("--partitions trains with one --seed at a time.")
    from adagpr.training import fit_partition

    is_first = os.environ.get("RANK", "0") == "0"
    run = out or Path("runs") / f"{folder.name}-{model}-seed-{seeds[0]}"
    with training_bar(run, options) as (start, _):
        record = fit_partition(
            folder,
            model,
            out=run,
            per_batch=batch_parts,
            border=border,
            on_epoch=start(0) if is_first else None,
            **{**options, "seed": seeds[0]},
        )
    if is_first and as_json:
        show_json({"folder": str(run), **record})
    elif is_first:
        _show(record, run)


def _show(record: dict[str, Any], folder: Path) -> None:
    import torch

    from adagpr.cli.train_view import show_coefficients
    from adagpr.task import scores_of_result

    data, result, machine = record["data"], record["result"], record["machine"]
    parts, ranks = (
        f"{number} {word}{'' if number == 1 else 's'}"
        for number, word in ((record["config"]["scale"]["parts"], "part"), (machine["ranks"], "rank"))
    )
    scores = scores_of_result(result)
    names = {"test": "test accuracy", "val": "validation"}
    measured = [f"{names[key]} {100 * scores[key]['accuracy']:.1f} %" for key in names if key in scores]
    how = "batches of parts, approximate" if data["is_approximate"] else "exact"
    size = f"{data['num_nodes']:,} nodes, {data['num_edges']:,} edges"
    show(
        f"{data['name']}: {size} in {parts}; {how}, {ranks}\n",
        f"{', '.join(measured)}, "
        f"best epoch {result['best_epoch']} of {result['num_epochs']}, {machine['seconds']:.0f} s\n",
    )
    if "coefficients" in record:
        show_coefficients(torch.tensor(record["coefficients"]))
    show(f"run folder  {folder}\npage        adagpr report {folder}")
