"""`tune`: a search from its first trial to the test of what it found, resumable at any moment.

A study's folder holds ``study.toml`` (what it is about), ``journal.jsonl`` (its trials, unless they are on a server),
``best.toml`` (the configuration that was chosen, which ``adagpr train --config`` takes), ``test/`` (the runs of that
configuration), ``study.json`` (the record) and ``index.html``.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from adagpr.errors import InputError
from adagpr.files import folder_lock, make_folder, read_json, read_toml, to_toml, write_text, write_toml
from adagpr.graph import Graph, Split
from adagpr.system import num_cores
from adagpr.training.config import differences
from adagpr.tuning.objective import Study
from adagpr.tuning.page import page
from adagpr.tuning.record import finish
from adagpr.tuning.search import OnChange, StudyProgress, run_trials
from adagpr.tuning.space import Space, choose_space
from adagpr.tuning.storage import create_study, held, is_server, shown, storage_failures
from adagpr.tuning.trials import is_abandoned, requeue

__all__ = ["tune"]

DEFAULT_TRIALS = 40


def tune(
    graph: Graph,
    splits: Sequence[Split],
    model: str = "adagpr",
    *,
    out: Path | str,
    space: Space | None = None,
    tune_on: Sequence[int] | None = (0,),
    num_trials: int = DEFAULT_TRIALS,
    num_workers: int | None = None,
    storage: str | None = None,
    seed: int = 0,
    on_change: OnChange | None = None,
    command: str = "",
) -> dict[str, Any]:
    """Searches the configuration with the lowest validation loss, fixes it, and only then tests it.

    Trials train on graphs without the labels of the test nodes. Calling `tune` again with the same arguments goes on
    where it stopped; a larger ``num_trials`` adds trials; a complete study is read and returned.

    Args:
        graph: The graph.
        splits: The splits of the protocol. What is found is tested on each of them.
        model: Name of the model.
        out: Folder of the study.
        space: What is searched; by default the paper's space for this data set and model, else a general one.
        tune_on: Positions of the splits that trials train on; their validation losses are averaged. By default the
            first alone; none for all. With several, the test nodes of one split are training nodes of another, and the
            record says how many.
        num_trials: Trials that are to be complete or pruned in the end.
        num_workers: Processes that run trials, by default one for each core.
        storage: Path of the journal, by default one in ``out``; or ``postgresql://USER@HOST/DATABASE``, which several
            machines may share.
        seed: Seed of the search and of every training.
        on_change: Called now and then with where the study stands.
        command: What a person can type to get the same, for the page.

    Returns:
        The record, as in ``study.json``.

    Raises:
        InputError: Something does not fit; nothing was written.
        StorageError: Disk or database fail; the trials so far are kept.
    """
    folder = Path(out)
    if num_trials < 1:
        raise InputError(f"tune: num_trials must be at least 1, got {num_trials}.")
    dataset = str(graph.origin.get("name", graph.name))
    found = space or choose_space(dataset, splits[0].name.partition("/")[0], model)
    numbers = range(len(splits)) if tune_on is None else tune_on
    for number in numbers:
        if not 0 <= number < len(splits):
            raise InputError(f"tune: there is no split {number}; the splits are 0 to {len(splits) - 1}.")
    task = Study(graph, splits, sorted(set(numbers)), model, found.for_model(model), seed)
    task.check()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    address = storage or str(folder / "journal.jsonl")
    record = _complete_record(folder, task, storage, num_trials)
    if record is None:
        with _opened(folder, task, storage, address) as study, storage_failures(address):
            workers = num_workers or num_cores()
            run_trials(study, task, address, num_trials, workers, on_change or _silent)
            record = finish(study, task, folder, workers, command)
    write_text(folder / "index.html", page(record))
    return record


def _silent(standing: StudyProgress) -> None:
    """Says nothing."""


def _description(task: Study, storage: str | None) -> dict[str, Any]:
    """What ``study.toml`` holds, as it comes back when it is read."""
    where = (
        "journal.jsonl" if storage is None else shown(storage) if is_server(storage) else str(Path(storage).resolve())
    )
    return tomllib.loads(to_toml({**task.plain, "storage": where}))


def _check_same(folder: Path, task: Study, storage: str | None) -> None:
    path = folder / "study.toml"
    different = differences(read_toml(path), _description(task, storage)) if path.exists() else []
    if different:
        raise InputError(
            f"{folder} holds another study; these keys differ: {', '.join(different)}. "
            "Choose another folder, or remove this one."
        )


def _complete_record(folder: Path, task: Study, storage: str | None, num_trials: int) -> dict[str, Any] | None:
    """The record of a study that is complete with at least so many trials."""
    _check_same(folder, task, storage)
    path = folder / "study.json"
    record: dict[str, Any] = read_json(path) if path.exists() else {}
    return record if "test" in record and record["num_trials"] >= num_trials else None


@contextlib.contextmanager
def _opened(folder: Path, task: Study, storage: str | None, address: str) -> Iterator[optuna.Study]:
    """Holds the folder and opens the study; trials that a killed command left behind are entered again."""
    make_folder(folder)
    with folder_lock(folder), held(address):
        _check_same(folder, task, storage)
        study = create_study(task.name, address)
        if not (folder / "study.toml").exists():
            write_toml(folder / "study.toml", _description(task, storage))
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            # Nobody else works with a journal that is held; on a server others may, and only this machine is known.
            if not is_server(address) or is_abandoned(trial):
                requeue(study, trial)
        yield study
