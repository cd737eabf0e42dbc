"""A command resolves its configuration once, builds a model per run, and reads nothing back that it wrote itself."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import adagpr


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    # The rooms that the command uses are loaded before their functions are replaced.
    import_module("adagpr.reporting")
    counts: Counter[str] = Counter()

    def count(module: str, name: str) -> None:
        original: Callable[..., Any] = getattr(sys.modules[module], name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return original(*args, **kwargs)

        # Every module that has imported the function calls the counting one.
        for loaded in [item for key, item in sys.modules.items() if key.startswith("adagpr")]:
            if getattr(loaded, name, None) is original:
                monkeypatch.setattr(loaded, name, counting)

    count("adagpr.training.config", "resolve_options")
    count("adagpr.nn.registry", "build")
    count("adagpr.training.folder", "load_run")
    count("adagpr.training.folder", "load_tensors")
    count("adagpr.ops.operator", "normalise")
    return counts


@pytest.mark.parametrize(("words", "num_runs"), [((), 1), (("--without-graph",), 2)], ids=["alone", "without graph"])
def test_training_resolves_once_builds_one_model_per_run_and_reads_nothing_back(
    words: tuple[str, ...], num_runs: int, counted: Counter[str], benchmark_root: Path, tmp_path: Path
) -> None:
    small = ("--set", "num_layers=2", "--set", "max_epochs=2")
    adagpr("train", "cora", *small, *words, "--out", str(tmp_path), "--data-root", str(benchmark_root))
    assert counted["resolve_options"] == num_runs
    assert counted["build"] == num_runs
    assert counted["load_run"] == counted["load_tensors"] == 0
    assert counted["normalise"] == 1, "one operator per graph"
