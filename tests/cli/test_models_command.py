from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from adagpr.nn import MODELS
from tests.processes import run_forked


def models(*words: str) -> subprocess.CompletedProcess[str]:
    return run_forked(Path(), "models", *words)


def test_every_model_is_listed_with_its_paper_depth_and_parameters() -> None:
    rows = json.loads(models("--json").stdout)
    assert [row["name"] for row in rows] == list(MODELS)
    by_name = {row["name"]: row for row in rows}
    assert by_name["gcn"]["paper"] == "Kipf and Welling, 2017"
    assert by_name["gcn"]["num_layers"] == 2
    assert by_name["gcn"]["num_parameters"] == 1433 * 64 + 64 + 64 * 7 + 7
    assert by_name["label-propagation"]["num_parameters"] == 0


def test_one_model_shows_its_options() -> None:
    shown = models("gprgnn").stdout
    assert "propagation_dropout" in shown
    assert "class_weights" in shown
    assert json.loads(models("gprgnn", "--json").stdout)["training"]["patience"] == 300


def test_an_unknown_model_is_one_sentence() -> None:
    done = models("jkent")
    assert (done.returncode, done.stderr) == (2, "Error: Unknown model 'jkent'. Did you mean 'jknet'?\n")


# What `python -m adagpr models` runs where torch_geometric is not installed.
WITHOUT_PYG = """
import sys
from pathlib import Path


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch_geometric":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocker())
from adagpr.cli.main import main

main()
"""


def test_a_model_whose_package_is_missing_is_left_out_with_one_line() -> None:
    command = [sys.executable, "-c", WITHOUT_PYG, "models", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [row["name"] for row in json.loads(done.stdout)] == [name for name in MODELS if name != "gat"]
    line = "'gat' is left out. GAT needs torch_geometric, which is not installed. Try: pip install \"adagpr[pyg]\"\n"
    assert done.stderr == line
