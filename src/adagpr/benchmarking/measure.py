"""Time side by side, peak memory in a process of its own, and how both grow.

Two programs that are timed one after the other see two different machines: another process comes, the clock slows
down. So all are run in turn, round after round, and compared within a round, where the noise is shared.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from adagpr.errors import AdaGPRError, InputError

__all__ = ["Memory", "Spread", "exponent", "peak_memory", "ratios", "side_by_side", "spread"]

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
    """Runs all workers in turn, round after round, each round beginning with another one.

    Args:
        workers: What to time, by name; each returns the seconds that it took.
        rounds: Rounds at the most.
        every: For slow workers: run only in each n-th round, from the first on.
        budget: Seconds of work after which no further round begins, once each worker has run three times.

    Returns:
        Seconds of each worker by round, NaN where it was not run.
    """
    periods = {name: (every or {}).get(name, 1) for name in workers}
    if min([rounds, *periods.values()]) < 1:
        raise InputError("side_by_side: rounds and every must be at least 1.")
    names = list(workers)
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
    """How many times as long as ``of`` each other worker takes, compared round by round.

    Args:
        times: What `side_by_side` returned.
        of: The worker that the others are divided by.
    """
    if of not in times:
        raise InputError(f"ratios: there is no worker {of!r}; there are {', '.join(times)}.")
    own = times[of]
    return {
        name: spread([value / base for value, base in zip(seconds, own, strict=True)])
        for name, seconds in times.items()
        if name != of
    }


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The ``p`` of ``seconds ~ sizes ** p``: slope of the least-squares line through the logarithms."""
    if len(sizes) != len(seconds) or len(set(sizes)) < 2 or min(*sizes, *seconds) <= 0:
        raise InputError("exponent: needs as many sizes as seconds, all above 0, and at least two different sizes.")
    x, y = np.log(sizes), np.log(seconds)
    return float(np.sum((x - x.mean()) * (y - y.mean())) / np.sum((x - x.mean()) ** 2))


@dataclass(frozen=True)
class Memory:
    """Peak memory of a step, in MB.

    Attributes:
        step: What the step needs beyond what was there before it.
        total: The whole process at its largest during the step, libraries, data and model included.
    """

    step: float
    total: float


_SCRIPT = """
import gc, importlib, json, sys
from pathlib import Path

def status(key):
    return int(next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(key)).split()[1])

module, name = sys.argv[1].split(":")
step = getattr(importlib.import_module(module), name)(*sys.argv[2:])
gc.collect()
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
step()
peak = status("VmHWM")
print(json.dumps([(peak - before) / 1024, peak / 1024]))
"""


def peak_memory(setup: str, *arguments: str) -> Memory:
    """Runs one step in a fresh process and measures its peak memory; Linux only.

    Args:
        setup: ``module:function``; called with the arguments it prepares everything and returns the step.
        arguments: What ``setup`` is given.

    Raises:
        AdaGPRError: The process failed, for instance because memory ran out.
    """
    # The C library's cache of freed blocks varies by 15 % from run to run; with it off, what is resident is in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-W", "ignore", "-c", _SCRIPT, setup, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message; memory may have run out"])[-1]
        raise AdaGPRError(f"Measuring the memory of {setup} ended with code {done.returncode}: {last}.")
    step, total = json.loads(done.stdout.splitlines()[-1])
    return Memory(step, total)
