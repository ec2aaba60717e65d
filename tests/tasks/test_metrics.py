"""Guards: scores equal their formulas, written out by hand; what is undefined is None.

python -m pytest --import-mode=importlib tests/tasks/test_metrics.py
"""

import numpy as np
import pytest

from tasks import TASKS, metrics


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


def test_dev_norm_is_the_leaderboards() -> None:
    """CBCL's dev row: .501, .900, .853 on the dev sets."""
    found = {"sst": 0.501, "quora": 0.900, "sts": 0.853}
    assert metrics.dev_norm((TASKS[name]().metric, score) for name, score in found.items()) == pytest.approx(0.7758333)
    shares = [("accuracy", 0.5, 0.5), ("accuracy", None, 0), ("Pearson's r", -1, 0), ("Spearman's rho", 0.7, 0.85)]
    for metric, score, share in shares:
        assert metrics.dev_norm([(metric, score)]) == pytest.approx(share)
    several = [("accuracy", np.array([0.2, 0.4])), ("Pearson's r", np.array([1.0, 0.0]))]
    assert metrics.dev_norm(several).tolist() == [0.6, 0.45]
