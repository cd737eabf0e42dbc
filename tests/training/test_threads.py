"""Threads change how long an epoch takes, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import adagpr
from adagpr import system
from adagpr.graph import Graph, Split
from adagpr.nn import MODELS
from adagpr.ops import num_threads
from adagpr.training import Run, ThreadChoice, fit, fit_all, resolve

Task = tuple[Graph, Split]


@pytest.fixture(scope="module")
def task() -> Task:
    """Enough rows for kernels and torch's operations to share them among threads."""
    graph, (split, *_) = adagpr.load("csbm", num_nodes=6000, num_features=40)
    return graph, split


def bits(run: Run) -> list[Any]:
    tensors = {name: tensor.numpy().tobytes() for name, tensor in run.model.state_dict().items()}
    return [run.history.to_pydict(), tensors, run.predictions.to_pydict()]


def change_at_random(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has every epoch of a training use another number of threads; returns where they are written down."""
    chance, used = np.random.default_rng(0), []

    def add(choice: ThreadChoice, seconds: float) -> None:
        used.append(choice.count)
        choice.count = int(chance.integers(1, 5))

    monkeypatch.setattr(ThreadChoice, "_add", add)
    monkeypatch.setattr("adagpr.training.config.num_cores", lambda: 4)
    monkeypatch.setattr("adagpr.training.config._WORK_PER_THREAD", 1)
    return used


# What they prepare takes long on the graph of the others.
SLOW = ("gat", "geom-gcn", "ppnp")


@pytest.mark.parametrize("model", sorted(MODELS))
def test_any_number_of_threads_gives_the_same_bits(
    model: str, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if model in SLOW:
        graph, (split, *_) = adagpr.load("csbm", num_nodes=800, num_features=40)
        task = graph, split
    options: dict[str, Any] = {"max_epochs": 4, "patience": None}
    one, two, four = (bits(fit(*task, model, num_threads=threads, **options)) for threads in (1, 2, 4))
    assert one == two == four
    used = change_at_random(monkeypatch)
    assert bits(fit(*task, model, **options)) == one
    assert model == "label-propagation" or len(used) == 4


def test_runs_side_by_side_have_the_same_bits_with_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, splits = adagpr.load("csbm", num_nodes=600)
    options: dict[str, Any] = {"max_epochs": 6, "patience": None, "seeds": [0, 1, 2]}
    runs = [bits(run) for run in fit_all(graph, splits[:1], num_threads=1, **options)]
    assert [bits(run) for run in fit_all(graph, splits[:1], num_threads=4, **options)] == runs
    used = change_at_random(monkeypatch)
    assert [bits(run) for run in fit_all(graph, splits[:1], **options)] == runs
    assert len(set(used)) > 1


def test_predictions_for_tables_do_not_depend_on_torch_s_threads(task: Task) -> None:
    run = fit(*task, max_epochs=2)
    tables = []
    for threads in (1, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        tables.append(run.predict(task[0]).to_pydict())
        assert torch.get_num_threads() == threads
        torch.set_num_threads(before)
    assert tables[0] == tables[1]


def counts(choice: ThreadChoice, seconds: dict[int, float], num_epochs: int) -> list[int]:
    """How many threads each of some epochs used, which take so long with each number of threads."""
    found = []
    for _ in range(num_epochs):
        found.append(choice.count)
        choice._add(seconds[choice.count])
    return found


def test_the_faster_number_of_threads_is_kept_and_looked_at_again_now_and_then() -> None:
    choice = ThreadChoice(2)
    assert counts(choice, {1: 3.0, 2: 2.0}, 6) == [2, 1, 2, 1, 2, 1]
    used = counts(choice, {1: 3.0, 2: 2.0}, 1000)
    assert 3 < used.count(1) < 100


def test_when_others_need_the_cores_it_goes_back_to_one_thread() -> None:
    choice = ThreadChoice(2)
    counts(choice, {1: 3.0, 2: 2.0}, 10)
    assert choice.count == 2
    used = counts(choice, {1: 4.0, 2: 90.0}, 300)
    assert used.count(2) < 8
    assert used[-1] == 1


def test_a_number_that_was_asked_for_is_kept() -> None:
    choice = ThreadChoice(2, is_fixed=True)
    with choice.epoch():
        assert num_threads() == 2
    assert choice.count == 2


def test_threads_are_no_part_of_the_configuration(task: Task) -> None:
    setups = [resolve(*task, "adagpr", {"num_threads": threads}) for threads in (None, 1, 2)]
    assert setups[0].plain == setups[1].plain == setups[2].plain
    assert [setup.threads().count for setup in setups][1:] == [1, 2]


@pytest.mark.parametrize(("quota", "cores"), [("150000 100000", 1), ("400000 100000", 4), ("max 100000", 8)])
def test_cores_are_those_of_the_control_group(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "cpu.max").write_text(quota)
    (tmp_path / "cgroup").write_text("0::/job\n")
    monkeypatch.setattr(system, "_CGROUP", (tmp_path / "cgroup", tmp_path))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(8))
    assert system.num_cores() == cores
