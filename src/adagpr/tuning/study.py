"""`tune`: a search from its first trial to the test of what it found, resumable at any moment.

A study's folder holds ``study.toml`` (what it is about), ``journal.jsonl`` (its trials, unless they are on a server),
``trials/`` (checkpoints of those that are running, by place),
``best.toml`` (the configuration that was chosen, which ``adagpr train --config`` takes), ``test/`` (the runs of that
configuration), ``study.json`` (the record) and ``index.html``.

When the trials are done, ``best.toml`` and a record without a test are written. Only then is the configuration in
``best.toml`` trained on graphs with all labels, and the record written again. So the record shows three things: each
trial names the SHA-256 sum of the graphs it was given, which are those of `blind`; the choice names the sum of its
trials; and the test names the sum of the file that it was made with, and when that was.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.trial import FrozenTrial, TrialState

from adagpr import files
from adagpr.errors import AdaGPRError, InputError, without_password
from adagpr.graph import Graph, Split
from adagpr.schemas import StudyConfig, StudyRecord, conform, damaged, read_json, read_toml
from adagpr.system import describe_machine, num_cores, without_machine
from adagpr.task import METRICS
from adagpr.training import TrainingConfig, check_split, describe_data, differences, resolve
from adagpr.tuning.final_test import now, run_test
from adagpr.tuning.places import best_place, finished, plain_trials
from adagpr.tuning.result import StudyResult
from adagpr.tuning.search import OnChange, fail, is_abandoned, run_trials
from adagpr.tuning.space import Space, choose_space, read_space
from adagpr.tuning.storage import create_study, held, is_server, storage_failures

_SHA256 = 64
_WAY_OUT = "Remove the file to record and test this study anew."
# The window of studies from before they had one, and the default. Eight made the best of 24 trials worse, four did not.
WINDOW = 4


def blind(graph: Graph, split: Split) -> tuple[Graph, Split]:
    """The graph with the labels of the training and validation nodes only, and the split without its test nodes."""
    known = torch.full_like(graph.y, -1)
    for part in (split.train, split.val):
        known[part] = graph.y[part]
    return replace(graph, y=known), replace(split, test=split.test[:0])


@dataclass(frozen=True, eq=False)
class Study:
    """What a study is about. Trials train on the splits at the positions ``tuned``; the test uses all splits.

    Each trial is drawn from those at least ``window`` places before it.
    """

    graph: Graph
    splits: Sequence[Split]
    tuned: Sequence[int]
    model: str
    space: Space
    seed: int = 0
    window: int = WINDOW

    @cached_property
    def shown(self) -> list[tuple[Graph, Split]]:
        """What trials are given: for each split that is tuned on, what `blind` leaves of it."""
        return [blind(self.graph, self.splits[number]) for number in self.tuned]

    def options(self, params: dict[str, Any]) -> dict[str, Any]:
        """What `fit` is given for these values of the searched parameters."""
        return {**self.space.options(params), "seed": self.seed, "num_threads": 1}

    def check(self) -> None:
        """Raises an `InputError` unless every choice and both ends of every range can be trained."""
        for name in ("seed", "num_threads"):
            if name in self.space.fixed or name in self.space.search:
                raise InputError(
                    f"A search space cannot hold {name}: all trials have the same seed and use one thread."
                )
        searched = {name: item.choices or [] for name, item in self.space.search.items()}
        if "metric" in searched or "val_metric" in searched.get("monitor", []):
            raise InputError("A search space cannot hold metric, or monitor with 'val_metric': all trials need one.")
        if "class_weights" in self.space.search:
            raise InputError(
                "class_weights cannot be searched: losses with other weights are not comparable. Fix them."
            )
        for params in self.space.probes():
            resolve(*self.shown[0], self.model, self.options(params))
        for split in self.splits:
            check_split(self.graph, split, self.config)

    @cached_property
    def config(self) -> TrainingConfig:
        """The training of the trials, but for what is searched."""
        return resolve(*self.shown[0], self.model, self.options(self.space.probes()[0])).config

    @property
    def is_by_metric(self) -> bool:
        """Whether trials are chosen by their metric, the higher the better, instead of by their loss."""
        return self.config.monitor == "val_metric"

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The whole study as plain data."""
        data = describe_data(self.graph, self.splits[0])
        if len(self.splits) > 1:
            del data["split_sha256"]
            data["split"] = self.splits[0].name.partition("/")[0]
        return {
            "data": data,
            "splits_sha256": files.digest([split.fingerprint for split in self.splits], _SHA256),
            "model": self.model,
            "seed": self.seed,
            "window": self.window,
            "tuned_on": [split.name for _, split in self.shown],
            "space": self.space.to_plain(),
            **({} if self.config.metric == "accuracy" else {"metric": self.config.metric}),
        }

    @property
    def name(self) -> str:
        """The study's name, which is that of its content."""
        # Without the default, as in studies from before there were windows.
        plain = {key: value for key, value in self.plain.items() if (key, value) != ("window", WINDOW)}
        return f"adagpr-{files.digest(plain)}"


def tune(
    graph: Graph,
    splits: Sequence[Split],
    model: str = "adagpr",
    *,
    out: Path | str,
    space: Space | str | None = None,
    settings: Mapping[str, Any] | None = None,
    tune_on: Sequence[int] | None = (0,),
    num_trials: int = 40,
    num_workers: int | None = None,
    storage: str | None = None,
    seed: int = 0,
    window: int = WINDOW,
    on_change: OnChange | None = None,
    command: str = "",
) -> StudyResult:
    """Searches the configuration with the lowest validation loss, fixes it, and only then tests it.

    With ``monitor="val_metric"`` among the settings it is the one whose best epoch has the highest ``metric``.

    Trials train on graphs without the labels of the test nodes. Calling `tune` again with the same arguments resumes
    where it stopped; a larger ``num_trials`` adds trials; a complete study is read and returned. The same arguments
    give the same record, but for what is under ``machine``, with any number of workers, however often it was stopped.

    Args:
        graph: The graph.
        splits: The splits of the protocol; what is found is tested on each of them.
        model: Name of the model.
        out: Folder of the study.
        space: What is searched, a space or its name or file; by default the paper's space for this data set and model,
            else a general one.
        settings: Options of the model and of training that are fixed instead of searched.
        tune_on: Positions of the splits that trials train on; their validation losses are averaged. By default the
            first alone; none for all. With several, a test node of one may be a training node of another; the record
            says how many are.
        num_trials: Trials that are to be complete or pruned in the end.
        num_workers: Processes that run trials, by default one for each core; more than ``window`` are of no use.
        storage: Path of the journal, by default one in ``out``; or ``postgresql://USER@HOST/DATABASE``, which several
            machines may share.
        seed: Seed of the search and of every training.
        window: How many trials may run at the same time, on all machines together. Each is drawn from the results of
            those at least so many places before it, so that a large window makes a short search worse.
        on_change: Called now and then with how far the study is.
        command: What a person can type to get the same, for the page.

    Raises:
        InputError: Something does not fit; nothing was written.
        StorageError: Disk or database fail; the trials so far are kept.
    """
    folder = Path(out)
    if num_trials < 1:
        raise InputError(f"tune: num_trials must be at least 1, got {num_trials}.")
    if window < 1:
        raise InputError(f"tune: window must be at least 1, got {window}.")
    dataset = str(graph.origin.get("name", graph.name))
    found = read_space(space) if isinstance(space, str) else space
    found = (found or choose_space(dataset, splits[0].name.partition("/")[0], model)).for_model(model)
    numbers = range(len(splits)) if tune_on is None else tune_on
    for number in numbers:
        if not 0 <= number < len(splits):
            raise InputError(f"tune: there is no split {number}; the splits are 0 to {len(splits) - 1}.")
    study = Study(graph, splits, sorted(set(numbers)), model, found.with_settings(settings or {}), seed, window)
    study.check()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    address = storage or str(folder / "journal.jsonl")
    record = _stored_record(folder, study, storage)
    if "test" not in record or record["num_trials"] < num_trials:
        workers = num_workers or num_cores()
        with _opened(folder, study, storage, address) as opened, storage_failures(address):
            trials = folder / "trials"
            run_trials(opened, study, address, trials, num_trials, workers, on_change or (lambda _: None))
            shutil.rmtree(trials, ignore_errors=True)
            record = _finish(opened, study, folder, workers, command)
    result = StudyResult(record, folder)
    files.write_text(folder / "index.html", result.page())
    return result


def _description(study: Study, storage: str | None) -> dict[str, Any]:
    """What ``study.toml`` holds, as it comes back when it is read."""
    place = "journal.jsonl"
    if storage is not None:
        place = without_password(storage) if is_server(storage) else str(Path(storage).resolve())
    return tomllib.loads(files.to_toml({**study.plain, "storage": place}))


def _stored_record(folder: Path, study: Study, storage: str | None) -> dict[str, Any]:
    """The record in the folder, empty where there is none yet; the folder of another study is an `InputError`."""
    path = folder / "study.toml"
    way_out = f"Remove the folder {folder} to start this study anew."
    stored = {"window": WINDOW, **read_toml(path, StudyConfig, way_out)} if path.exists() else {}
    different = differences(stored, _description(study, storage)) if stored else []
    if different:
        raise InputError(
            f"{folder} holds another study; these keys differ: {', '.join(different)}. "
            "Choose another folder, or remove this one."
        )
    record = _read_record(folder)
    recorded = {"window": WINDOW, **record.get("study", study.plain)}
    if differences({key: recorded.get(key) for key in study.plain}, json.loads(json.dumps(study.plain))):
        raise damaged(folder / "study.json", "its study is not that of study.toml", _WAY_OUT)
    return record


def _read_record(folder: Path) -> dict[str, Any]:
    """The record in the folder, empty where there is none; its trials must have the sum that it names."""
    path = folder / "study.json"
    if not path.exists():
        return {}
    record = _as_now(read_json(path, StudyRecord, _WAY_OUT))
    if files.digest(without_machine(record["trials"]), _SHA256) != record["best"]["trials_sha256"]:
        raise damaged(path, "its trials do not have the sum in it", _WAY_OUT)
    return record


def _as_now(record: dict[str, Any]) -> dict[str, Any]:
    """A record with what equal studies may differ in under ``machine``, where format 1 had some of it elsewhere."""
    if record["format"] == 1:
        tests = [record.get("test", {}), *record["earlier_tests"]]
        for owner in (record, record["best"], *tests, *(test["best"] for test in record["earlier_tests"])):
            for key in {"command", "fixed_at", "began_at", "ended_at"} & {*owner}:
                owner.setdefault("machine", {})[key] = owner.pop(key)
    return record


@contextlib.contextmanager
def _opened(folder: Path, study: Study, storage: str | None, address: str) -> Iterator[optuna.Study]:
    """Holds the folder and opens Optuna's study; trials that a killed command left behind are failed."""
    with files.folder_lock(folder), held(address):
        _stored_record(folder, study, storage)
        opened = create_study(study.name, address, study.is_by_metric)
        if not (folder / "study.toml").exists():
            files.write_text(folder / "study.toml", files.to_toml(_description(study, storage)))
        for trial in opened.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            # Nobody else works with a journal that is held; on a server others may, and only this machine is known.
            if not is_server(address) or is_abandoned(trial):
                fail(opened, trial)
        yield opened


def _finish(opened: optuna.Study, study: Study, folder: Path, num_workers: int, command: str) -> dict[str, Any]:
    """Fixes the best configuration of a study whose trials are done, tests it, and returns the record."""
    trials = opened.get_trials(deepcopy=False)
    kept, best = plain_trials(trials), best_place(trials, study.is_by_metric)
    if best is None:
        raise AdaGPRError(f"None of the {len(kept)} trials was complete, so there is nothing to choose.")
    chosen = {key: kept[best][key] for key in ("number", "value", "params")}
    chosen["trials_sha256"] = files.digest(without_machine(kept), _SHA256)
    path = folder / "best.toml"
    text = _best_toml(study, chosen, len(kept))
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        files.write_text(path, text)
    record: dict[str, Any] = {
        "format": 2,
        "study": {**study.plain, "source": study.space.source, "notes": study.space.notes},
        "data_notes": list(study.graph.notes),
        "num_trials": len(kept),
        "shown": [
            {
                "split": split.name,
                "num_labels": len(split.train) + len(split.val),
                "num_hidden": len(study.splits[number].test),
                "graph_sha256": graph.fingerprint,
            }
            for number, (graph, split) in zip(study.tuned, study.shown, strict=True)
        ],
        "trials": kept,
        "best": {**chosen, "best_sha256": files.sha256_file(path)},
        "importance": _importance(list(finished(trials).values()), study.seed),
        "machine": {
            "command": command,
            **describe_machine(sum(trial["machine"]["seconds"] or 0.0 for trial in kept)),
        },
    }
    record |= _remembered(folder, record["best"])
    # Trials come from a journal, which may be damaged, or from a server.
    conform(folder / "journal.jsonl", StudyRecord, record, f"Remove the folder {folder} to start this study anew.")
    files.write_json(folder / "study.json", record)
    record["test"] = run_test(study, folder, num_workers)
    files.write_json(folder / "study.json", record)
    return record


def _best_toml(study: Study, chosen: dict[str, Any], num_trials: int) -> str:
    """The configuration as ``adagpr train --config`` reads it, below comments on where it comes from."""
    plain = resolve(study.graph, study.splits[0], study.model, study.options(chosen["params"])).plain
    tuned_on = ", ".join(study.plain["tuned_on"])
    what = f"validation {METRICS[study.config.metric].title if study.is_by_metric else 'loss'}"
    return (
        f"# Number {chosen['number']}, best of {num_trials} trials: {what} {chosen['value']} on {tuned_on}.\n"
        f"# SHA-256 sum of the list of trials: {chosen['trials_sha256']}\n\n"
    ) + files.to_toml({**plain, "data": study.plain["data"]})


def _importance(trials: list[FrozenTrial], seed: int) -> dict[str, float]:
    """Share of each parameter in how much the value varies, by fANOVA; empty where there are too few trials."""
    # Imported here, because it brings scikit-learn's forests, which take a second and which workers do not need.
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    if len({trial.value for trial in trials if trial.state == TrialState.COMPLETE}) < 2:
        return {}
    study = optuna.create_study()
    study.add_trials(trials)
    try:
        found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=seed))
    except (ValueError, RuntimeError):
        return {}
    return {name: round(share, 4) for name, share in found.items()}


def _remembered(folder: Path, best: dict[str, Any]) -> dict[str, Any]:
    """The choice, with the time when it was first made, and earlier tests: a person who adds trials has seen them."""
    old = _read_record(folder)
    tests: list[dict[str, Any]] = old.get("earlier_tests", [])
    if old and old["best"]["trials_sha256"] == best["trials_sha256"]:
        return {"best": {**best, "machine": old["best"].get("machine", {})}, "earlier_tests": tests}
    if "test" in old:
        kept = {"test_acc": old["test"]["test_acc"], "machine": old["test"].get("machine", {})}
        tests = [*tests, {"num_trials": old["num_trials"], "best": old["best"], **kept}]
    return {"best": {**best, "machine": {"fixed_at": now()}}, "earlier_tests": tests}
