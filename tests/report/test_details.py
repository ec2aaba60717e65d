"""Guards: the bootstrap against scipy and plain loops; undefined is None.

python -m pytest --import-mode=importlib tests/report/test_details.py
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics

from tasks import intervals
from tasks import metrics as ours
from tasks.record import TaskScores
from tasks.registry import TASKS
from tasks.report import details
from tests.report.conftest import made_rows

DRAWS = np.random.default_rng(3)


def plain(metric: str, predicted: np.ndarray, gold: np.ndarray) -> float:
    if metric == "accuracy":
        return float(metrics.accuracy_score(gold, predicted))
    method = stats.pearsonr if metric == "Pearson's r" else stats.spearmanr
    return float(method(predicted, gold).statistic)


@pytest.mark.parametrize("metric", ["accuracy", "Pearson's r", "Spearman's rho"])
def test_a_bootstrap_is_a_plain_one_over_the_same_draws(metric: str) -> None:
    gold = DRAWS.integers(5, size=80).astype(float)
    both = np.stack([gold + DRAWS.integers(-1, 2, 80), gold + DRAWS.integers(-2, 3, 80)])
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


def test_an_interval_of_a_difference_is_scipys() -> None:
    gold = DRAWS.integers(2, size=400).astype(float)
    one, two = (np.where(DRAWS.random(400) < skill, gold, 1 - gold) for skill in (0.7, 0.78))
    draws = intervals.bootstrap("accuracy", np.stack([one, two]), gold, "task")
    found = intervals.interval(draws[1] - draws[0])

    def difference(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        return (b.astype(float) - a.astype(float)).mean(axis)

    expected = stats.bootstrap(
        (one == gold, two == gold), difference, paired=True, method="percentile", n_resamples=20_000, rng=1
    ).confidence_interval
    assert found is not None
    assert found.low == pytest.approx(expected.low, abs=0.006)
    assert found.high == pytest.approx(expected.high, abs=0.006)


def test_what_is_undefined_has_no_interval() -> None:
    gold = np.arange(6.0)
    constant = intervals.bootstrap("Pearson's r", np.ones((1, 6)), gold, "task", resamples=5)
    assert intervals.interval(constant[0]) is None
    assert intervals.interval(np.empty(0)) is None
    assert intervals.bootstrap("accuracy", np.ones((2, 1)), np.ones(1), "task", resamples=3).tolist() == [[1] * 3] * 2
    assert math.isnan(intervals.scores("Spearman's rho", np.ones((1, 6)), gold)[0])


def test_a_confusion_matrix_is_scikit_learns() -> None:
    gold, predicted = DRAWS.integers(4, size=(2, 60)).astype(float)
    expected = metrics.confusion_matrix(gold, predicted, labels=range(5))
    np.testing.assert_array_equal(ours.confusion(predicted, gold, 5), expected)


def test_the_worst_errors_have_the_least_probable_gold_classes() -> None:
    rows = made_rows("sst", 81, seed=1, skill=0.4).labelled()
    task = TaskScores("sst", "sentiment", "accuracy", 0.6, 80, tuple("abcde"), rows=rows)
    assert rows.probabilities is not None
    gold = rows.probabilities[np.arange(80), rows.gold.astype(int)]
    wrong = np.flatnonzero(rows.gold != rows.predicted)
    worst = wrong[np.argsort(gold[wrong], kind="stable")][:25]
    listed = details.worst_errors(task, rows, texts=True).rows
    assert listed["id"].tolist() == [rows.ids[row] for row in worst]
    assert listed["p(gold)"].tolist() == [f"{share:.3f}" for share in gold[worst]]
    assert "text" not in details.worst_errors(task, rows, texts=False).rows


def test_probabilities_are_torchs_softmax_and_none_for_a_regression() -> None:
    logits = torch.randn(7, 5) * 4
    found = TASKS["sst"]().probabilities(logits.numpy())
    np.testing.assert_allclose(found, torch.softmax(logits.double(), 1).numpy(), rtol=1e-12)
    two = TASKS["quora"]().probabilities(np.array([800.0, -800.0, 0.0], dtype=np.float32))
    np.testing.assert_array_equal(two, [[0, 1], [1, 0], [0.5, 0.5]])
    assert TASKS["sts"]().probabilities(np.zeros(3)) is None
