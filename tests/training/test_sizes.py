"""Sizes that no machine has memory for are refused before anything is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import adagpr
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn import MODELS, build, model_options


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("key", ["num_layers", "num_coeffs", "num_hops", "hidden_channels", "heads"])
def test_a_huge_number_is_refused_at_once(name: str, key: str) -> None:
    options = model_options(name)
    if key in options and (name, key) != ("sgc", "hidden_channels"):  # which it does not use
        value = 9_000_000 if key == "hidden_channels" else 10_000_000
        sizes = {"in_channels": 50_000, "out_channels": 3}
        with pytest.raises(InputError, match=r"GB of memory are free|must be less than or equal to"):
            build(name, {**options, **sizes, key: value})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hidden_channels": 10**9}, "hidden_channels must be"),
        ({"num_layers": 10**9}, "num_layers must be"),
        ({"num_coeffs": 10**7}, "num_coeffs must be"),
        ({"hidden_channels": 20_000}, "AdaGPR: its parameters would take"),
    ],
)
def test_a_training_that_does_not_fit_leaves_nothing_behind(
    make_graph: Callable[..., Graph],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    words: str,
) -> None:
    monkeypatch.setattr("adagpr.system.available_memory", lambda: 2e10)
    graph = make_graph()
    train, val, test = (graph.y.new_tensor(part) for part in ([0, 1, 2, 3], [4, 5], [6, 7]))
    split = adagpr.Split(train, val, test)
    with pytest.raises(InputError, match=words):
        adagpr.fit(graph, split, out=tmp_path / "run", **options)
    assert not list(tmp_path.iterdir())
