"""Interrupted training ends as if nothing had happened, and never destroys what it had."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from adagpr.errors import InputError, StorageError
from adagpr.files import folder_lock, read_json
from adagpr.graph import Graph, Split
from adagpr.schemas import load_tensors, save_tensors
from adagpr.training import State, TrainingData, fit, load_run
from tests.processes import Forked, Gate

COMMAND = [
    *("train", "csbm", "--set", "data.num_nodes=200", "--set", "num_layers=3", "--set", "max_epochs=60"),
    *("--set", "patience=none", "--set", "hidden_channels=8", "--json"),
]


class InterruptedHereError(Exception):
    pass


def stop_after(count: int) -> Any:
    def progress(number: int, epoch: Any, stopping: Any) -> None:
        if number >= count:
            raise InterruptedHereError

    return progress


def contents(folder: Path) -> dict[str, Any]:
    files = {name: (folder / name).read_bytes() for name in ("config.toml", "model.safetensors", "history.parquet")}
    return {**files, "record": {**read_json(folder / "record.json"), "machine": None}}


@pytest.mark.parametrize("count", [1, 7, 19])
def test_resumed_training_equals_uninterrupted_training_to_the_bit(
    count: int, graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    options |= {"max_epochs": 20, "decay": "penalty", "monitor": "val_objective"}
    fit(graph, split, out=tmp_path / "whole", **options)
    with pytest.raises(InterruptedHereError):
        fit(graph, split, out=tmp_path / "parts", on_epoch=stop_after(count), checkpoint_seconds=0.0, **options)
    assert not (tmp_path / "parts" / "record.json").exists()
    seen: list[int] = []
    fit(graph, split, out=tmp_path / "parts", on_epoch=lambda number, *_: seen.append(number), **options)
    assert seen == list(range(count + 1, 21))
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.usefixtures("checkpoints")
def test_killed_wherever_it_is_the_command_ends_with_the_same_bits(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a new process, which shares nothing with the test as forked ones do.
    alone = [sys.executable, "-m", "adagpr", *COMMAND, "--out", str(tmp_path / "whole")]
    subprocess.run(alone, check=True, capture_output=True)
    command = [*COMMAND, "--out", str(tmp_path / "killed")]
    checkpoint = tmp_path / "killed" / "checkpoint" / "state.safetensors"
    reached = []
    # In the first epoch; when the 20th checkpoint has made room for the 21st, which is not there; in the 51st epoch.
    for owner, name, number in ((TrainingData, "step", 1), (Path, "replace", 41), (State, "add_epoch", 31)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, gate.before_call(number, getattr(owner, name)))
            process = Forked(tmp_path, *command)
        gate.await_processes()
        process.kill()
        assert process.ended() == -signal.SIGKILL
        found = [path for path in (checkpoint, checkpoint.with_name("previous.safetensors")) if path.exists()]
        reached.append(len(load_tensors(found[0], "")[0]["history"]) if found else 0)
    assert reached == [0, 20, 50]
    assert Forked(tmp_path, *command).ended() == 0
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


class Killed(BaseException):
    pass


@pytest.mark.parametrize("when", ["before", "after"])
def test_ended_at_any_write_it_still_ends_with_the_same_bits(
    when: str, graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options |= {"max_epochs": 3}
    fit(graph, split, out=tmp_path / "whole", **options)
    replace, deaths, countdown = Path.replace, 0, 0

    def dying_replace(self: Path, target: Path) -> Path:
        nonlocal countdown
        countdown -= 1
        if countdown == 0 and when == "before":
            raise Killed
        result = replace(self, target)
        if countdown == 0:
            raise Killed
        return result

    monkeypatch.setattr(Path, "replace", dying_replace)
    for write in range(1, 20):
        countdown = write
        try:
            fit(graph, split, out=tmp_path / f"run{write}", checkpoint_seconds=0.0, **options)
        except Killed:
            deaths += 1
            countdown = 0
            fit(graph, split, out=tmp_path / f"run{write}", checkpoint_seconds=0.0, **options)
        assert contents(tmp_path / f"run{write}") == contents(tmp_path / "whole")
        assert not (tmp_path / f"run{write}" / "checkpoint").exists()
    # config, three checkpoints, two of which take the place of the one before, model, history, predictions, record.
    assert deaths == 10


def test_a_signal_takes_effect_after_a_checkpoint(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    whole = fit(graph, split, out=tmp_path / "whole", **options)

    def interrupt(number: int, *_: Any) -> None:
        if number == 3:
            signal.raise_signal(signal.SIGTERM)

    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(graph, split, out=tmp_path / "parts", on_epoch=interrupt, **options)
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, handler)
    seen: list[int] = []
    run = fit(graph, split, out=tmp_path / "parts", on_epoch=lambda number, *_: seen.append(number), **options)
    assert seen[0] == 5, "the epoch under way was finished and saved"
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert run.test_acc == whole.test_acc


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_leaves_one_sentence_and_its_exit_code(
    number: signal.Signals, code: int, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(State, "tell", gate.before_call(4, State.tell))
    process = Forked(tmp_path, *COMMAND, "--out", str(tmp_path / "run"))
    gate.await_processes()
    process.kill(number)
    gate.let_pass()
    assert process.ended() == code
    assert process.errors == "Stopped. The same command resumes from epoch 5.\n"
    history = load_tensors(tmp_path / "run" / "checkpoint" / "state.safetensors", "")[0]["history"]
    assert len(history) == 5, "the epoch under way was finished and saved"


def test_a_checkpoint_of_another_configuration_is_refused_by_key(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InterruptedHereError):
        fit(graph, split, out=tmp_path, on_epoch=stop_after(3), checkpoint_seconds=0.0, **options)
    before = (tmp_path / "checkpoint" / "state.safetensors").read_bytes()
    with pytest.raises(InputError, match=r"these keys differ: model.alpha, training.lr\."):
        fit(graph, split, out=tmp_path, lr=0.02, alpha=0.2, **options)
    assert (tmp_path / "checkpoint" / "state.safetensors").read_bytes() == before


def test_other_data_under_the_same_name_is_refused(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    fit(graph, split, out=tmp_path, **options)
    changed = Graph(graph.x, graph.adj * 2, graph.y, graph.class_names, name=graph.name)
    with pytest.raises(InputError, match=r"these keys differ: data.graph_sha256"):
        fit(changed, split, out=tmp_path, **options)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fit(graph, split, out=tmp_path / "whole", **options)
    folder = tmp_path / "run"
    with pytest.raises(InterruptedHereError):
        fit(graph, split, out=folder, on_epoch=stop_after(6), checkpoint_seconds=0.0, **options)
    damaged = folder / "checkpoint" / "state.safetensors"
    flip_a_bit(damaged)
    with pytest.raises(InterruptedHereError):
        fit(graph, split, out=folder, on_epoch=stop_after(1), **options)
    assert capfd.readouterr().err == (
        f"Warning: {damaged} is damaged (its content does not have the sum in its header). "
        "The run resumes from the checkpoint before it, after epoch 5.\n"
    )
    # What was read took the place of the damaged one.
    fit(graph, split, out=folder, **options)
    assert capfd.readouterr().err == ""
    assert contents(folder) == contents(tmp_path / "whole")


def test_two_damaged_checkpoints_are_one_sentence(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InterruptedHereError):
        fit(graph, split, out=tmp_path, on_epoch=stop_after(3), checkpoint_seconds=0.0, **options)
    for name in ("state", "previous"):
        flip_a_bit(tmp_path / "checkpoint" / f"{name}.safetensors")
    with pytest.raises(InputError, match=r"state.safetensors is damaged .*, and so is the one before it"):
        fit(graph, split, out=tmp_path, **options)


def without_sum(path: Path) -> None:
    """Writes a file of tensors as it was written before it had a sum."""
    tensors, header = load_tensors(path, "")
    path.write_bytes(safetensors.torch.save(tensors, {"header": json.dumps(header)}))


def test_a_checkpoint_and_a_model_from_before_they_had_sums_are_read(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InterruptedHereError):
        fit(graph, split, out=tmp_path, on_epoch=stop_after(3), checkpoint_seconds=0.0, **options)
    without_sum(tmp_path / "checkpoint" / "state.safetensors")
    (tmp_path / "checkpoint" / "previous.safetensors").unlink()
    seen: list[int] = []
    run = fit(graph, split, out=tmp_path, on_epoch=lambda number, *_: seen.append(number), **options)
    assert seen[0] == 4
    without_sum(tmp_path / "model.safetensors")
    assert load_run(tmp_path).record == run.record


@pytest.mark.parametrize("change", ["missing", "shape", "header"])
def test_a_checkpoint_that_does_not_fit_is_one_sentence(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path, change: str
) -> None:
    with pytest.raises(InterruptedHereError):
        fit(graph, split, out=tmp_path, on_epoch=stop_after(1), checkpoint_seconds=0.0, **options)
    path = tmp_path / "checkpoint" / "state.safetensors"
    tensors, header = load_tensors(path, "")
    if change == "missing":
        del tensors["history"]
    elif change == "shape":
        name = next(name for name in tensors if name.startswith("model/"))
        tensors[name] = tensors[name].reshape(-1)[:1]
    else:
        header["stopping"] = {"unknown": 1}
    save_tensors(path, tensors, header)
    with pytest.raises(InputError, match=r"is damaged .* Remove the folder .* to start this run anew"):
        fit(graph, split, out=tmp_path, **options)


def test_a_configuration_that_is_none_is_one_sentence(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text('model = "adagpr"\ntraining = 1\ndata = {}\n')
    with pytest.raises(InputError, match=r"config.toml is damaged \(model must be .*\). Remove the folder"):
        fit(graph, split, out=tmp_path, **options)


def test_two_processes_cannot_train_in_one_folder(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    with folder_lock(tmp_path), pytest.raises(InputError, match="Another process is working in"):
        fit(graph, split, out=tmp_path, **options)


def test_a_disk_that_fills_up_is_one_sentence_and_the_last_checkpoint_survives(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    """The history makes every checkpoint longer than the one before; a limit on file size then acts as a full disk."""
    options |= {"max_epochs": 60}
    fit(graph, split, out=tmp_path / "whole", **options)
    with pytest.raises(InterruptedHereError):
        fit(graph, split, out=tmp_path / "run", on_epoch=stop_after(5), checkpoint_seconds=0.0, **options)
    checkpoint = tmp_path / "run" / "checkpoint" / "state.safetensors"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (checkpoint.stat().st_size + 500, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"Cannot write .*state\.safetensors: File too large\. What was there"):
            fit(graph, split, out=tmp_path / "run", checkpoint_seconds=0.0, **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name for path in checkpoint.parent.iterdir()} == {"previous.safetensors", "state.safetensors"}
    fit(graph, split, out=tmp_path / "run", **options)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_really_full_disk_ends_with_exit_code_1_and_can_be_resumed(
    tiny_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*COMMAND, "--set", "hidden_channels=18"]
    assert Forked(tmp_path, *words, "--out", str(tmp_path / "whole")).ended() == 0
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["adagpr.training.many"], "CHECKPOINT_SECONDS", 0.0)
        done = Forked(tmp_path, *words, "--out", str(tiny_disk / "run"))
    assert done.ended() == 1
    assert done.errors.count("\n") == 1
    assert "the disk is full. What was there before is unchanged." in done.errors
    assert 1 < len(load_tensors(tiny_disk / "run" / "checkpoint" / "state.safetensors", "")[0]["history"]) < 60
    subprocess.run(["mount", "-o", "remount,size=64m", str(tiny_disk)], check=True)
    assert Forked(tmp_path, *words, "--out", str(tiny_disk / "run")).ended() == 0
    assert contents(tiny_disk / "run") == contents(tmp_path / "whole")


def test_a_folder_that_cannot_be_written_is_refused(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Cannot write to the folder"):
        fit(graph, split, out=tmp_path / "file" / "run", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
