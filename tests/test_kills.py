"""A short portion of ``benchmarks/kills.py``: what is killed and repeated ends like what is not."""

from __future__ import annotations

import pytest
from benchmarks.kills import CASES, kill_and_repeat


@pytest.mark.parametrize("name", ["train", "tune with 2 jobs"])
def test_a_command_that_is_killed_and_repeated_leaves_the_files_of_an_undisturbed_one(name: str) -> None:
    found = kill_and_repeat(CASES[name], num_kills=1, seed=1)
    assert (found["kills"], found["unequal"]) == (1, [])
