"""Guards: scores are their formulas and scikit-learn's; what is undefined is None.

python -m pytest --import-mode=importlib tests/tasks/test_metrics.py
"""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn import metrics as sk

from tasks import TASKS, metrics

GOLD, PREDICTED = np.random.default_rng(4).integers(3, size=(2, 60)).astype(float)


def test_undefined_is_none_without_warning(recwarn: pytest.WarningsRecorder) -> None:
    none = np.zeros(0)
    for first, second in ((none, none), (np.ones(1), np.ones(1)), (np.ones(3), np.arange(3.0))):
        for correlation in (metrics.pearson, metrics.spearman):
            assert correlation(first, second) is None
            assert correlation(second, first) is None
    assert metrics.accuracy(none, none) is None
    assert metrics.score("macro-F1", none, none) is None
    (row,) = metrics.per_class(none, none, ["a"])
    assert row == {"label": "a", "precision": None, "recall": None, "f1": None, "support": 0}
    assert not len(recwarn)


def test_dev_norm_follows_the_leaderboard() -> None:
    """CBCL's dev row: .501, .900, .853 on the dev sets."""
    scores = {"sst": 0.501, "quora": 0.900, "sts": 0.853}
    by_metric = [(TASKS[name]().metric, score) for name, score in scores.items()]
    assert metrics.dev_norm(by_metric) == pytest.approx(0.7758333)
    assert metrics.dev_norm([("accuracy", 0.5), ("Pearson's r", None)]) == 0.25
    assert metrics.dev_norm([("accuracy", None), ("Pearson's r", None)]) is None
    for metric, score, share in [("accuracy", 0.5, 0.5), ("Pearson's r", -1, 0), ("Spearman's rho", 0.7, 0.85)]:
        assert metrics.dev_norm([(metric, score)]) == pytest.approx(share)
    several = [("accuracy", np.array([0.2, 0.4])), ("Pearson's r", np.array([1.0, 0.0]))]
    assert metrics.dev_norm(several).tolist() == [0.6, 0.45]


def test_classes_match_scikit_learn() -> None:
    names = ["a", "b", "c"]
    expected = sk.classification_report(GOLD, PREDICTED, labels=range(3), target_names=names, output_dict=True)
    rows = metrics.per_class(PREDICTED, GOLD, names)
    assert [row["label"] for row in rows] == names
    for row in rows:
        scores = expected[row["label"]]
        assert row["support"] == scores["support"]
        by_hand = (scores["precision"], scores["recall"], scores["f1-score"])
        assert (row["precision"], row["recall"], row["f1"]) == pytest.approx(by_hand)
    # the third class is never predicted, the fourth in neither
    rows = metrics.per_class(np.array([0.0, 0, 1]), np.array([0.0, 2, 1]), ["a", "b", "c", "d"])
    assert [(row["precision"], row["recall"], row["f1"]) for row in rows[2:]] == [(None, 0, 0), (None, None, None)]
    confusion = sk.confusion_matrix(GOLD, PREDICTED, labels=range(4))
    np.testing.assert_array_equal(metrics.confusion(PREDICTED, GOLD, 4), confusion)


def test_scores_match_scikit_learn() -> None:
    gold = GOLD.reshape(5, 12)
    predicted = PREDICTED.reshape(5, 12) + 1  # a class that is not gold, and one that is not predicted
    expected = [sk.f1_score(a, b, average="macro") for a, b in zip(gold, predicted, strict=True)]
    np.testing.assert_allclose(metrics.batched_score("macro-F1", predicted, gold), expected)
    assert metrics.score("macro-F1", predicted[0], gold[0]) == pytest.approx(expected[0])
    assert metrics.score("Spearman's rho", predicted[0], gold[0]) == pytest.approx(spearmanr(predicted[0], gold[0])[0])
