"""A seeded portion of `benchmarks/attack.py`: commands on damaged files read them or end with one sentence."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    attack: Any = importlib.import_module("attack")

# Those of the reproduction need files of data, which not every machine has.
KINDS = {*attack.KINDS} - {"records"}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_damaged_files_are_read_or_refused_with_one_sentence(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack, "SECONDS", None)
    attack.make_alone(kind, tmp_path)
    cases = [attack.run_case(kind, number, 0, tmp_path) for number in range(3)]
    assert [case for case in cases if case.outcome not in ("read", "refused")] == []


@pytest.mark.usefixtures("benchmark_root")
def test_damaged_records_of_the_reproduction_are_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_damaged_files_are_read_or_refused_with_one_sentence("records", tmp_path, monkeypatch)
