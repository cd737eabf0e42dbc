"""The rooms of the package face one way: imports come only from rows above."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import adagpr

PACKAGE = Path(__file__).parents[1] / "src" / "adagpr"

ROWS = [
    ["errors"],
    ["arguments", "graph", "files", "seeding", "statistics", "system", "charts"],
    ["ops", "interop", "task", "schemas"],
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


PACKAGES = [path.parent.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*/__init__.py")]
DOORS = {".".join(path.parts) for path in PACKAGES}


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(PACKAGE)) for path in FILES])
def test_a_package_is_entered_by_its_door(path: Path) -> None:
    """Outside of a package, names are imported from the package and not from its modules."""
    own = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    past = set()
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            # The outermost package that holds the module but not this file.
            outside = [door for door in DOORS if f"{module}.".startswith(f"{door}.") and not f"{own}.".startswith(door)]
            past |= {module} if outside and module != min(outside, key=len) else set()
    assert past == set()


def test_files_are_short_enough_to_read_in_one_sitting() -> None:
    sources = [path for kind in ("py", "c", "h", "toml") for path in PACKAGE.rglob(f"*.{kind}")]
    lengths = {str(path): len(path.read_text().splitlines()) for path in sources}
    assert {name: length for name, length in lengths.items() if length > 400} == {}
    assert statistics.median(lengths.values()) < 150


def loaded_modules(code: str) -> set[str]:
    script = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return {line.split(".")[0] for line in output.splitlines()}


def test_importing_the_package_loads_no_torch() -> None:
    assert {"torch", "numpy", "scipy"} & loaded_modules("import adagpr") == set()


OPTIONAL = ("torch_geometric", "pandas", "polars", "matplotlib", "onnx", "onnxruntime", "psycopg", "pymetis")
# A library that is hidden cannot be loaded by another one either, so that whoever asks for it is one of ours.
HIDDEN = f"import sys\nsys.modules |= dict.fromkeys({OPTIONAL!r})\n"


def test_the_public_names_need_none_of_the_heavy_optional_libraries() -> None:
    names = loaded_modules(f"{HIDDEN}import adagpr\nfor name in adagpr.__all__: getattr(adagpr, name)")
    assert "torch" in names


def test_the_command_line_shows_its_help_without_torch() -> None:
    assert "torch" not in loaded_modules("import adagpr.cli.main")


# One function for every command but those that only print: data and models.
FRONT = {"fit", "fit_all", "predict", "tune", "compare", "explain", "bounds", "report", "plot", "export"}
FRONT |= {"partition", "reproduce", "bench"}


def test_the_public_surface_is_small_and_has_a_function_for_every_command() -> None:
    public = sorted(adagpr.__all__)
    print(f"{len(public)} public names: {', '.join(public)}")  # noqa: T201
    assert set(public) >= FRONT
    assert len(public) <= 42
    assert all(callable(getattr(adagpr, name)) for name in public)
