"""``adagpr tune`` as a person uses it; ``tests/tuning/test_study.py`` kills it and starts it again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adagpr.files import read_json

SMALL = ["csbm", "--set", "data.num_nodes=60", "--set", "num_layers=2", "--set", "hidden_channels=8"]


@pytest.fixture
def call(tmp_path: Path, ended: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command in an own folder."""
    return partial(ended, tmp_path)


def test_a_study_is_shown_printed_as_json_and_trained_from(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    words = [*SMALL, "--set", "max_epochs=5", "--trials", "2", "--jobs", "1", "--out", "study"]
    code, shown, err = call("tune", *words)
    assert (code, err) == (0, "")
    for text in ("csbm, adagpr: 2 trials complete, 0 pruned, on random/0", "lowest validation loss", "weight_decay"):
        assert text in shown
    assert "on random/0: no trial saw these test labels" in shown
    assert "study/index.html" in shown
    code, out, err = call("tune", *words, "--json")
    assert (code, err) == (0, "")
    record: dict[str, Any] = json.loads(out)
    assert record["machine"]["command"] == "adagpr tune " + " ".join(words)
    assert record == {"folder": "study", **read_json(tmp_path / "study" / "study.json")}
    assert record["study"]["space"]["name"] == "general"
    assert call("tune", *words) == (0, shown, "")
    code, out, _ = call("train", "--config", "study/best.toml", "--out", "again", "--json")
    assert code == 0
    assert json.loads(out)["test_acc"] == record["test"]["test_acc"]


def test_splits_are_chosen_by_number_and_all_are_tested(
    tmp_path: Path, benchmark_root: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    words = ["--set", "max_epochs=3", "--set", "num_layers=2", "--set", "num_coeffs=2", "--trials", "2", "--jobs", "1"]
    code, out, err = call("tune", "texas", *words, "--splits", "1,3", "--out", "study", "--json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert record["study"]["space"]["name"] == "adagpr_fully-supervised"
    assert record["study"]["tuned_on"] == ["geom-gcn/1", "geom-gcn/3"]
    assert [item["split"] for item in record["shown"]] == ["geom-gcn/1", "geom-gcn/3"]
    assert all(
        trial["graph_sha256"] == [item["graph_sha256"] for item in record["shown"]] for trial in record["trials"]
    )
    seen = [run["num_test_seen"] for run in record["test"]["runs"]]
    assert len(seen) == 10
    assert min(seen) > 0
    assert record["test"]["unseen_test_acc"] is None


BAD: list[tuple[list[str], str]] = [
    ([], "Name a data set, or give tables with --nodes, --edges and --label."),
    (["digits", "--feature", "age"], "Give a data set or tables, not both: 'digits' and --feature."),
    (["coar"], "Unknown data set 'coar'. Did you mean 'cora'?"),
    (["digits", "--model", "adagrp"], "Unknown model 'adagrp'. Did you mean 'adagpr'?"),
    (["digits", "--space", "generall"], "Unknown search space 'generall'. Did you mean 'general'?"),
    (["digits", "--space", "nowhere.toml"], "Cannot read nowhere.toml"),
    (["digits", "--space", "adagpr_fully-supervised", "--model", "gcn"], "is for the model 'adagpr', not for 'gcn'"),
    (["digits", "--splits", "0,x"], "--splits takes numbers such as 0,3,5, or all; got '0,x'"),
    (["digits", "--splits", "1"], "there is no split 1; the splits are 0 to 0"),
    (["digits", "--set", "alhpa=1"], "'alhpa'. Did you mean 'alpha'?"),
    (["digits", "--set", "seed=1"], "cannot hold seed"),
    (["digits", "--seed", "-1"], "seed must be greater than or equal to 0, got -1"),
    (["digits", "--storage", "mysql://me:secret@host/db"], "a file or postgresql://USER@HOST/DATABASE"),
    (["digits", "--storage", "."], "got '.', a folder, a pipe or a device"),
    (["digits", "--storage", "nowhere/a.jsonl"], "Cannot write nowhere/"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str], message: str, call: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, out, err = call("tune", *words, "--out", "study")
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert "secret" not in err
    assert not (tmp_path / "study" / "study.toml").exists()


def test_a_password_is_not_in_the_list_of_processes(tmp_path: Path) -> None:
    """The command reads standard input, which stays open: it waits there, and its arguments can be read."""
    script = (
        "import sys; from adagpr.cli import main; main._hide_passwords(); print('ready', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", script, "--storage", "postgresql://me:hunter2@nowhere/studies", "password=hunter2"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.communicate("\n")
    assert b"hunter2" not in shown
    assert b"postgresql://me@nowhere/studies" in shown
