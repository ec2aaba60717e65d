"""What a task's dev rows say beyond one score: calibration, and how wrong each row is."""

from dataclasses import dataclass

import numpy as np

from tasks.record import Rows


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
