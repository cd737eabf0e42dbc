"""Several ranks train one model: what they reach, and what happens when one of them cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from adagpr.data import csbm
from adagpr.data.splits import random_split
from adagpr.partitioning import partition_graph
from adagpr.schemas import load_tensors
from adagpr.training import State, fit_partition
from tests.cli.command import adagpr
from tests.partitioning.ranks import exit_codes, start_ranks
from tests.processes import Gate

SMALL = ["--set", "num_layers=3", "--set", "hidden_channels=8", "--set", "num_coeffs=3"]
EXACT = [*SMALL, "--set", "dropout=0.0", "--set", "max_epochs=15"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale") / "parts"
    graph = csbm(num_nodes=300, num_features=6)  # so few that the second layer normalises over all nodes
    partition_graph(graph, random_split(graph.y), 4, folder)
    return folder


def record_of(folder: Path) -> dict[str, dict[str, float]]:
    record: dict[str, dict[str, float]] = json.loads((folder / "record.json").read_text())
    return record


@pytest.mark.parametrize("model", ["adagpr", "adagpr-signed"])
def test_two_ranks_reach_what_one_does(model: str, parts: Path, tmp_path: Path) -> None:
    asked = ["metric=roc_auc", "monitor=val_metric", "feature_scaling=standardise"]
    options = [word for item in asked for word in ("--set", item)]
    words = ["train", "--partitions", str(parts), "--model", model, *EXACT, *options]
    adagpr(*words, "--out", str(tmp_path / "one"))
    ranks = start_ranks(2, tmp_path, *words, "--out", str(tmp_path / "two"))
    assert exit_codes(ranks) == [0, 0], ranks[0].errors
    one, two = (pq.read_table(tmp_path / name / "history.parquet") for name in ("one", "two"))
    assert one["val_loss"].to_pylist() == pytest.approx(two["val_loss"].to_pylist(), abs=1e-4)
    assert one["val_metric"].to_pylist() == pytest.approx(two["val_metric"].to_pylist(), abs=1e-3)
    assert record_of(tmp_path / "two")["machine"]["ranks"] == 2
    own, both = ((tmp_path / name / "scaling.safetensors").read_bytes() for name in ("one", "two"))
    assert own == both
    said = pq.read_table(tmp_path / "two" / "predictions.parquet")
    assert sorted(said["node_id"].to_pylist()) == list(range(300))
    # Complete runs are read, by every rank.
    ranks = start_ranks(2, tmp_path, *words, "--out", str(tmp_path / "two"))
    assert exit_codes(ranks) == [0, 0]


def missing(folder: Path) -> Path:
    path = folder / "part-00003" / "features.safetensors"
    path.unlink()
    return path


def altered(folder: Path) -> Path:
    path = folder / "part-00002" / "graph.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    return path


def of_another_graph(folder: Path) -> Path:
    graph = csbm(num_nodes=300, num_features=8, seed=1)
    other = folder.parent / "other"
    partition_graph(graph, random_split(graph.y), 4, other)
    path = folder / "part-00003" / "nodes.arrow"
    shutil.copy(other / "part-00003" / "nodes.arrow", path)
    return path


@pytest.mark.parametrize("spoil", [missing, altered, of_another_graph])
def test_a_bad_part_is_named_by_every_rank(parts: Path, tmp_path: Path, spoil: object) -> None:
    assert callable(spoil)
    shutil.copytree(parts, tmp_path / "parts")
    path = spoil(tmp_path / "parts")
    out = tmp_path / "run"
    ranks = start_ranks(2, tmp_path, "train", "--partitions", str(tmp_path / "parts"), *SMALL, "--out", str(out))
    assert exit_codes(ranks) == [2, 2]
    for rank in ranks:
        assert rank.errors.startswith("Error: ")
        assert rank.errors.count("\n") == 1
        assert str(path) in rank.errors
    assert not out.exists()


def test_a_rank_that_is_killed_takes_the_others_down_and_the_run_goes_on_with_other_ranks(
    parts: Path, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting(state: State, on_epoch: Any) -> None:
        if len(state.history) == 5:
            gate.wait()
        tell(state, on_epoch)

    tell, out = State.tell, tmp_path / "run"
    words = ["train", "--partitions", str(parts), *SMALL, "--set", "max_epochs=30", "--set", "patience=none"]
    with monkeypatch.context() as patch:
        patch.setitem(fit_partition.__kwdefaults__ or {}, "checkpoint_seconds", 0.0)
        patch.setattr(State, "tell", waiting)
        ranks = start_ranks(3, tmp_path, *words, "--out", str(out))
    gate.await_processes(3)
    ranks[1].kill()
    # Dying it could still take the place of another one at the gate.
    assert ranks[1].ended() == -9
    gate.let_pass(2)
    assert exit_codes(ranks) == [1, -9, 1]
    assert "The connection to another rank was lost" in ranks[0].errors
    assert not (out / "record.json").exists()
    assert len(load_tensors(out / "checkpoint" / "state.safetensors", "")[0]["history"]) == 5
    again = start_ranks(2, tmp_path, *words, "--out", str(out))
    assert exit_codes(again) == [0, 0]
    history = pq.read_table(out / "history.parquet")
    assert history["epoch"].to_pylist() == list(range(1, 31))


def test_seeds_are_spread_over_ranks_without_a_word_between_them(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    seeds = [word for seed in range(3) for word in ("--seed", str(seed))]
    words = ["train", "csbm", *SMALL, "--set", "max_epochs=3", *seeds, "--out", str(out)]
    ranks = start_ranks(2, tmp_path, *words)
    assert exit_codes(ranks) == [0, 0]
    assert len([*out.glob("*/record.json")]) == 3
    assert "over 3 runs" in max((rank.output for rank in ranks), key=len)
    alone = tmp_path / "alone"
    adagpr("train", "csbm", *SMALL, "--set", "max_epochs=3", "--seed", "1", "--out", str(alone))
    (run,) = out.glob("*-seed-1")
    assert record_of(run)["result"] == record_of(alone)["result"]
