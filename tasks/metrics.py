"""Metrics: accuracy, macro-F1, Pearson, Spearman, per-class precision and recall. Undefined scores are None."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from scipy import stats

S = TypeVar("S", float, np.ndarray)
CORRELATIONS = ("Pearson's r", "Spearman's rho")
"""The metrics in [-1, 1]."""
DEV_NORM = "dev norm"
DESCRIPTIONS = {
    "dev_norm": ("dev norm", "mean of the tasks' scores, r as (r + 1) / 2"),
    "sts_dev_spearman": ("STS dev", "Spearman's rho"),
    "alignment": ("alignment", "mean squared distance (lower is better)"),
    "uniformity": ("uniformity", "log mean Gaussian potential (lower is better)"),
    "triplet_accuracy": ("triplet accuracy", "share of training triplets with cos(a, p) > cos(a, n)"),
    "frozen_loss": ("frozen loss", "NT-Xent of training triplets (nats, lower is better)"),
    "last_epoch_loss": ("last epoch's training loss", "mean (lower is better)"),
}
"""Title and unit of the metrics that evaluations and studies record."""


def accuracy(predicted: np.ndarray, gold: np.ndarray) -> float | None:
    """Accuracy; None without rows."""
    if not len(gold):
        return None
    return float((predicted == gold).mean())


def pearson(x: np.ndarray, y: np.ndarray) -> float | None:
    """Pearson's r; None for fewer than two pairs or if either side is constant."""
    return _correlation(x, y, stats.pearsonr)


def spearman(x: np.ndarray, y: np.ndarray) -> float | None:
    """Spearman's rho, ties at their mean rank; None for fewer than two pairs or if either side is constant."""
    return _correlation(x, y, stats.spearmanr)


def macro_f1(predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """The mean F1 of the classes that are predicted or gold, over the last axis: [..., N] to [...]."""
    scores = []
    for label in np.unique(np.concatenate([predicted.ravel(), gold.ravel()])):
        is_predicted = predicted == label
        is_gold = gold == label
        right = (is_predicted & is_gold).sum(-1)
        with np.errstate(invalid="ignore"):
            # not a number where the class is in neither
            scores.append(2 * right / (is_predicted.sum(-1) + is_gold.sum(-1)))
    return np.asarray(np.nanmean(scores, axis=0))


def score(metric: str, predicted: np.ndarray, gold: np.ndarray) -> float | None:
    """One of the metrics of tasks, by its name; None if it is undefined."""
    if metric == "accuracy":
        return accuracy(predicted, gold)
    if metric == "macro-F1":
        return float(macro_f1(predicted, gold)) if len(gold) else None
    if metric == "Spearman's rho":
        return spearman(predicted, gold)
    assert metric == "Pearson's r", metric
    return pearson(predicted, gold)


def batched_score(metric: str, predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """As `score`, of many systems or resamples at once: predicted [..., N] and gold [N] or [..., N] to [...].

    It is NaN where `score` is None.
    """
    if metric == "accuracy":
        return np.asarray((predicted == gold).mean(-1))
    if metric == "macro-F1":
        return macro_f1(predicted, gold)
    if metric == "Spearman's rho":
        return _batched_correlation(stats.rankdata(predicted, axis=-1), stats.rankdata(gold, axis=-1))
    assert metric == "Pearson's r", metric
    return _batched_correlation(predicted, gold)


def _batched_correlation(predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    x = predicted - predicted.mean(-1, keepdims=True)
    y = gold - gold.mean(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    # rounding may leave a constant side with a tiny variance
    constant = (np.ptp(predicted, axis=-1) == 0) | (np.ptp(gold, axis=-1) == 0)
    return np.where(constant, np.nan, r)


def _correlation(x: np.ndarray, y: np.ndarray, method: Any) -> float | None:
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    value = float(method(x, y).statistic)
    return value if np.isfinite(value) else None


def per_class(predicted: np.ndarray, gold: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """`label`, `precision`, `recall`, `f1` and `support` of the classes 0..len(names)-1; None where undefined."""
    if not len(gold):
        return [{"label": name, "precision": None, "recall": None, "f1": None, "support": 0} for name in names]
    from sklearn.metrics import precision_recall_fscore_support  # takes a second to import

    precision, recall, f1, support = precision_recall_fscore_support(
        gold, predicted, labels=list(range(len(names))), zero_division=np.nan
    )
    rows = []
    for index, name in enumerate(names):
        row: dict[str, Any] = {"label": name}
        for key, values in (("precision", precision), ("recall", recall), ("f1", f1)):
            row[key] = None if np.isnan(values[index]) else float(values[index])
        row["support"] = int(support[index])
        rows.append(row)
    return rows


def confusion(predicted: np.ndarray, gold: np.ndarray, classes: int) -> np.ndarray:
    """The number of rows by gold class (row) and predicted class (column): int64 [classes, classes]."""
    cells = gold.astype(np.int64) * classes + predicted.astype(np.int64)
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def dev_norm(scores: Sequence[tuple[str, S | None]]) -> S | None:
    """The course leaderboard's overall score: the mean over tasks, from each one's metric and score.

    A correlation r counts as (r + 1) / 2, another score as it is, and an undefined one as 0; None if no score is
    defined. Arrays of scores, of one shape, give an array.
    """
    if all(score is None for _, score in scores):
        return None
    terms: list[Any] = []
    for metric, score in scores:
        if score is None:
            terms.append(0.0)
        elif metric in CORRELATIONS:
            terms.append((score + 1) / 2)
        else:
            terms.append(score)
    mean: S = sum(terms) / len(terms)
    return mean
