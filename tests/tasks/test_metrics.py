"""Guards: scores are their formulas and scikit-learn's; what is undefined is None.

python -m pytest --import-mode=importlib tests/tasks/test_metrics.py
"""

import numpy as np
import pytest
from sklearn import metrics as sk

from tasks import TASKS, metrics


def test_undefined_is_none_without_warning(recwarn: pytest.WarningsRecorder) -> None:
    none, single = np.zeros(0), np.ones(1)
    for correlation in (metrics.pearson, metrics.spearman):
        assert correlation(none, none) is None
        assert correlation(single, single) is None
        assert correlation(np.ones(3), np.arange(3.0)) is None
        assert correlation(np.arange(3.0), np.ones(3)) is None
    assert metrics.accuracy(none, none) is None
    (row,) = metrics.per_class(none, none, ["a"])
    assert row == {"label": "a", "precision": None, "recall": None, "f1": None, "support": 0}
    assert not len(recwarn)
    wrong = metrics.per_class(np.zeros(2), np.ones(2), ["a", "b"])
    assert [repr(row["support"]) for row in wrong] == ["0", "2"], "whole numbers, though no prediction is right"


def test_dev_norm_follows_the_leaderboard() -> None:
    """CBCL's dev row: .501, .900, .853 on the dev sets."""
    scores = {"sst": 0.501, "quora": 0.900, "sts": 0.853}
    assert metrics.dev_norm((TASKS[name]().metric, score) for name, score in scores.items()) == pytest.approx(0.7758333)
    shares = [("accuracy", 0.5, 0.5), ("accuracy", None, 0), ("Pearson's r", -1, 0), ("Spearman's rho", 0.7, 0.85)]
    for metric, score, share in shares:
        assert metrics.dev_norm([(metric, score)]) == pytest.approx(share)
    several = [("accuracy", np.array([0.2, 0.4])), ("Pearson's r", np.array([1.0, 0.0]))]
    assert metrics.dev_norm(several).tolist() == [0.6, 0.45]


def test_confusion_matches_scikit_learn() -> None:
    draws = np.random.default_rng(3)
    gold, predicted = draws.integers(4, size=(2, 60)).astype(float)
    expected = sk.confusion_matrix(gold, predicted, labels=range(5))
    np.testing.assert_array_equal(metrics.confusion(predicted, gold, 5), expected)


def test_per_class_matches_scikit_learn() -> None:
    random = np.random.default_rng(4)
    gold, predicted = random.integers(3, size=(2, 60)).astype(float)
    expected = sk.classification_report(gold, predicted, labels=range(3), output_dict=True)
    for index, row in enumerate(metrics.per_class(predicted, gold, ["a", "b", "c"])):
        scores = expected[f"{index}.0" if f"{index}.0" in expected else str(index)]
        assert row["label"] == "abc"[index] and row["support"] == scores["support"]
        assert (row["precision"], row["recall"], row["f1"]) == pytest.approx(
            (scores["precision"], scores["recall"], scores["f1-score"])
        )
