"""Guards: a bootstrap is a plain loop over its resamples, and what is undefined has no interval.

python -m pytest --import-mode=importlib tests/tasks/test_intervals.py
"""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from tasks import intervals, metrics


def plain(metric: str, predicted: np.ndarray, gold: np.ndarray) -> float:
    if metric == "accuracy":
        return float(sk.accuracy_score(gold, predicted))
    method = stats.pearsonr if metric == "Pearson's r" else stats.spearmanr
    return float(method(predicted, gold).statistic)


@pytest.mark.parametrize("metric", ["accuracy", "Pearson's r", "Spearman's rho"])
def test_bootstrap_equals_a_plain_loop(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_CELLS", 800)  # in several blocks
    random = np.random.default_rng(3)
    gold = random.integers(5, size=80).astype(float)
    both = np.stack([gold + random.integers(-1, 2, 80), gold + random.integers(-2, 3, 80)])
    resamples: list[np.ndarray] = []

    def statistic(rows: np.ndarray) -> np.ndarray:
        resamples.extend(rows)
        return metrics.batched_score(metric, both[:, rows], gold[rows])

    intervals.resampled(statistic, 80, "bootstrap", "task", seed=9, resamples=40)
    samples = intervals.bootstrap(metric, both, gold, "task", seed=9, resamples=40)
    assert len({tuple(rows) for rows in resamples}) == 40
    assert np.concatenate(resamples).max() == 79
    for number, rows in enumerate(resamples):
        for system in (0, 1):
            assert samples[system, number] == pytest.approx(plain(metric, both[system, rows], gold[rows]), abs=1e-12)
    assert not np.array_equal(intervals.bootstrap(metric, both, gold, "other", seed=9, resamples=40), samples)


def test_interval_is_middle_95_percent() -> None:
    samples = np.random.default_rng(3).permutation(np.arange(1001.0))
    assert intervals.interval(samples) == (25, 975)
    assert intervals.interval(np.append(samples, np.nan)) is None
    assert intervals.interval(np.empty(0)) is None


def test_undefined_scores_are_nan() -> None:
    gold = np.arange(6.0)
    assert np.isnan(intervals.bootstrap("Pearson's r", np.ones((1, 6)), gold, "task", resamples=5)).all()
    assert np.isnan(metrics.batched_score("Spearman's rho", np.ones((1, 6)), gold)).all()
