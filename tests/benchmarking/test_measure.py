from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from adagpr.benchmarking import exponent, peak_memory, ratios, side_by_side, spread
from adagpr.errors import AdaGPRError, InputError


class Log:
    """Workers that say how long they took, and in which order they were called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def worker(self, name: str, seconds: float) -> Callable[[], float]:
        def work() -> float:
            self.calls.append(name)
            return seconds

        return work


STEPS = """
def numbers(count):
    return lambda: sum(bytearray(int(count)))

def fails():
    raise ValueError("no such step")
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that another process can import."""
    (tmp_path / "some_steps.py").write_text(STEPS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "some_steps"


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


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_law_is_found(power: float) -> None:
    sizes = [1e3, 2e3, 1e4, 1e6]
    assert exponent(sizes, [0.3 * size**power for size in sizes]) == pytest.approx(power, abs=1e-12)


def test_what_has_no_answer_is_refused() -> None:
    with pytest.raises(InputError, match="at least two different sizes"):
        exponent([10.0, 10.0], [1.0, 2.0])
    with pytest.raises(InputError, match="there is no worker 'ours'"):
        ratios({"a": [1.0]}, of="ours")
    with pytest.raises(InputError, match="must be at least 1"):
        side_by_side({"a": Log().worker("a", 1.0)}, every={"a": 0})


def test_peak_memory_is_that_of_the_step_alone(steps: str) -> None:
    small, large = peak_memory(f"{steps}:numbers", "1000"), peak_memory(f"{steps}:numbers", "50_000_000")
    assert small.step < 5
    assert large.step == pytest.approx(50_000_000 / 2**20, abs=5)
    assert large.total > large.step


def test_a_step_that_cannot_be_made_says_why(steps: str) -> None:
    with pytest.raises(AdaGPRError, match="ended with code 1: ValueError: no such step"):
        peak_memory(f"{steps}:fails")
