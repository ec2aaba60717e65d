"""Logistic regression over frozen vectors in SentEval's three protocols (Conneau and Kiela 2018; its `validation.py`).

Axes: N rows, D features. The classifier is scikit-learn's. The grid of C, the folds and their seeds are SentEval's; a
fit begins where that of the next smaller C has ended, which changes how fast the one optimum is found, not where it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FOLDS = 10
SEED = 1111  # SentEval's own, of its folds and of its configuration
NESTED = tuple(2.0**power for power in range(-2, 4))
FIXED_TEST = tuple(2.0**power for power in range(-1, 6))


@dataclass(frozen=True)
class Outcome:
    """Predictions for every test row [N], the accuracy of each fold (one without folds), and what was chosen on."""

    predicted: np.ndarray
    gold: np.ndarray
    folds: tuple[float, ...]
    chosen: tuple[float, ...]
    dev: float

    @property
    def accuracy(self) -> float:
        """The mean over folds, as SentEval reports it."""
        return float(np.mean(self.folds))


def nested(x: np.ndarray, y: np.ndarray, folds: int = FOLDS) -> Outcome:
    """MR, CR, SUBJ, MPQA: cross-validation; every fold chooses C by a cross-validation inside its training part."""
    predicted, scores, chosen, devs = np.empty_like(y), [], [], []
    for train, test in _split(y, folds):
        dev = np.mean([_grid(x[train][one], y[train][one], x[train][two], y[train][two], NESTED)
                       for one, two in _split(y[train], folds)], axis=0)  # fmt: skip
        c = _best(dev, NESTED)
        predicted[test] = _fit(x[train], y[train], c).predict(x[test])
        scores.append(float((predicted[test] == y[test]).mean()))
        chosen.append(c)
        devs.append(float(dev.max()))
    return Outcome(predicted, y, tuple(scores), tuple(chosen), float(np.mean(devs)))


def fixed_test(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, folds: int = FOLDS) -> Outcome:
    """TREC, MRPC: C by cross-validation on the training rows, then one score on the test rows."""
    scores = [_grid(x[one], y[one], x[two], y[two], FIXED_TEST) for one, two in _split(y, folds)]
    return _tested(x, y, x_test, y_test, np.mean(scores, axis=0), FIXED_TEST)


def with_dev(
    x: np.ndarray, y: np.ndarray, x_dev: np.ndarray, y_dev: np.ndarray, x_test: np.ndarray, y_test: np.ndarray
) -> Outcome:
    """SST2: C by the development rows, then one score on the test rows."""
    return _tested(x, y, x_test, y_test, _grid(x, y, x_dev, y_dev, NESTED), NESTED)


def _tested(
    x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, dev: np.ndarray, grid: Sequence[float]
) -> Outcome:
    c = _best(dev, grid)
    predicted = _fit(x, y, c).predict(x_test)
    return Outcome(predicted, y_test, (float((predicted == y_test).mean()),), (c,), float(dev.max()))


def pair_features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """[N, D] and [N, D] to [N, 2D]: |u - v| and u * v, SentEval's features of MRPC."""
    return np.hstack([np.abs(first - second), first * second])


def _split(y: np.ndarray, folds: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedKFold

    yield from StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED).split(np.zeros(len(y)), y)


def _best(scores: np.ndarray, grid: Sequence[float]) -> float:
    """The smallest of the best, after SentEval's rounding to hundredths of a point."""
    return grid[int(np.argmax(np.round(100 * scores, 2)))]


def _model(c: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=c, random_state=SEED, max_iter=2000, tol=1e-5, warm_start=True)


def _fit(x: np.ndarray, y: np.ndarray, c: float) -> Any:
    return _model(c).fit(x, y)


def _grid(x: np.ndarray, y: np.ndarray, x_dev: np.ndarray, y_dev: np.ndarray, grid: Sequence[float]) -> np.ndarray:
    """Accuracy on the development rows for each C, in ascending order."""
    model = _model(grid[0])
    return np.array([float((model.set_params(C=c).fit(x, y).predict(x_dev) == y_dev).mean()) for c in grid])
