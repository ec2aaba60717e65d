"""Metrics: accuracy, Pearson, Spearman, per-class precision and recall. Undefined values are None, never NaN."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import stats
from sklearn import metrics

S = TypeVar("S", float, np.ndarray)


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class; each is None if its denominator is zero."""

    label: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int


def accuracy(predicted: np.ndarray, gold: np.ndarray) -> float | None:
    """Accuracy; None without rows."""
    return float(metrics.accuracy_score(gold, predicted)) if len(gold) else None


def pearson(x: np.ndarray, y: np.ndarray) -> float | None:
    """Pearson's r; None for fewer than two pairs or if either side is constant."""
    return _correlation(x, y, stats.pearsonr)


def spearman(x: np.ndarray, y: np.ndarray) -> float | None:
    """Spearman's rho, ties at their mean rank; None for fewer than two pairs or if either side is constant."""
    return _correlation(x, y, stats.spearmanr)


def _correlation(x: np.ndarray, y: np.ndarray, method: object) -> float | None:
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    value = float(method(x, y).statistic)  # type: ignore[operator]
    return value if np.isfinite(value) else None


def per_class(predicted: np.ndarray, gold: np.ndarray, names: Sequence[str]) -> list[ClassScore]:
    """Precision, recall, F1 and support of the classes 0..len(names)-1."""
    if not len(gold):
        return [ClassScore(name, None, None, None, 0) for name in names]
    labels = list(range(len(names)))
    table = metrics.precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=np.nan)
    scores = []
    for label, (precision, recall, f1, support) in enumerate(zip(*table, strict=True)):
        known = [None if np.isnan(value) else float(value) for value in (precision, recall, f1)]
        scores.append(ClassScore(names[label], known[0], known[1], known[2], int(support)))
    return scores


def normalised(r: S) -> S:
    """A correlation as it enters the dev norm: r in [-1, 1] mapped to [0, 1]."""
    return (r + 1) / 2


def dev_norm(sst_accuracy: float, para_accuracy: float, sts_pearson: float) -> float:
    """The course leaderboard's overall score: the mean of the three, Pearson's r mapped to [0, 1]."""
    return (sst_accuracy + para_accuracy + normalised(sts_pearson)) / 3
