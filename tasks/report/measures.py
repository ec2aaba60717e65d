"""What a task's dev rows say beyond one score: confusion, calibration, errors, and intervals by bootstrap.

Axes: N rows, C classes, S systems, R resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from minbert.seeds import numpy_generator
from tasks import metrics
from tasks.metrics import S
from tasks.report.record import Rows

RESAMPLES = 2000
METRICS = ("accuracy", "Pearson's r", "Spearman's rho")
"""The scores that have intervals."""


def confusion(gold: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Counts [C, C]: gold by row, predicted by column."""
    table = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(table, (gold.astype(np.int64), predicted.astype(np.int64)), 1)
    return table


@dataclass(frozen=True)
class Bin:
    """The rows whose confidence lies in (low, high]; confidence and accuracy are None where there are none."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Calibration:
    """A reliability diagram and its expected calibration error, None without rows."""

    bins: tuple[Bin, ...]
    ece: float | None


def calibration(rows: Rows, bins: int) -> Calibration:
    """Bins of equal width over 0..1 of the probability of the predicted class (Guo et al. 2017, section 2).

    The expected calibration error is the mean over rows of their bin's |accuracy - confidence|.
    """
    assert rows.probabilities is not None
    confidence = rows.probabilities[np.arange(len(rows)), rows.predicted.astype(np.int64)]
    right = rows.predicted == rows.gold
    place = np.clip(np.ceil(confidence * bins - 1e-9).astype(np.int64) - 1, 0, bins - 1)
    found, error = [], 0.0
    for number in range(bins):
        inside = place == number
        count = int(inside.sum())
        means = (float(confidence[inside].mean()), float(right[inside].mean())) if count else (None, None)
        found.append(Bin(number / bins, (number + 1) / bins, count, *means))
        error += abs(float(right[inside].sum()) - float(confidence[inside].sum()))
    return Calibration(tuple(found), error / len(rows) if len(rows) else None)


def wrongness(rows: Rows, *, scale: float) -> np.ndarray:
    """How wrong each row is, 0..1: 1 - the gold class's probability, or the distance in points over `scale`."""
    if rows.probabilities is None:
        return np.minimum(np.abs(rows.predicted - rows.gold) / scale, 1.0)
    return 1 - rows.probabilities[np.arange(len(rows)), rows.gold.astype(np.int64)]


def _centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean(-1, keepdims=True)


def _correlation(predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    x, y = _centred(predicted), _centred(gold)
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    constant = (np.ptp(predicted, axis=-1) == 0) | (np.ptp(gold, axis=-1) == 0)
    return np.where(constant, np.nan, r)


def scores(metric: str, predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """One of METRICS for each system: predicted [S, N] and gold [N] to [S], NaN inside where it is undefined."""
    if metric == "accuracy":
        return (predicted == gold).mean(-1)
    if metric == "Spearman's rho":
        return _correlation(stats.rankdata(predicted, axis=-1), stats.rankdata(gold))
    assert metric in METRICS, metric
    return _correlation(predicted, gold)


def normalised(metric: str, score: S) -> S:
    """A score's part in the dev norm: accuracy itself, (r + 1) / 2 of a correlation."""
    return score if metric == "accuracy" else metrics.normalised(score)


def bootstrap(
    metric: str, predicted: np.ndarray, gold: np.ndarray, name: str, *, seed: int = 0, resamples: int = RESAMPLES
) -> np.ndarray:
    """The metric of S systems on R resamples of the N rows, the same rows for every system: [S, R].

    Resample number i draws N rows with replacement by the counter (seed, "bootstrap", name, i).
    """
    count = len(gold)
    found = np.empty((len(predicted), resamples))
    for number in range(resamples):
        chosen = numpy_generator(seed, "bootstrap", name, number).integers(count, size=count)
        found[:, number] = scores(metric, predicted[:, chosen], gold[chosen])
    return found


@dataclass(frozen=True)
class Interval:
    """The middle 95% of a bootstrap."""

    low: float
    high: float


def interval(values: Sequence[float] | np.ndarray) -> Interval | None:
    """The 2.5th and 97.5th percentile over resamples; None where a resample leaves the value undefined."""
    array = np.asarray(values, dtype=np.float64)
    if not array.size or not np.isfinite(array).all():
        return None
    low, high = np.percentile(array, (2.5, 97.5))
    return Interval(float(low), float(high))
