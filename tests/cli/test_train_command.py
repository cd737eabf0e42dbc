"""``adagpr train`` as a person uses it: a process, its output, its exit code, its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adagpr.files import read_json, read_toml
from tests.processes import run_forked

QUICK = ["--set", "max_epochs=5", "--set", "num_layers=2", "--set", "hidden_channels=8"]
SMALL = ["csbm", "--set", "data.num_nodes=60", *QUICK]


def adagpr(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_forked(folder, "train", *words)


@pytest.fixture
def refused(tmp_path: Path, ended: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Runs the command in this process and gives back its one sentence, once it has ended as a mistake should."""

    def call(*words: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        code, out, err = ended(tmp_path, "train", *words)
        assert code == 2
        assert out == ""
        assert err.startswith("Error: ")
        assert err.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == before
        return err

    return call


def test_without_a_data_set_it_trains_on_the_embedded_digits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "adagpr", "train", *QUICK, "--without-graph"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for text in ("digits: 1797 nodes", "split labelled-5: 50 training", "test accuracy", "without the graph", "hop 3"):
        assert text in done.stdout
    folder = tmp_path / done.stdout.split("run folder")[1].split()[0]
    assert (folder / "record.json").exists()
    assert (folder / "without-graph" / "record.json").exists()
    assert done.stdout.endswith(f"page        {folder.relative_to(tmp_path)}/report.html\n")
    assert (folder / "report.html").exists()


def test_json_is_the_record_and_nothing_else(tmp_path: Path) -> None:
    done = adagpr(tmp_path, *SMALL, "--json", "--out", "run", "--seed", "3")
    printed = json.loads(done.stdout)
    record = read_json(tmp_path / "run" / "record.json")
    assert printed["runs"] == [{"folder": "run", **record}]
    assert printed["test_acc"] == record["result"]["scores"]["test"]["accuracy"]
    assert record["config"]["training"]["seed"] == 3


def test_repeating_the_command_reads_the_finished_run(tmp_path: Path) -> None:
    first, second = (adagpr(tmp_path, *SMALL, "--json") for _ in range(2))
    assert first.stdout == second.stdout


def test_several_seeds_become_several_runs_with_a_mean(tmp_path: Path) -> None:
    done = adagpr(tmp_path, *SMALL, "--seed", "0", "--seed", "1", "--out", "both")
    assert "over 2 runs" in done.stdout
    names = sorted(path.name for path in (tmp_path / "both").iterdir())
    assert names == ["random-0-seed-0", "random-0-seed-1", "report.html"]


def test_ten_fixed_splits_become_ten_runs(tmp_path: Path, benchmark_root: Path) -> None:
    done = adagpr(tmp_path, "texas", *QUICK, "--json")
    printed = json.loads(done.stdout)
    assert printed["num_runs"] == 10
    assert [run["data"]["split"] for run in printed["runs"]] == [f"geom-gcn/{i}" for i in range(10)]


@pytest.mark.parametrize(
    "words",
    [
        ["digits", "--set", "weight_decay.convs=0.1", "--set", "patience=none"],
        ["csbm", "--set", "data.num_nodes=60", "--set", "data.fractions=[0.3,0.3,0.4]"],
        ["mine.npz", "--set", "data.row_normalize=false"],
    ],
)
def test_a_run_s_own_configuration_repeats_it(words: list[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **own_graph())
    adagpr(tmp_path, *words, *QUICK, "--out", "one")
    done = adagpr(tmp_path, "--config", "one/config.toml", "--out", "two")
    assert done.returncode == 0, done.stderr
    assert read_toml(tmp_path / "one" / "config.toml") == read_toml(tmp_path / "two" / "config.toml")
    one, two = (read_json(tmp_path / name / "record.json") for name in ("one", "two"))
    assert {**one, "machine": 0} == {**two, "machine": 0}


def test_a_configuration_of_another_graph_is_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    np.savez(tmp_path / "mine.npz", **own_graph())
    adagpr(tmp_path, "mine.npz", *QUICK, "--out", "one")
    np.savez(tmp_path / "mine.npz", **own_graph(node_labels=np.arange(12) % 3))
    assert "written for another graph of 'mine.npz'" in refused("--config", "one/config.toml")


def test_a_group_set_by_hand_leaves_the_file_s_other_groups(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[training.weight_decay]\nconvs = 1.0\nlinears = 0.1\n")
    adagpr(tmp_path, *SMALL, "--config", "a.toml", "--set", "weight_decay.convs=0.5", "--out", "run")
    config = read_toml(tmp_path / "run" / "config.toml")
    assert config["training"]["weight_decay"] == {"convs": 0.5, "linears": 0.1}


def test_a_terminal_without_unicode_is_served(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "adagpr", "train", *SMALL]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", ["data = 5", "training = [1]", "[data]\nname = 5", "[[model", "[other]"])
def test_a_configuration_file_of_another_shape_is_one_sentence(
    text: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "a.toml").write_text(text)
    assert "a.toml" in refused("--config", "a.toml")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        '[data]\nname = "csbm"\nnum_nodes = 60\n[model]\nname = "mlp"\n[training]\nlr = 0.5\n'
    )
    done = adagpr(tmp_path, "--config", "a.toml", "--set", "lr=0.25", "--set", "max_epochs=3", "--out", "run")
    assert done.returncode == 0, done.stderr
    config = read_toml(tmp_path / "run" / "config.toml")
    assert (config["model"]["name"], config["training"]["lr"]) == ("mlp", 0.25)


BAD: list[tuple[list[str], str]] = [
    (["coar"], "Unknown data set 'coar'. Did you mean 'cora'? See: adagpr data ls"),
    (["digits", "--model", "adagrp"], "Unknown model 'adagrp'. Did you mean 'adagpr'?"),
    (["digits", "--set", "num_layer=2"], "Unknown key for the model 'adagpr' 'num_layer'. Did you mean 'num_layers'?"),
    (["digits", "--set", "alpha=1.5"], "alpha must be less than or equal to 1, got 1.5"),
    (["digits", "--set", "num_layers=-2"], "num_layers must be greater than or equal to 1, got -2"),
    (["digits", "--set", "num_coeffs=2.5"], "num_coeffs must be a whole number"),
    (["digits", "--set", "num_layers=two"], "num_layers must be a whole number"),
    (["digits", "--set", "lr=nan"], "lr must be"),
    (["digits", "--set", "alpha"], "--set takes KEY=VALUE, got 'alpha'"),
    (["digits", "--split", "publik"], "Unknown split 'publik'"),
    (["digits", "--seed", "-1"], "seed must be greater than or equal to 0, got -1"),
    (["digits", "--set", "weight_decay.conv=1"], "Unknown parameter group in weight_decay 'conv'"),
    (["digits", "--set", "monitor=test_acc"], "monitor must be 'val_loss', 'val_objective', 'val_acc' or 'val_metric'"),
    (["digits", "--set", "metric=roc"], "metric must be 'accuracy', 'balanced_accuracy', 'macro_f1', 'roc_auc' or"),
    (["digits", "--set", "metric=roc_auc"], "metric is 'roc_auc', which is for two classes, but this graph has 10"),
    (["digits", "--model", "mlp", "--without-graph"], "The model 'mlp' has no coefficients"),
    (["digits", "--config", "nowhere.toml"], "Cannot read nowhere.toml"),
    (["digits", "--device", "tpu"], "device must be 'cpu' or 'cuda', got 'tpu'"),
    (["digits", "--set", "data.homophily=0.1"], "only csbm and tables take options"),
    (["digits", "--set", "lr=0.1", "--set", "data.name=cora"], "data.name cannot be set"),
    (["digits", "--set", f"lr={'9' * 5000}"], "lr must be"),
    (["digits", "--set", f"alpha={'[' * 5000}"], "alpha must be"),
    (["digits", "--set", "num_layers=99999999999999999999999"], "num_layers must be less than or equal to"),
    (["digits", "--set", "weight_decay=1", "--set", "weight_decay.convs=1"], "both as a value and as a table"),
    (["digits", "--set", "weight_decay.convs=1", "--set", "weight_decay=1"], "both as a value and as a table"),
    (["digits", "--seed", "0", "--seed", "-1"], "seed must be greater than or equal to 0, got -1"),
    (["digits", "--seed", "1", "--seed", "1"], "Each seed may be given once"),
    (["digits", "--out", "x" * 300], "File name too long"),
    (["nowhere.npz"], "nowhere.npz: there is no such file"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_a_mistake_is_one_sentence_and_exit_code_2_and_nothing_is_written(
    words: list[str], message: str, refused: Callable[..., str]
) -> None:
    assert message in refused(*words)


def test_a_mistake_ends_a_real_process_the_same_way(tmp_path: Path) -> None:
    done = adagpr(tmp_path, "coar")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: Unknown data set 'coar'. Did you mean 'cora'? See: adagpr data ls\n"


def own_graph(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    graph = {
        "node_features": rng.normal(size=(12, 4)),
        "node_labels": np.arange(12) % 2,
        "edges": rng.integers(12, size=(20, 2)),
        "train_masks": np.arange(12) < 6,
        "val_masks": (np.arange(12) >= 6) & (np.arange(12) < 9),
        "test_masks": np.arange(12) >= 9,
    }
    return {**graph, **changes}


BAD_GRAPHS: list[tuple[dict[str, Any], str]] = [
    ({"node_features": np.full((12, 4), np.nan)}, "node_features holds values that are NaN or infinite"),
    ({"node_features": np.full((12, 4), np.inf)}, "node_features holds values that are NaN or infinite"),
    ({"edges": np.array([[0, 99]])}, "has the target 99, but the nodes are 0 to 11"),
    ({"node_labels": np.full(12, -1)}, "every label is missing"),
    ({"node_labels": np.zeros(12, dtype=int)}, "every known label is 0"),
    ({"test_masks": np.arange(12) >= 8}, "overlap in row 0: node 8 is in more than one part"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_GRAPHS, ids=[message for _, message in BAD_GRAPHS])
def test_a_bad_graph_is_one_sentence_and_exit_code_2(
    changes: dict[str, Any], message: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    np.savez(tmp_path / "mine.npz", **own_graph(**changes))
    sentence = refused("mine.npz")
    assert sentence.startswith("Error: mine.npz: ")
    assert message in sentence


def test_a_good_graph_of_one_s_own_trains(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **own_graph())
    done = adagpr(tmp_path, "mine.npz", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "mine: 12 nodes" in done.stdout


@pytest.mark.parametrize("damage", ["cut", "changed", "pickle"])
def test_a_damaged_data_file_is_one_sentence_and_nothing_runs(
    damage: str, tmp_path: Path, benchmark_root: Path, refused: Callable[..., str]
) -> None:
    folder = tmp_path / "mirror" / "planetoid"
    folder.mkdir(parents=True)
    for path in (benchmark_root / "planetoid").glob("ind.cora.*"):
        (folder / path.name).write_bytes(path.read_bytes())
    victim = folder / "ind.cora.x"
    content = victim.read_bytes()
    smuggled = b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR."
    victim.write_bytes({"cut": content[:-9], "changed": content[:-1] + b"x", "pickle": smuggled}[damage])
    sentence = refused("cora", "--data-root", "mirror", "--out", "run")
    assert "ind.cora.x is not the expected file: its SHA-256 sum is" in sentence


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "taken").write_text("a file")
    assert "Cannot write to the folder taken/run" in refused(*SMALL, "--out", "taken/run")


def test_a_folder_of_another_configuration_is_refused_by_key(tmp_path: Path, refused: Callable[..., str]) -> None:
    adagpr(tmp_path, *SMALL, "--out", "run")
    assert "these keys differ: model.theta." in refused(*SMALL, "--out", "run", "--set", "theta=0.9")
