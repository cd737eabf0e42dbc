from __future__ import annotations

import math
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable

import pytest

from adagpr.benchmarking import ratios, side_by_side, spread
from adagpr.errors import InputError


class Log:
    """Workers that say how long they took, and in which order they were called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def worker(self, name: str, seconds: float) -> Callable[[], float]:
        def work() -> float:
            self.calls.append(name)
            return seconds

        return work


def test_each_round_runs_all_and_begins_with_the_next() -> None:
    log = Log()
    workers = {name: log.worker(name, 1.0) for name in "abc"}
    side_by_side(workers, rounds=4)
    assert "".join(log.calls) == "abcbcacababc"


def test_times_are_those_of_each_worker() -> None:
    log = Log()
    times = side_by_side({"a": log.worker("a", 1.0), "b": log.worker("b", 2.5)}, rounds=3)
    assert times == {"a": [1.0] * 3, "b": [2.5] * 3}


def test_a_slow_worker_runs_in_each_nth_round() -> None:
    log = Log()
    workers = {"fast": log.worker("fast", 1.0), "slow": log.worker("slow", 9.0)}
    times = side_by_side(workers, rounds=5, every={"slow": 2})
    assert [math.isnan(value) for value in times["slow"]] == [False, True, False, True, False]
    assert times["fast"] == [1.0] * 5


def test_rounds_stop_when_the_budget_is_spent() -> None:
    log = Log()
    times = side_by_side({"a": log.worker("a", 1.0)}, rounds=100, budget=7.0)
    assert len(times["a"]) == 7


@pytest.mark.parametrize(("period", "num_rounds"), [(1, 3), (4, 9)])
def test_each_worker_runs_three_times_whatever_the_budget(period: int, num_rounds: int) -> None:
    log = Log()
    workers = {"fast": log.worker("fast", 1.0), "slow": log.worker("slow", 50.0)}
    times = side_by_side(workers, rounds=100, every={"slow": period}, budget=1.0)
    assert len(times["fast"]) == num_rounds
    assert spread(times["slow"]).rounds == 3


def test_a_ratio_is_taken_within_its_round() -> None:
    # The machine is three times slower in every other round; the ratio does not see it.
    times = {"ours": [1.0, 3.0, 1.0, 3.0], "other": [2.0, 6.0, 2.0, 6.0]}
    found = ratios(times, of="ours")
    assert found.keys() == {"other"}
    assert (found["other"].lower, found["other"].median, found["other"].upper) == (2.0, 2.0, 2.0)


def test_a_ratio_uses_the_rounds_that_both_ran_in() -> None:
    times = {"ours": [1.0, 100.0, 2.0, 100.0, 4.0], "slow": [3.0, math.nan, 8.0, math.nan, 20.0]}
    found = ratios(times, of="ours")["slow"]
    assert (found.lower, found.median, found.upper, found.rounds) == (3.5, 4.0, 4.5, 3)


def test_spread_gives_median_and_quartiles() -> None:
    found = spread([5.0, 1.0, 4.0, 2.0, 3.0, math.nan])
    assert (found.median, found.lower, found.upper, found.rounds) == (3.0, 2.0, 4.0, 5)


def test_what_has_no_answer_is_refused() -> None:
    with pytest.raises(InputError, match="there is no worker 'ours'"):
        ratios({"a": [1.0]}, of="ours")
    with pytest.raises(InputError, match="must be at least 1"):
        side_by_side({"a": Log().worker("a", 1.0)}, every={"a": 0})


def test_peak_memory_is_that_of_the_step_alone() -> None:
    # A fresh process has no freed memory that the step could use again.
    imports, sizes = "from adagpr.benchmarking.measure import peak_memory", (1000, 50_000_000)
    command = [sys.executable, "-c", f"{imports}; print([peak_memory(lambda: bytearray(n)) for n in {sizes}])"]
    small, large = literal_eval(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert small["step"] < 5
    assert large["step"] == pytest.approx(50_000_000 / 2**20, abs=5)
    assert large["total"] > large["step"]
