"""Runs that train together or in several processes end as each does alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from adagpr.data import csbm
from adagpr.data.splits import random_split
from adagpr.errors import AdaGPRError, DivergedError, InputError
from adagpr.graph import Graph, Split
from adagpr.ops import features, operator
from adagpr.training import State, TrainingData, fit, fit_all, spread
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


def test_killed_with_its_processes_the_command_ends_with_the_same_bits(tmp_path: Path) -> None:
    command = [*COMMAND, *("--seed", "0", "--seed", "1", "--seed", "2", "--jobs", "2")]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    killed = tmp_path / "killed"
    process = subprocess.Popen([*command, "--out", str(killed)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(killed.glob("*/checkpoint/state.safetensors"))) < 3:
        time.sleep(0.005)
    children = _children(process.pid)
    assert len(children) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(Path(f"/proc/{child}").exists() for child in children), "a process outlived its parent"
    subprocess.run([*command, "--out", str(killed)], check=True, capture_output=True)
    folders = sorted(path.name for path in killed.iterdir() if path.is_dir())
    assert len(folders) == 3
    for name in folders:
        assert contents(killed / name) == contents(tmp_path / "whole" / name)


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

    def work(item: int, report: Any) -> None:
        time.sleep(0.5 if item == 0 else 0.01)
        report((os.getpid(), item))

    spread(range(6), work, found.append, 2)
    slow = next(pid for pid, item in found if item == 0)
    assert [item for pid, item in found if pid != slow] == [1, 2, 3, 4, 5]
    assert len({pid for pid, _ in found} | {os.getpid()}) == 3


@pytest.mark.parametrize("num_workers", [1, 2])
def test_one_diverging_run_does_not_take_the_others_down(
    num_workers: int, graph: Graph, splits: list[Split], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit_all(graph, splits, out=tmp_path / "whole", **OPTIONS)
    add_epoch = State.add_epoch

    def diverging(state: State, loss: torch.Tensor, measured: Any, coeffs: Any, config: Any) -> None:
        is_bad = config.seed == 7 and len(state.history) == 3
        add_epoch(state, loss * float("nan") if is_bad else loss, measured, coeffs, config)

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


def test_a_callback_can_stop_a_run_which_is_then_complete(graph: Graph, splits: list[Split], tmp_path: Path) -> None:
    def stop(number: int, *_: Any) -> Literal["stop"] | None:
        return "stop" if number == 4 else None

    alone = fit(graph, splits[0], on_epoch=stop, out=tmp_path / "alone", **OPTIONS)
    assert (alone.num_epochs, alone.record["result"]["stopped_by"]) == (4, "callback")
    many = fit_all(graph, splits, on_epoch=lambda number: stop, **OPTIONS)
    assert [run.num_epochs for run in many] == [4, 4, 4]
    assert len(many.frame()) == 3
    assert many._repr_html_().count("<tr>") == 4
