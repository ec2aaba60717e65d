"""Bootstrap percentile intervals over rows, of a score or of the difference between two scores.

Axes: N rows, S systems, R resamples. Every system is scored on the same resampled rows, so differences are paired.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from minbert.seeds import numpy_generator
from tasks.metrics import batched_score
from tasks.tables import interval_text

RESAMPLES = 2000
_CELLS = 2_000_000  # row numbers drawn at once, to bound memory


class Interval(NamedTuple):
    """A 95% confidence interval."""

    low: float
    high: float

    def text(self, *, sign: bool = False) -> str:
        """Both ends with four digits, [low, high]."""
        return interval_text(self.low, self.high, 4, sign=sign)


def interval(samples: np.ndarray) -> Interval | None:
    """The 2.5th and 97.5th percentiles of `samples` [R]; None if there are none or any is not finite."""
    if not len(samples) or not np.isfinite(samples).all():
        return None
    low, high = np.percentile(samples, (2.5, 97.5))
    return Interval(float(low), float(high))


def resampled(
    statistic: Callable[[np.ndarray], np.ndarray], count: int, *purpose: str, seed: int, resamples: int
) -> np.ndarray:
    """A statistic of R resamples of N = `count` rows, drawn with replacement.

    The random generator is seeded by (seed, *purpose). `statistic` maps row numbers [r, N] to [..., r]; the result is
    [..., R].
    """
    rng = numpy_generator(seed, *purpose)
    size = max(1, _CELLS // count)
    values = []
    # once even for none, so that the result has its axes
    for start in range(0, max(resamples, 1), size):
        rows = rng.integers(0, count, (min(size, resamples - start), count))
        values.append(statistic(rows))
    return np.concatenate(values, axis=-1)


def bootstrap(
    metric: str, predicted: np.ndarray, gold: np.ndarray, name: str, *, seed: int = 0, resamples: int
) -> np.ndarray:
    """A task's metric for S systems on R resamples of the rows: predicted [S, N] and gold [N] to [S, R]."""

    def statistic(rows: np.ndarray) -> np.ndarray:
        return batched_score(metric, predicted[:, rows], gold[rows])

    return resampled(statistic, len(gold), "bootstrap", name, seed=seed, resamples=resamples)


def mean_samples(values: np.ndarray, *purpose: str, seed: int, resamples: int) -> np.ndarray:
    """Means over resampled rows, [N] to [R], drawn by the counter (seed, *purpose); empty if there are no rows."""
    if not len(values):
        return np.empty(0)
    return resampled(lambda rows: values[rows].mean(-1), len(values), *purpose, seed=seed, resamples=resamples)


def verdict(low: float, high: float) -> str:
    """The conclusion from an interval of a difference, in words; its ends are NaN if there is none."""
    if math.isnan(low):
        return "no interval"
    if low > 0:
        return "better"
    if high < 0:
        return "worse"
    return "cannot be told apart"
