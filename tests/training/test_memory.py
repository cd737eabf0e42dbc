"""Less memory: recomputation, chosen or asked for, and activations kept as bfloat16."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from adagpr.errors import InputError
from adagpr.graph import Graph, Split
from adagpr.system import available_memory
from adagpr.training import config_digest, fit, resolve


def test_recomputing_gives_the_same_run(graph: Graph, split: Split, options: dict[str, Any]) -> None:
    kept, again = (fit(graph, split, recompute=recompute, **options) for recompute in (False, True))
    assert kept.history.equals(again.history)
    assert [run.record["machine"]["recompute"] for run in (kept, again)] == [False, True]


def test_layers_are_recomputed_where_memory_is_short(
    graph: Graph, split: Split, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not fit(graph, split, **options).record["machine"]["recompute"]
    monkeypatch.setattr(sys.modules["adagpr.training.fit"], "available_memory", lambda: 1e4)
    assert fit(graph, split, **options).record["machine"]["recompute"]


def test_available_memory_is_some_of_this_machine() -> None:
    assert 1e7 < available_memory() < 1e14


def test_memory_does_not_grow_with_the_epochs() -> None:
    """Matrices that come and go must not be kept apart by what stays of every epoch."""
    script = (
        "import resource; from adagpr.data import csbm, random_split; from adagpr.training import fit\n"
        "graph, peaks = csbm(num_nodes=2000, num_features=4, num_classes=3), []\n"
        "def on_epoch(*epoch): peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
        "fit(graph, random_split(graph.y, seed=0), 'gcnii', max_epochs=600, patience=None, hidden_channels=64,\n"
        "    num_layers=2, num_threads=1, on_epoch=on_epoch)\n"
        "print(peaks[-1] - peaks[100])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 15_000  # KB; 1,400 here, and 50,000 with a small tensor an epoch


def test_bfloat16_changes_the_run_and_its_name(graph: Graph, split: Split, options: dict[str, Any]) -> None:
    exact, rounded = (fit(graph, split, activations=dtype, **options) for dtype in ("float32", "bfloat16"))
    assert not exact.history.equals(rounded.history)
    first = exact.history["train_loss"][0].as_py()
    assert rounded.history["train_loss"][0].as_py() == first


def test_records_keep_the_names_from_before_these_options(graph: Graph, split: Split, options: dict[str, Any]) -> None:
    plain = resolve(graph, split, "adagpr", options).plain
    young = ("recompute", "activations")
    before = {**plain, "training": {key: value for key, value in plain["training"].items() if key not in young}}
    assert config_digest(plain) == config_digest(before)
    other = resolve(graph, split, "adagpr", {**options, "activations": "bfloat16"}).plain
    assert config_digest(other) != config_digest(before)


@pytest.mark.parametrize("asked", [{"recompute": True}, {"activations": "bfloat16"}], ids=str)
def test_models_that_cannot_do_it_say_so(graph: Graph, split: Split, asked: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="recompute and activations are for AdaGPR and GCNII"):
        fit(graph, split, "gcn", **asked)
