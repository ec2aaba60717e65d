"""Guards: scores are their formulas, a bootstrap is a plain loop over its draws; what is undefined is None.

python -m pytest --import-mode=importlib tests/tasks/test_metrics.py
"""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from tasks import TASKS, intervals, metrics


def test_what_is_undefined_is_none_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    none, one = np.zeros(0), np.ones(1)
    for correlation in (metrics.pearson, metrics.spearman):
        assert correlation(none, none) is None
        assert correlation(one, one) is None
        assert correlation(np.ones(3), np.arange(3.0)) is None
        assert correlation(np.arange(3.0), np.ones(3)) is None
    assert metrics.accuracy(none, none) is None
    (row,) = metrics.per_class(none, none, ["a"])
    assert row == {"label": "a", "precision": None, "recall": None, "f1": None, "support": 0}
    assert not len(recwarn)
    wrong = metrics.per_class(np.zeros(2), np.ones(2), ["a", "b"])
    assert [repr(row["support"]) for row in wrong] == ["0", "2"], "whole numbers, though no prediction is right"


def test_dev_norm_is_the_leaderboards() -> None:
    """CBCL's dev row: .501, .900, .853 on the dev sets."""
    found = {"sst": 0.501, "quora": 0.900, "sts": 0.853}
    assert metrics.dev_norm((TASKS[name]().metric, score) for name, score in found.items()) == pytest.approx(0.7758333)
    shares = [("accuracy", 0.5, 0.5), ("accuracy", None, 0), ("Pearson's r", -1, 0), ("Spearman's rho", 0.7, 0.85)]
    for metric, score, share in shares:
        assert metrics.dev_norm([(metric, score)]) == pytest.approx(share)
    several = [("accuracy", np.array([0.2, 0.4])), ("Pearson's r", np.array([1.0, 0.0]))]
    assert metrics.dev_norm(several).tolist() == [0.6, 0.45]


def plain(metric: str, predicted: np.ndarray, gold: np.ndarray) -> float:
    if metric == "accuracy":
        return float(sk.accuracy_score(gold, predicted))
    method = stats.pearsonr if metric == "Pearson's r" else stats.spearmanr
    return float(method(predicted, gold).statistic)


@pytest.mark.parametrize("metric", ["accuracy", "Pearson's r", "Spearman's rho"])
def test_a_bootstrap_is_a_plain_one_over_the_same_draws(metric: str) -> None:
    draws = np.random.default_rng(3)
    gold = draws.integers(5, size=80).astype(float)
    both = np.stack([gold + draws.integers(-1, 2, 80), gold + draws.integers(-2, 3, 80)])
    seen: list[np.ndarray] = []

    def of(rows: np.ndarray) -> np.ndarray:
        seen.extend(rows)
        return intervals.scores(metric, both[:, rows], gold[rows])

    intervals.resampled(of, 80, "bootstrap", "task", seed=9, resamples=40)
    found = intervals.bootstrap(metric, both, gold, "task", seed=9, resamples=40)
    assert len({tuple(rows) for rows in seen}) == 40 and np.concatenate(seen).max() == 79
    for number, rows in enumerate(seen):
        for system in (0, 1):
            assert found[system, number] == pytest.approx(plain(metric, both[system, rows], gold[rows]), abs=1e-12)
    assert not np.array_equal(intervals.bootstrap(metric, both, gold, "other", seed=9, resamples=40), found)


def test_an_interval_is_the_middle_95_percent() -> None:
    samples = np.random.default_rng(3).permutation(np.arange(1001.0))
    assert intervals.interval(samples) == (25, 975)
    assert intervals.interval(np.append(samples, np.nan)) is None


def test_what_is_undefined_has_no_interval() -> None:
    gold = np.arange(6.0)
    constant = intervals.bootstrap("Pearson's r", np.ones((1, 6)), gold, "task", resamples=5)
    assert intervals.interval(constant[0]) is None
    assert intervals.interval(np.empty(0)) is None
    assert intervals.bootstrap("accuracy", np.ones((2, 1)), np.ones(1), "task", resamples=3).tolist() == [[1] * 3] * 2
    assert math.isnan(intervals.scores("Spearman's rho", np.ones((1, 6)), gold)[0])


def test_a_confusion_matrix_is_scikit_learns() -> None:
    draws = np.random.default_rng(3)
    gold, predicted = draws.integers(4, size=(2, 60)).astype(float)
    expected = sk.confusion_matrix(gold, predicted, labels=range(5))
    np.testing.assert_array_equal(metrics.confusion(predicted, gold, 5), expected)
