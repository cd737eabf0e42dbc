"""Several ranks train one model: what they reach, and what happens when one of them cannot."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from adagpr.data import csbm
from adagpr.data.splits import random_split
from adagpr.partitioning import partition_graph
from adagpr.training import fit_partition
from tests.cli.command import adagpr
from tests.partitioning.ranks import exit_codes, start_ranks

SMALL = ["--set", "num_layers=3", "--set", "hidden_channels=8", "--set", "num_coeffs=3"]
EXACT = [*SMALL, "--set", "dropout=0.0", "--set", "max_epochs=15"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale") / "parts"
    graph = csbm(num_nodes=300, num_features=8)
    partition_graph(graph, random_split(graph.y), 4, folder)
    return folder


def record_of(folder: Path) -> dict[str, dict[str, float]]:
    record: dict[str, dict[str, float]] = json.loads((folder / "record.json").read_text())
    return record


def test_two_ranks_reach_what_one_does(parts: Path, tmp_path: Path) -> None:
    adagpr("train", "--partitions", str(parts), *EXACT, "--out", str(tmp_path / "one"))
    ranks = start_ranks(2, tmp_path, "train", "--partitions", str(parts), *EXACT, "--out", str(tmp_path / "two"))
    assert exit_codes(ranks) == [0, 0], (tmp_path / "0.txt").read_text()
    one, two = (pq.read_table(tmp_path / name / "history.parquet") for name in ("one", "two"))
    assert one["val_loss"].to_pylist() == pytest.approx(two["val_loss"].to_pylist(), abs=1e-4)
    assert record_of(tmp_path / "two")["machine"]["ranks"] == 2
    said = pq.read_table(tmp_path / "two" / "predictions.parquet")
    assert sorted(said["node_id"].to_pylist()) == list(range(300))
    # Complete runs are read, by every rank.
    ranks = start_ranks(2, tmp_path, "train", "--partitions", str(parts), *EXACT, "--out", str(tmp_path / "two"))
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
    started = time.monotonic()
    ranks = start_ranks(2, tmp_path, "train", "--partitions", str(tmp_path / "parts"), *SMALL, "--out", str(out))
    assert exit_codes(ranks, 30) == [2, 2]
    assert time.monotonic() - started < 30
    for rank in range(2):
        said = (tmp_path / f"{rank}.txt").read_text()
        assert said.startswith("Error: ")
        assert said.count("\n") == 1
        assert str(path) in said
    assert not out.exists()


def test_a_rank_that_is_killed_takes_the_others_down_and_the_run_goes_on_with_other_ranks(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fit_partition.__kwdefaults__ or {}, "checkpoint_seconds", 0.05)
    out = tmp_path / "run"
    words = ["train", "--partitions", str(parts), *SMALL, "--set", "max_epochs=400", "--set", "patience=none"]
    ranks = start_ranks(3, tmp_path, *words, "--out", str(out))
    wait_for(out / "checkpoint" / "state.safetensors")
    ranks[1].kill()
    assert exit_codes(ranks, 30) == [1, -9, 1]
    assert "The connection to another rank was lost" in (tmp_path / "0.txt").read_text()
    assert not (out / "record.json").exists()
    again = start_ranks(2, tmp_path, *words, "--out", str(out))
    assert exit_codes(again) == [0, 0]
    history = pq.read_table(out / "history.parquet")
    assert history["epoch"].to_pylist() == list(range(1, 401))


def wait_for(path: Path) -> None:
    ends = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < ends, f"{path} did not come"
        time.sleep(0.01)


def test_seeds_are_spread_over_ranks_without_a_word_between_them(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    seeds = [word for seed in range(3) for word in ("--seed", str(seed))]
    words = ["train", "digits", *SMALL, "--set", "max_epochs=3", *seeds, "--out", str(out)]
    ranks = start_ranks(2, tmp_path, *words)
    assert exit_codes(ranks) == [0, 0]
    assert len([*out.glob("*/record.json")]) == 3
    said = sorted(((tmp_path / f"{rank}.txt").read_text() for rank in range(2)), key=len)
    assert "over 3 runs" in said[1]
    alone = tmp_path / "alone"
    adagpr("train", "digits", *SMALL, "--set", "max_epochs=3", "--seed", "1", "--out", str(alone))
    (run,) = out.glob("*-seed-1")
    assert record_of(run)["result"] == record_of(alone)["result"]
