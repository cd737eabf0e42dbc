"""``adagpr bounds`` on runs that were really trained."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from adagpr.cli.insight import bounds as command
from adagpr.insight import bounds
from tests.cli.command import adagpr

QUICK = ["--set", "max_epochs=3", "--set", "num_layers=3", "--set", "hidden_channels=8", "--jobs", "1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of AdaGPR and one of another model."""
    folder = tmp_path_factory.mktemp("runs")
    adagpr("train", "csbm", "--set", "data.num_nodes=60", "--out", str(folder / "adagpr"), *QUICK)
    adagpr("train", "csbm", "--set", "data.num_nodes=60", "--out", str(folder / "mlp"), "--model", "mlp", *QUICK[:2])
    return folder


def test_json_is_what_python_gives(runs: Path) -> None:
    found = json.loads(adagpr("bounds", str(runs / "adagpr"), "--json", "--delta", "0.1"))
    assert found == bounds(runs / "adagpr", delta=0.1).to_plain()
    assert found["transductive"]["delta"] == 0.1
    assert [(item["model"], item["form"]) for item in found["totals"]][:4] == [
        ("run", "spectrum"),
        ("run", "trace"),
        ("run", "degree"),
        ("gcnii", "spectrum"),
    ]


def test_a_person_reads_the_layers_the_totals_and_what_is_broken(runs: Path) -> None:
    found = bounds(runs / "adagpr")
    lines = adagpr("bounds", str(runs / "adagpr")).splitlines()
    assert lines[0] == "csbm, adagpr: bounds of the Rademacher complexity, in log10"
    assert lines[2].split() == ["layer", "spectrum", "trace", "degree", "B", "factor", "term", "recursion"]
    rows = [line.split() for line in lines[3:6]]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert [row[1] for row in rows] == [f"{item.spectrum.value:.5g}" for item in found.layers]
    assert [row[-1] for row in rows] == [f"{item.log10_recursion:.2f}" for item in found.layers]
    total = found.total()
    assert lines[8].split()[-2:] == [f"{total.log10_printed:.2f}", f"{total.log10_recursion:.2f}"]
    text = "\n".join(lines)
    assert f"Theorem 1 is 10^{total.log10_printed:.2f} for this run" in text
    assert f"Measured, it is {found.transductive.error_gap:+.4f} in wrong predictions" in text
    assert lines[-len(found.assumptions) :] == [f"- {sentence}" for sentence in found.assumptions]


def test_an_estimate_shows_its_error(runs: Path) -> None:
    words = ["--max-exact", "10", "--num-probes", "6", "--num-steps", "12", "--seed", "2"]
    lines = adagpr("bounds", str(runs / "adagpr"), *words).splitlines()
    found = bounds(runs / "adagpr", max_exact=10, num_probes=6, num_steps=12, seed=2)
    assert lines[3].split()[2] == "+-"
    assert f"+- {found.total().log10_error:.2g}" in lines[8]
    assert any(line.startswith("The spectrum is estimated from 6 random probes of 12 Lanczos steps") for line in lines)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gone"], "gone holds no complete run: there is no record.json in it."),
        (["mlp"], "bounds: the theory is about AdaGPR and GCNII with one weight map per layer, not 'mlp'."),
        (["adagpr", "--delta", "0"], "bounds: delta must be between 0 and 1, got 0."),
        (
            ["adagpr", "--dataset", "digits"],
            "The run's data cannot be loaded again, so give them: load: num_nodes: only csbm and tables take options, "
            "not 'digits'.",
        ),
        (["adagpr", "--max-exact", "1", "--num-probes", "1"], "spectrum: num_probes must be at least 2, got 1."),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], sentence: str, runs: Path, ended: Callable[..., tuple[int, str, str]]
) -> None:
    assert ended(runs, "bounds", *words) == (2, "", f"Error: {sentence}\n")


def test_the_command_has_the_defaults_of_python() -> None:
    own, python = (inspect.signature(function).parameters for function in (command, bounds))
    shared = ("delta", "max_exact", "num_probes", "num_steps", "seed", "data_root")
    assert [own[name].default for name in shared] == [python[name].default for name in shared]
