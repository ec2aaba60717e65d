"""Guards: scores equal their formulas, written out by hand; what is undefined is None.

python -m pytest --import-mode=importlib tests/tasks/test_metrics.py
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import metrics

labels = st.integers(0, 4)
pairs_of_labels = st.lists(st.tuples(labels, labels), min_size=1, max_size=40)
numbers = st.integers(-50, 50).map(lambda x: x / 8)
pairs_of_numbers = st.lists(st.tuples(numbers, numbers), min_size=2, max_size=40)


def sides(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.array(pairs, dtype=np.float64).T
    return x, y


@given(pairs_of_labels)
def test_accuracy_is_the_share_of_equal_labels(pairs: list[tuple[int, int]]) -> None:
    assert metrics.accuracy(*sides(pairs)) == pytest.approx(sum(p == g for p, g in pairs) / len(pairs))


@given(pairs_of_labels)
def test_per_class_scores_by_counting(pairs: list[tuple[int, int]]) -> None:
    names = ["a", "b", "c", "d", "e"]
    rows = metrics.per_class(*sides(pairs), names)
    assert [row.label for row in rows] == names
    for label, row in enumerate(rows):
        hits = sum(p == g == label for p, g in pairs)
        predicted, gold = sum(p == label for p, _ in pairs), sum(g == label for _, g in pairs)
        assert row.support == gold
        assert row.precision == (pytest.approx(hits / predicted) if predicted else None)
        assert row.recall == (pytest.approx(hits / gold) if gold else None)
        assert row.f1 == (pytest.approx(2 * hits / (predicted + gold)) if predicted + gold else None)


def textbook(x: np.ndarray, y: np.ndarray) -> float | None:
    a, b = x - x.mean(), y - y.mean()
    return None if not (a.any() and b.any()) else float((a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum()))


def ranks(x: np.ndarray) -> np.ndarray:
    """Ranks from 1, ties at their mean."""
    return np.array([(x < value).sum() + ((x == value).sum() + 1) / 2 for value in x])


@given(pairs_of_numbers)
def test_pearson_is_the_textbook_formula(pairs: list[tuple[float, float]]) -> None:
    x, y = sides(pairs)
    constant = np.ptp(x) == 0 or np.ptp(y) == 0
    assert metrics.pearson(x, y) == (None if constant else pytest.approx(textbook(x, y), abs=1e-9))


@given(pairs_of_numbers)
def test_spearman_is_pearson_of_the_ranks(pairs: list[tuple[float, float]]) -> None:
    x, y = sides(pairs)
    constant = np.ptp(x) == 0 or np.ptp(y) == 0
    assert metrics.spearman(x, y) == (None if constant else pytest.approx(textbook(ranks(x), ranks(y)), abs=1e-9))


def test_what_is_undefined_is_none_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    none, one = np.zeros(0), np.ones(1)
    for correlation in (metrics.pearson, metrics.spearman):
        assert correlation(none, none) is None
        assert correlation(one, one) is None
        assert correlation(np.ones(3), np.arange(3.0)) is None
        assert correlation(np.arange(3.0), np.ones(3)) is None
    assert metrics.accuracy(none, none) is None
    (row,) = metrics.per_class(none, none, ["a"])
    assert (row.precision, row.recall, row.f1, row.support) == (None, None, None, 0)
    assert not len(recwarn)


def test_dev_norm_is_the_leaderboards() -> None:
    """CBCL's dev row: .501, .900, .853 on the dev sets."""
    assert metrics.dev_norm(0.501, 0.900, 0.853) == pytest.approx((0.501 + 0.900 + 0.9265) / 3)
    assert metrics.dev_norm(1, 1, 1) == 1
    assert metrics.dev_norm(0, 0, -1) == 0


@pytest.mark.parametrize(("name", "score", "share"), [
    ("sst", 0.5, 0.5), ("sst", None, 0), ("quora", 0.9, 0.9), ("sts", 1, 1), ("sts", -1, 0), ("sts", 0.7, 0.85),
    ("sts", None, 0),
])  # fmt: skip
def test_each_task_enters_the_dev_norm_between_0_and_1(name: str, score: float | None, share: float) -> None:
    from tasks import TASKS

    assert TASKS[name]("cross").normalised(score) == pytest.approx(share)
