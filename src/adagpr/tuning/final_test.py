"""The test of the configuration that a study chose: on graphs with all labels, once ``best.toml`` is fixed."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import torch

from adagpr import files
from adagpr.task import scores_of_result
from adagpr.training import Run, config_digest, fit_all, read_config, summarise

if TYPE_CHECKING:
    from adagpr.tuning.study import Study


def now() -> str:
    """The time as a record has it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def run_test(study: Study, folder: Path, num_workers: int) -> dict[str, Any]:
    """Trains with the fixed configuration on all splits, labels and all, and measures on the test nodes."""
    path = folder / "best.toml"
    began, best_sha256 = now(), files.sha256_file(path)
    config = read_config(path)
    options = {key: value for key, value in (config["model"] | config["training"]).items() if key != "name"}
    seed = options.pop("seed")
    out = folder / "test" / config_digest(config)
    runs = fit_all(study.graph, study.splits, study.model, seeds=[seed], out=out, num_workers=num_workers, **options)
    seen = torch.zeros(study.graph.num_nodes, dtype=torch.bool)
    for _, split in study.shown:
        seen[split.train] = seen[split.val] = True
    rows = [
        {
            "split": split.name,
            "seed": seed,
            "test_acc": run.test_acc,
            "val_acc": run.val_acc,
            "best_epoch": run.best_epoch,
            "num_epochs": run.record["result"]["num_epochs"],
            "val_loss": run.best_val_loss,
            "num_test": len(split.test),
            "num_test_seen": int(seen[split.test].sum()),
            "folder": None if run.folder is None else str(run.folder.relative_to(folder)),
        }
        for run, split in zip(runs, study.splits, strict=True)
    ]
    unseen = [row["test_acc"] for row in rows if row["num_test_seen"] == 0]
    metric = study.config.metric
    return {
        "best_sha256": best_sha256,
        "machine": {"began_at": began, "ended_at": now()},
        **summarise(runs),
        "unseen_test_acc": fmean(unseen) if unseen else None,
        "num_unseen_runs": len(unseen),
        "tuned_val_loss": fmean(runs[number].best_val_loss for number in study.tuned),
        **({} if metric == "accuracy" else {"metric": _metric_of(metric, runs, rows)}),
        "runs": rows,
    }


def _metric_of(name: str, runs: Sequence[Run], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the runs of a test reached by a metric other than the accuracy; none where it is undefined."""
    values = [scores_of_result(run.record["result"]).get("test", {}).get(name) for run in runs]
    known = [value for value in values if value is not None]
    unseen = [value for value, row in zip(values, rows, strict=True) if row["num_test_seen"] == 0 and value is not None]
    return {
        "name": name,
        "test": fmean(known) if known else None,
        "test_std": stdev(known) if len(known) > 1 else 0.0,
        "unseen_test": fmean(unseen) if unseen else None,
        "runs": values,
    }
