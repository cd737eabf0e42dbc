"""The examples of the README and the docs run, and what they quote is what was recorded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from adagpr.experiments import TARGETS, Folders, cells, report_target
from adagpr.files import read_json
from adagpr.training import TrainingConfig

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [path.name for path in PAGES]


def examples(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.name)
def test_every_python_example_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    script = "\n".join(examples(page))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_file_that_the_guide_names_exists() -> None:
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_*]+\.[a-z]+)?|[a-z_]+\.py)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 50
    found = {name for name in named for folder in (ROOT / "src" / "adagpr", ROOT) if any(folder.glob(name))}
    assert set(named) - found == set()


def test_the_readme_shows_what_the_demo_printed() -> None:
    assert (ROOT / "results" / "demo.txt").read_text() in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("script", "page"),
    [
        ("stopping_rule.py", "stopping.md"),
        ("paper_configs.py", "coefficients.md"),
        ("depth_figure.py", "models.md"),
        ("feature_scaling.py", "models.md"),
        ("reading.py", "reading.md"),
        ("spectra.py", "reading.md"),
    ],
)
def test_the_tables_of_the_docs_are_those_of_the_records(script: str, page: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--table"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert table in (ROOT / "docs" / page).read_text()


def test_every_option_of_training_is_explained() -> None:
    lines = (ROOT / "docs" / "models.md").read_text().splitlines()
    defaults = {
        name: "none" if value is None else json.dumps(value) for name, value in TrainingConfig().model_dump().items()
    }
    rows = [f"| `{name}` | `{default}` |" for name, default in defaults.items()]
    assert [row for row in rows if not any(line.startswith(row) for line in lines)] == []


def test_the_runs_that_are_read_aloud_have_the_settings_of_the_catalogue() -> None:
    read = read_json(ROOT / "results" / "reading.json")
    rows = {"cora": "table2_adagpr_cora-8", "chameleon": "table3_adagpr_chameleon-2", "texas": "table3_adagpr_texas-4"}
    first = {name: read_json(ROOT / "results" / "catalogue" / f"{row}.json")["runs"][0] for name, row in rows.items()}
    assert {name: run["config"] for name, run in read.items()} == {name: run["config"] for name, run in first.items()}


@pytest.mark.parametrize("target", list(TARGETS))
def test_the_written_tables_are_those_of_the_records(target: str, tmp_path: Path) -> None:
    folders = Folders(tmp_path / "no-runs", ROOT / "results" / "catalogue")
    assert (ROOT / "results" / f"{target}.md").read_text() == report_target(target, cells(target), folders).text
