"""The rooms of the package face one way: imports come only from rows above."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "adagpr"

ROWS = [
    ["errors"],
    ["arguments", "graph", "files", "seeding", "statistics", "metrics", "system", "charts"],
    ["ops", "interop", "task"],
    ["nn", "data"],
    ["partitioning"],
    ["training"],
    ["insight", "estimator"],
    ["experiments"],
    ["reporting", "exporting"],
    ["tuning", "benchmarking"],
    ["cli"],
]
ROW_OF = {room: number for number, row in enumerate(ROWS) for room in row}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem[0] != "_")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "adagpr":
            names = [f"adagpr.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [node.module or ""]
        found |= {name.split(".")[1] for name in names if name.startswith("adagpr.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(PACKAGE)) for path in FILES])
def test_a_room_imports_only_from_rows_above(path: Path) -> None:
    own = room_of(path)
    others = imported_rooms(path) - {own}
    assert {room for room in others if ROW_OF[room] >= ROW_OF[own]} == set()


def loaded_modules(code: str) -> set[str]:
    script = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return {line.split(".")[0] for line in output.splitlines()}


def test_importing_the_package_loads_no_torch() -> None:
    assert {"torch", "numpy", "scipy"} & loaded_modules("import adagpr") == set()


def test_the_public_names_load_none_of_the_heavy_optional_libraries() -> None:
    code = "import adagpr\nfor name in adagpr.__all__: getattr(adagpr, name)"
    # scikit-learn loads pandas itself where it is installed.
    ours = loaded_modules(code) - loaded_modules("import sklearn.base")
    assert {"torch_geometric", "pandas", "polars", "plotly", "matplotlib"} & ours == set()


def test_the_command_line_shows_its_help_without_torch() -> None:
    assert "torch" not in loaded_modules("import adagpr.cli.main")
