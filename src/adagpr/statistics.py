r"""What a few paired differences tell: an interval of their mean, a test without a distribution, a bootstrap.

For two models measured on the same :math:`n` splits, let :math:`d_i` be the difference on split :math:`i`. If the two
are equally good, each :math:`d_i` might as well have had the other sign. The test asks in which share of all
:math:`2^n` choices of signs the mean is at least as far from 0 as it was. It needs no normal distribution, which ten
splits of 37 test nodes do not have, and with :math:`n` pairs its p-value is never below :math:`2 / 2^n`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from adagpr.errors import InputError, reason_of

# Up to so many pairs all sign patterns are counted: a million sums. Beyond, so many patterns are drawn.
MOST_EXACT = 20
NUM_DRAWN = 100_000


@dataclass(frozen=True)
class PairedTest:
    """The outcome of `paired_test`."""

    p_value: float
    method: str  # "exact sign flips" or "sampled sign flips"


def interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    r"""Student's interval of the mean, :math:`\bar v \pm t_{n-1} \, s / \sqrt n`; a point if all values are equal."""
    vector = _vector("interval", values, level)
    mean = float(vector.mean())
    if _all_equal(vector):
        return mean, mean
    half = float(stats.t.ppf((1 + level) / 2, len(vector) - 1) * vector.std(ddof=1) / np.sqrt(len(vector)))
    return mean - half, mean + half


def share_interval(count: int, total: int, level: float = 0.95) -> tuple[float, float]:
    r"""Wilson's interval of a share: the shares that ``count`` of ``total`` does not rule out.

    .. math:: \frac{\hat p + z^2 / 2n \pm z \sqrt{\hat p (1 - \hat p) / n + z^2 / 4n^2}}{1 + z^2 / n}

    Unlike :math:`\hat p \pm z s` it stays within 0 and 1 and holds for few nodes, and for all or none of them.
    """
    if not 0 <= count <= total or total < 1 or not 0 < level < 1:
        raise InputError(f"share_interval: {count} of {total} at level {level} is no share.")
    z = float(stats.norm.ppf((1 + level) / 2))
    share, scale = count / total, 1 + z**2 / total
    half = z * float(np.sqrt(share * (1 - share) / total + z**2 / (4 * total**2)))
    middle = share + z**2 / (2 * total)
    return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)


def paired_test(differences: ArrayLike, tolerance: float = 0.0, seed: int = 0) -> PairedTest:
    r"""The two-sided sign-flip test that the mean of paired differences is 0.

    .. math:: p = \frac{1}{2^n} \left| \left\{ s \in \{-1, 1\}^n :
        \left| \sum_i s_i d_i \right| \ge \left| \sum_i d_i \right| \right\} \right|

    Up to 20 pairs every pattern :math:`s` is counted, in :math:`O(2^n)` time and memory. Beyond, 100,000 patterns are
    drawn, and the observed one is counted with them, so that the p-value is never 0. Each difference may be off by
    ``tolerance``, having been rounded: a mean counts as equal to the observed one where the differences whose signs
    tell the two apart may add up to 0.
    """
    vector = _vector("paired_test", differences)
    if len(vector) <= MOST_EXACT:
        sums, num_flips = np.zeros(1), np.zeros(1)
        for difference in vector:
            sums = np.concatenate([sums - difference, sums + difference])
            num_flips = np.concatenate([num_flips + 1, num_flips])
        return PairedTest(float(_is_far(vector, sums, num_flips, tolerance).mean()), "exact sign flips")
    generator = np.random.default_rng(seed)
    sums, num_flips = np.zeros(NUM_DRAWN), np.zeros(NUM_DRAWN)
    for difference in vector:
        signs = generator.choice((-1.0, 1.0), NUM_DRAWN)
        sums += difference * signs
        num_flips += signs < 0
    num_far = int(_is_far(vector, sums, num_flips, tolerance).sum())
    return PairedTest((num_far + 1) / (NUM_DRAWN + 1), "sampled sign flips")


def _is_far(vector: np.ndarray, sums: np.ndarray, num_flips: np.ndarray, tolerance: float) -> np.ndarray:
    """Which sums of differences with some signs flipped are at least as far from 0 as the sum with none.

    Those whose flipped and kept differences do not add up to the same side of 0, or where either may add up to 0.
    """
    flipped, kept = (vector.sum() - sums) / 2, (vector.sum() + sums) / 2
    # Ties count, and floating point must not break them: the same sum in another order differs in its last bits.
    slack = 1e-9 * np.abs(vector).sum()
    may_be_none = np.abs(flipped) <= slack + tolerance * num_flips
    may_be_all = np.abs(kept) <= slack + tolerance * (len(vector) - num_flips)
    return np.asarray((flipped * kept <= 0) | may_be_none | may_be_all)


def bootstrap_interval(differences: ArrayLike, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """The bias-corrected and accelerated (BCa) bootstrap interval of the mean, from 9,999 resamples.

    A point where all differences are equal. Below ten pairs or so it holds the true mean less often than ``level``.
    """
    vector = _vector("bootstrap_interval", differences, level)
    if _all_equal(vector):
        return float(vector.mean()), float(vector.mean())
    generator = np.random.default_rng(seed)
    found = stats.bootstrap((vector,), np.mean, confidence_level=level, method="BCa", random_state=generator)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def _vector(who: str, values: ArrayLike, level: float = 0.95) -> np.ndarray:
    """The values in float64, once they and the level are checked."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{who}: the values must be numbers ({reason_of(error)}).") from error
    if vector.ndim != 1 or len(vector) == 0 or not np.isfinite(vector).all():
        raise InputError(f"{who}: the values must be a list of at least one finite number, got {values!r}.")
    if not 0 < level < 1:
        raise InputError(f"{who}: level must be between 0 and 1, got {level}.")
    return vector


def _all_equal(vector: np.ndarray) -> bool:
    """Whether the values differ by no more than rounding."""
    return bool(np.ptp(vector) <= 1e-12 * np.abs(vector).max())
