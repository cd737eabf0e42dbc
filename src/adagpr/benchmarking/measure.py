"""Time side by side, and the peak memory of a step.

Two programs that are timed one after the other see two different machines: another process comes, the clock slows
down. So all are run in turn, round after round, and compared within a round, where the noise is shared.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from adagpr.errors import InputError
from adagpr.system import forget_peak_memory, peak_memory_mb

# Quartiles of fewer values say nothing.
LEAST_RUNS = 3


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of some values, and how many there are."""

    median: float
    lower: float
    upper: float
    rounds: int

    def plain(self) -> dict[str, float]:
        """For a record, with four significant digits."""
        return {key: float(f"{value:.4g}") for key, value in asdict(self).items()} | {"rounds": self.rounds}


def side_by_side(
    workers: Mapping[str, Callable[[], float]],
    rounds: int = 20,
    every: Mapping[str, int] | None = None,
    budget: float = math.inf,
) -> dict[str, list[float]]:
    """Runs all workers in turn, each round beginning with another one.

    Returns seconds by worker and round, NaN where it was not run; a worker returns what it took. A slow one runs only
    in each ``every``-th round, from the first on. After ``budget`` seconds of work no further round begins, once each
    worker has run three times.
    """
    names = list(workers)
    periods = {name: (every or {}).get(name, 1) for name in names}
    if min([rounds, *periods.values()]) < 1:
        raise InputError("side_by_side: rounds and every must be at least 1.")
    times: dict[str, list[float]] = {name: [] for name in names}
    least = 1 + (LEAST_RUNS - 1) * max(periods.values(), default=1)
    spent = 0.0
    for number in range(rounds):
        if number >= least and spent >= budget:
            break
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            times[name].append(math.nan if number % periods[name] else workers[name]())
        spent += sum(seconds[-1] for seconds in times.values() if not math.isnan(seconds[-1]))
    return times


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles of the values that are not NaN."""
    known = np.array([value for value in values if not math.isnan(value)])
    if len(known) == 0:
        raise InputError("spread: there are no values.")
    lower, median, upper = np.quantile(known, [0.25, 0.5, 0.75])
    return Spread(float(median), float(lower), float(upper), len(known))


def ratios(times: Mapping[str, Sequence[float]], of: str) -> dict[str, Spread]:
    """How many times as long as ``of`` each other worker takes, compared round by round."""
    if of not in times:
        raise InputError(f"ratios: there is no worker {of!r}; there are {', '.join(times)}.")
    return {
        name: spread([value / base for value, base in zip(seconds, times[of], strict=True)])
        for name, seconds in times.items()
        if name != of
    }


def peak_memory(step: Callable[[], Any]) -> dict[str, float]:
    """MB that a step needs at its peak, measured in this process; Linux only.

    ``step`` is what it needs beyond what was there before it, ``total`` is the whole process at its largest during the
    step, with libraries, data and model.
    """
    gc.collect()
    forget_peak_memory()
    before = peak_memory_mb()
    step()
    total = peak_memory_mb()
    return {"step": round(total - before, 1), "total": round(total, 1)}
