"""How many threads the kernels use while a model trains: whatever takes less time.

Nothing but time depends on it (see `adagpr.ops.compute_threads`), so it may change after every epoch. Several threads
are faster on an idle machine. Where other processes need the cores they bring nothing, and cost what they wait for one
another, but never much more than one thread: hence they are what counts unless one thread is clearly faster.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from statistics import median

from adagpr.ops import compute_threads

# One thread is used if an epoch takes less than this share of what it takes with several.
_CLEARLY = 0.95
# So many epochs of each are compared; one that took so many times as long as the others ends it.
_NUM_EPOCHS, _MUCH_LONGER = 3, 1.5
# The next comparison is after so many times what the last one cost, and twice as late if it ended like the one before.
_PAUSE, _LONGEST_PAUSE = 20.0, 30.0


class ThreadChoice:
    """Compares one thread with several now and then, by what epochs take, and keeps to the faster.

    Args:
        most: The larger number of threads; with 1 there is nothing to choose.
        is_fixed: Whether to keep to that number.
    """

    def __init__(self, most: int, is_fixed: bool = False) -> None:
        self.most = most
        self.count = most
        self._is_fixed = is_fixed or most == 1
        self._taken: dict[int, list[float]] = {1: [], most: []}
        self._expected = self._pause = self._left = 0.0
        self._chosen = self._num_slow = 0

    @contextlib.contextmanager
    def epoch(self) -> Iterator[None]:
        """An epoch with the chosen number of threads; how long it takes decides on the next one."""
        began = time.perf_counter()
        with compute_threads(self.count):
            yield
        if not self._is_fixed:
            self._add(time.perf_counter() - began)

    def _add(self, seconds: float) -> None:
        if self._left > 0:
            self._left -= seconds
            self._num_slow = self._num_slow + 1 if seconds > _MUCH_LONGER * self._expected else 0
            if self._left > 0 and self._num_slow < _NUM_EPOCHS:
                return
            # The machine has become busier: the choice may be wrong now.
            self._pause = 0.0 if self._num_slow else self._pause
            self._left, self._num_slow, self._taken = 0.0, 0, {1: [], self.most: []}
        else:
            self._taken[self.count].append(seconds)
        self._compare()

    def _compare(self) -> None:
        one, several = self._taken[1], self._taken[self.most]
        is_clear = bool(one and several) and min(several) > _MUCH_LONGER * max(one)
        if not is_clear and min(len(one), len(several)) < _NUM_EPOCHS:
            self.count = 1 if len(one) < len(several) else self.most
            return
        self.count = 1 if median(one) < _CLEARLY * median(several) else self.most
        self._expected = median(self._taken[self.count])
        cost = sum(one) + sum(several) - self._expected * len(one + several)
        longer = min(2 * self._pause, _LONGEST_PAUSE) if self.count == self._chosen else 0.0
        self._chosen = self.count
        self._pause = self._left = max(_PAUSE * max(cost, self._expected), longer)
