"""The record of a study: its trials, then what was chosen, then what that reached on the test nodes, in that order.

`finish` first writes ``best.toml`` and a record without a test. Only then does it train on graphs with all labels, with
what it reads from ``best.toml``, and writes the record again. So the record shows three things: each trial names the
SHA-256 sum of the graphs it was given, which are those of `blind`; the choice names the sum of the trials it was made
of; and the test names the sum of the file that it was made with, and when that was.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
import torch

from adagpr.errors import AdaGPRError
from adagpr.files import digest, read_json, sha256_file, to_toml, write_json, write_text
from adagpr.system import describe_machine
from adagpr.training import Run, resolve
from adagpr.training.config import config_digest, read_config
from adagpr.training.several import fit_all, summarise
from adagpr.tuning.objective import Study
from adagpr.tuning.trials import best_trial, finished, plain_trial

__all__ = ["finish"]

_SHA256 = 64


def finish(study: optuna.Study, task: Study, folder: Path, num_workers: int, command: str) -> dict[str, Any]:
    """Fixes the best configuration of a study whose trials are done, tests it, and returns the record.

    Raises:
        AdaGPRError: No trial was complete.
    """
    trials = study.get_trials(deepcopy=False)
    best = best_trial(trials)
    if best is None or best.value is None:
        raise AdaGPRError(f"None of the {len(finished(trials))} trials was complete, so there is nothing to choose.")
    kept = [plain_trial(trial) for trial in trials if trial.state.is_finished()]
    compared = [{key: value for key, value in trial.items() if key != "machine"} for trial in kept]
    trials_sha256 = digest(compared, _SHA256)
    chosen = plain_trial(best)
    path = folder / "best.toml"
    text = _best_toml(task, chosen, len(finished(trials)), trials_sha256)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
    record: dict[str, Any] = {
        "format": 1,
        "study": {**task.plain, "source": task.space.source, "notes": task.space.notes},
        "data_notes": list(task.graph.notes),
        "num_trials": len(finished(trials)),
        "command": command,
        "shown": _shown(task),
        "trials": kept,
        "best": {
            **{key: chosen[key] for key in ("number", "value", "params")},
            "trials_sha256": trials_sha256,
            "best_sha256": sha256_file(path),
        },
        "importance": _importance(study, task),
        "machine": describe_machine(sum(trial["machine"]["seconds"] or 0.0 for trial in kept)),
    }
    record |= _remembered(folder, record["best"])
    write_json(folder / "study.json", record)
    record["test"] = _test(task, folder, num_workers)
    write_json(folder / "study.json", record)
    return record


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _best_toml(task: Study, chosen: dict[str, Any], num_trials: int, trials_sha256: str) -> str:
    """The configuration as ``adagpr train --config`` reads it, below comments on where it comes from."""
    plain = resolve(task.graph, task.splits[0], task.model, task.options(chosen["params"]))[1]
    tuned_on = ", ".join(task.plain["tuned_on"])
    comments = [
        f"# Number {chosen['number']}, best of {num_trials} trials: validation loss {chosen['value']} on {tuned_on}.",
        f"# SHA-256 sum of the list of trials: {trials_sha256}",
    ]
    return "\n".join(comments) + "\n\n" + to_toml({**plain, "data": task.plain["data"]})


def _shown(task: Study) -> list[dict[str, Any]]:
    """What trials were given: for each split, how many labels, and the sum of the graph without the others."""
    return [
        {
            "split": split.name,
            "num_labels": len(split.train) + len(split.val),
            "num_hidden": len(split.test),
            "graph_sha256": graph.fingerprint,
        }
        for graph, split in task.shown
    ]


def _importance(study: optuna.Study, task: Study) -> dict[str, float]:
    """Share of each parameter in how much the value varies, by fANOVA; empty where there are too few trials."""
    # Imported here, because it brings scikit-learn's forests, which take a second and which workers do not need.
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    values = {trial.value for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))}
    if len(values) < 2:
        return {}
    try:
        found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=task.seed))
    except (ValueError, RuntimeError):
        return {}
    return {name: round(share, 4) for name, share in found.items()}


def _remembered(folder: Path, best: dict[str, Any]) -> dict[str, Any]:
    """The choice with the time it was first made at, and tests of this study with fewer trials.

    Whoever adds trials after a test has seen it.
    """
    path = folder / "study.json"
    old: dict[str, Any] = read_json(path) if path.exists() else {}
    tests: list[dict[str, Any]] = old.get("earlier_tests", [])
    if old and old["best"]["trials_sha256"] == best["trials_sha256"]:
        return {"best": {**best, "fixed_at": old["best"]["fixed_at"]}, "earlier_tests": tests}
    if "test" in old:
        kept = {key: old["test"][key] for key in ("test_acc", "began_at")}
        tests = [*tests, {"num_trials": old["num_trials"], "best": old["best"], **kept}]
    return {"best": {**best, "fixed_at": _now()}, "earlier_tests": tests}


def _test(task: Study, folder: Path, num_workers: int) -> dict[str, Any]:
    """Trains with the fixed configuration on all splits, labels and all, and measures on the test nodes."""
    path = folder / "best.toml"
    began = _now()
    best_sha256 = sha256_file(path)
    config = read_config(path)
    options = {key: value for key, value in (config["model"] | config["training"]).items() if key != "name"}
    seed = options.pop("seed")
    out = folder / "test" / config_digest(config)
    runs = fit_all(task.graph, task.splits, task.model, seeds=[seed], out=out, num_workers=num_workers, **options)
    rows = [_row(run, folder, _num_seen(task, number)) for number, run in enumerate(runs)]
    unseen = [row["test_acc"] for row in rows if row["num_test_seen"] == 0]
    return {
        "best_sha256": best_sha256,
        "began_at": began,
        "ended_at": _now(),
        **summarise(runs),
        "unseen_test_acc": fmean(unseen) if unseen else None,
        "num_unseen_runs": len(unseen),
        "tuned_val_loss": fmean(runs[number].val_loss for number in task.tuned),
        "runs": rows,
    }


def _num_seen(task: Study, number: int) -> int:
    """How many test nodes of a split were training or validation nodes of a trial."""
    seen = torch.zeros(task.graph.num_nodes, dtype=torch.bool)
    for _, split in task.shown:
        seen[split.train] = seen[split.val] = True
    return int(seen[task.splits[number].test].sum())


def _row(run: Run, folder: Path, num_test_seen: int) -> dict[str, Any]:
    result = run.record["result"]
    kept = ("test_acc", "val_acc", "best_epoch", "num_epochs")
    return {
        "split": run.record["data"]["split"],
        "seed": run.record["config"]["training"]["seed"],
        **{key: result[key] for key in kept},
        "val_loss": run.val_loss,
        "num_test": run.record["data"]["num_test"],
        "num_test_seen": num_test_seen,
        "folder": None if run.folder is None else str(run.folder.relative_to(folder)),
    }
