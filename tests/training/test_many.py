"""Runs that train together or in several processes end as each does alone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from adagpr.cli.train_view import show_runs
from adagpr.data import csbm
from adagpr.data.splits import random_split
from adagpr.errors import AdaGPRError, DivergedError, InputError
from adagpr.graph import Graph, Split
from adagpr.ops import features, operator
from adagpr.reporting import report
from adagpr.system import DeferredSignals
from adagpr.training import State, TrainingData, fit, fit_all, spread, summarise
from tests.processes import FOR_EVER, Forked, Gate
from tests.training.test_resume import COMMAND, contents

OPTIONS: dict[str, Any] = {"num_layers": 2, "hidden_channels": 8, "patience": 5, "max_epochs": 40, "lr": 0.05}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return csbm(num_nodes=80, average_degree=5.0, num_features=12)


@pytest.fixture(scope="module")
def splits(graph: Graph) -> list[Split]:
    return [random_split(graph.y, seed=seed) for seed in range(3)]


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("change", [{}, {"decay": "penalty"}, {"model": "gcnii"}, {"model": "gcn"}], ids=str)
def test_every_run_ends_with_the_bits_of_a_run_alone(
    graph: Graph, splits: list[Split], change: dict[str, Any], num_workers: int, tmp_path: Path
) -> None:
    options = {**OPTIONS, **change}
    runs = fit_all(graph, splits, seeds=[0, 7], out=tmp_path / "many", num_workers=num_workers, **options)
    numbers = iter(runs)
    for split in splits:
        for seed in (0, 7):
            alone = fit(graph, split, seed=seed, out=tmp_path / f"{split.name}-{seed}", **options)
            folder = next(numbers).folder
            assert folder is not None
            assert alone.folder is not None
            assert contents(folder) == contents(alone.folder)
    together = {run.record["machine"]["together"] for run in runs}
    assert together == ({1} if change.get("model") == "gcn" else {6 // num_workers})
    assert len({run.record["result"]["num_epochs"] for run in runs}) > 1, "all ended at once, so nothing left early"


def test_in_double_precision_results_agree_to_nine_digits(
    graph: Graph, splits: list[Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    def double_data(graph: Graph, split: Split, config: Any, model: Any) -> TrainingData:
        model.to(torch.float64)
        op = operator(graph, config.direction, config.self_loops, dtype=torch.float64)
        return TrainingData(features(graph.x, torch.float64), op, graph.y, split.train, split.val)

    monkeypatch.setattr(sys.modules["adagpr.training.fit"], "training_data", double_data)
    runs = fit_all(graph, splits, **OPTIONS)
    for run, split in zip(runs, splits, strict=True):
        alone = fit(graph, split, **OPTIONS)
        assert next(alone.model.parameters()).dtype == torch.float64
        for one, other in zip(run.model.parameters(), alone.model.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_progress_and_ends_are_reported_by_number(graph: Graph, splits: list[Split], tmp_path: Path) -> None:
    seen: dict[int, list[int]] = {}
    ended: list[int] = []

    def on_epoch(number: int) -> Any:
        return lambda epoch, *_: seen.setdefault(number, []).append(epoch)

    runs = fit_all(graph, splits, out=tmp_path, on_epoch=on_epoch, on_end=ended.append, num_workers=2, **OPTIONS)
    assert sorted(ended) == [0, 1, 2]
    for number, run in enumerate(runs):
        assert seen[number] == list(range(1, run.record["result"]["num_epochs"] + 1))
    seen.clear()
    ended.clear()
    fit_all(graph, splits, out=tmp_path, on_epoch=on_epoch, on_end=ended.append, num_workers=2, **OPTIONS)
    assert (seen, sorted(ended)) == ({}, [0, 1, 2])


def test_runs_stopped_together_go_on_alone_or_together(
    graph: Graph, splits: list[Split], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(BaseException):
        pass

    def on_epoch(number: int) -> Any:
        def after(epoch: int, *_: Any) -> None:
            if epoch == 4:
                raise Stopped

        return after

    whole = fit_all(graph, splits, out=tmp_path / "whole", **OPTIONS)
    monkeypatch.setattr(sys.modules["adagpr.training.many"], "CHECKPOINT_SECONDS", 0.0)
    for name in ("alone", "together"):
        with pytest.raises(Stopped):
            fit_all(graph, splits, out=tmp_path / name, on_epoch=on_epoch, num_workers=1, **OPTIONS)
    folders = [run.folder for run in whole]
    # One has gone on further than the others when they meet again.
    for number, split in enumerate(splits):
        for name in ("alone", "together"):
            if name == "alone" or number == 1:
                own = folders[number]
                assert own is not None
                fit(graph, split, out=tmp_path / name / own.name, **OPTIONS)
    fit_all(graph, splits, out=tmp_path / "together", num_workers=1, **OPTIONS)
    for folder in folders:
        assert folder is not None
        for name in ("alone", "together"):
            assert contents(tmp_path / name / folder.name) == contents(folder)


@pytest.mark.usefixtures("checkpoints")
def test_killed_with_its_processes_the_command_ends_with_the_same_bits(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*COMMAND, *("--seed", "0", "--seed", "1", "--seed", "2", "--jobs", "2")]
    whole, killed, went_on = (tmp_path / name for name in ("whole", "killed", "went-on"))
    assert Forked(tmp_path, *command, "--out", str(whole)).ended() == 0

    def waiting(state: State, on_epoch: Any) -> None:
        if len(state.history) == 20:
            gate.wait()
            went_on.touch()
        tell(state, on_epoch)

    tell = State.tell
    with monkeypatch.context() as patch:
        patch.setattr(State, "tell", waiting)
        process = Forked(tmp_path, *command, "--out", str(killed))
    gate.await_processes(2)
    assert len(list(killed.glob("*/checkpoint/state.safetensors"))) == 3
    children = [os.pidfd_open(child) for child in _children(process.pid)]
    process.kill()
    assert process.ended() == -signal.SIGKILL
    gate.let_pass(2)
    for child in children:
        wait([child])
        os.close(child)
    assert (len(children), went_on.exists()) == (2, False), "a process outlived its parent"
    assert Forked(tmp_path, *command, "--out", str(killed)).ended() == 0
    folders = sorted(path.name for path in killed.iterdir() if path.is_dir())
    assert len(folders) == 3
    for name in folders:
        assert contents(killed / name) == contents(whole / name)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_what_a_process_raises_is_raised_here() -> None:
    def refuse(items: Any, report: Any) -> None:
        raise InputError("No.")

    with pytest.raises(InputError, match=r"No\."):
        spread([1, 2], refuse, print, 2)


def test_a_process_that_is_killed_is_said_in_a_sentence() -> None:
    def die(items: Any, report: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(AdaGPRError, match="was killed"):
        spread([1, 2], die, print, 2)


def test_whichever_process_is_free_takes_the_next_item() -> None:
    found: list[tuple[int, int]] = []
    others_are_done = multiprocessing.get_context("fork").Event()

    def work(item: int, report: Any) -> None:
        assert item != 0 or others_are_done.wait(FOR_EVER), "an item was left to a process that is busy"
        report(os.getpid(), item)

    def receive(pid: int, item: int) -> None:
        found.append((pid, item))
        if len(found) == 5:
            others_are_done.set()

    spread(range(6), work, receive, 2)
    assert [item for _, item in found] == [1, 2, 3, 4, 5, 0]
    assert len({pid for pid, _ in found[:5]}) == 1
    assert len({pid for pid, _ in found} | {os.getpid()}) == 3


@pytest.mark.parametrize("num_workers", [1, 2])
def test_one_diverging_run_does_not_take_the_others_down(
    num_workers: int, graph: Graph, splits: list[Split], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit_all(graph, splits, out=tmp_path / "whole", **OPTIONS)
    add_epoch = State.add_epoch

    def diverging(state: State, loss: torch.Tensor, measured: Any, coeffs: Any) -> None:
        is_bad = state.config.seed == 7 and len(state.history) == 3
        add_epoch(state, loss * float("nan") if is_bad else loss, measured, coeffs)

    monkeypatch.setattr(State, "add_epoch", diverging)
    out = tmp_path / "parts"
    with pytest.raises(DivergedError, match=r"3 of 6 runs failed, all others are complete\. Split .*, seed 7:"):
        fit_all(graph, splits, seeds=[0, 7], out=out, num_workers=num_workers, **OPTIONS)
    for run in whole:
        assert run.folder is not None
        assert contents(out / f"{run.folder.name}") == contents(run.folder)
    with pytest.raises(DivergedError, match="at epoch 4"):
        fit(graph, splits[0], seed=7, **OPTIONS)


def test_a_bug_in_a_process_is_shown_with_its_traceback() -> None:
    def buggy(items: Any, report: Any) -> None:
        raise KeyError("no such thing")

    with pytest.raises(RuntimeError, match=r"(?s)Traceback.*KeyError: 'no such thing'"):
        spread([1, 2], buggy, print, 2)


def test_processes_that_wait_to_report_end_with_an_interrupted_parent(capfd: pytest.CaptureFixture[str]) -> None:
    def talk(item: int, report: Any) -> None:
        with DeferredSignals() as deferred:
            while not deferred.has_arrived:
                report("x" * 1_000_000)  # more than is taken from a process that nobody listens to

    def interrupt(message: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spread([1, 2], talk, interrupt, 2)
    assert capfd.readouterr().err == ""


def test_a_run_of_another_rank_must_have_the_same_configuration(
    graph: Graph, splits: list[Split], tmp_path: Path
) -> None:
    fit_all(graph, splits, out=tmp_path, rank=1, world_size=2, **{**OPTIONS, "lr": 0.01})
    with pytest.raises(InputError, match=r"these keys differ: training\.lr"):
        fit_all(graph, splits, out=tmp_path, rank=0, world_size=2, **OPTIONS)


def test_seeds_may_be_whole_numbers_of_numpy(graph: Graph, splits: list[Split], tmp_path: Path) -> None:
    runs = fit_all(graph, splits[:1], seeds=np.arange(2).tolist(), root=tmp_path, **OPTIONS)
    same = fit_all(graph, splits[:1], seeds=[*np.arange(2)], root=tmp_path, **OPTIONS)
    assert same.folder == runs.folder
    assert [run.record for run in same] == [run.record for run in runs]


@pytest.mark.parametrize("part", ["val", "test"])
def test_runs_without_validation_or_test_nodes_are_shown_and_summed_up(
    part: str, graph: Graph, splits: list[Split], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty: dict[str, Any] = {part: splits[0].test[:0]}
    split = replace(splits[0], **empty)
    runs = fit_all(graph, [split], seeds=[0, 1], out=tmp_path, num_workers=1, without_graph=True, **OPTIONS)
    left = {"val": "test_acc", "test": "val_acc"}[part]
    assert set(summarise(runs)) == {"num_runs", left, f"{left}_std"}
    assert set(runs.frame()) >= {left}
    report([runs, runs.baseline_runs], tmp_path / "report.html", graph=graph, splits=[split])
    show_runs(graph, [split], runs)
    shown = capsys.readouterr().out
    assert ("\ntest accuracy  " in shown, "\nvalidation accuracy  " in shown) == (part == "val", part == "test")


def test_a_callback_can_stop_a_run_which_is_then_complete(graph: Graph, splits: list[Split], tmp_path: Path) -> None:
    def stop(number: int, *_: Any) -> Literal["stop"] | None:
        return "stop" if number == 4 else None

    alone = fit(graph, splits[0], on_epoch=stop, out=tmp_path / "alone", **OPTIONS)
    assert (alone.num_epochs, alone.record["result"]["stopped_by"]) == (4, "callback")
    many = fit_all(graph, splits, on_epoch=lambda number: stop, **OPTIONS)
    assert [run.num_epochs for run in many] == [4, 4, 4]
    assert len(many.frame()) == 3
    assert many._repr_html_().count("<tr>") == 4


def test_runs_of_several_seeds_do_not_go_into_the_folder_of_one(
    graph: Graph, splits: list[Split], tmp_path: Path
) -> None:
    fit_all(graph, splits[:1], out=tmp_path, num_layers=1, max_epochs=2)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"holds a single run, not one for each seed and split"):
        fit_all(graph, splits[:1], seeds=(0, 1), out=tmp_path, num_layers=1, max_epochs=2)
    assert contents(tmp_path) == before
    assert not any(path.is_dir() for path in tmp_path.iterdir())
