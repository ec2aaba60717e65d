"""Guards: the word embedding association test against the formula word by word.

python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_weat.py
"""

from itertools import combinations

import numpy as np
import pytest

from tasks.benchmarks import weat
from tasks.contrastive.evaluation import unit
from tests.tasks.contrastive.formulas import cosine


def plain_weat(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Caliskan et al. 2017 word by word: effect size, and the exact one-sided p."""
    values = []
    for word in [*x, *y]:
        to_a = sum(cosine(word, attribute) for attribute in a) / len(a)
        to_b = sum(cosine(word, attribute) for attribute in b) / len(b)
        values.append(to_a - to_b)
    n = len(x)
    observed = sum(values[:n]) - sum(values[n:])
    at_least = 0
    partitions = list(combinations(range(2 * n), n))
    for half in partitions:
        difference = 2 * sum(values[i] for i in half) - sum(values)
        at_least += difference >= observed - 1e-9
    return observed / n / float(np.std(values, ddof=1)), at_least / len(partitions)


def vectors() -> list[np.ndarray]:
    random = np.random.default_rng(8)
    x, y, a, b = [random.normal(size=(n, 6)) for n in (5, 5, 4, 3)]
    return [x + a.mean(0), y, a, b]


def test_effect_size_and_p() -> None:
    x, y, a, b = vectors()
    expected = plain_weat(x, y, a, b)
    assert weat.association_test(unit(x), unit(y), unit(a), unit(b)) == pytest.approx(expected, abs=1e-9)
    assert weat.association_test(unit(y), unit(x), unit(a), unit(b))[0] == pytest.approx(-expected[0])


def test_sampled_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = vectors()
    monkeypatch.setattr(weat, "PARTITIONS", 200)  # fewer than there are
    units = [unit(part) for part in parts]
    p_values = [weat.association_test(*units, seed=seed)[1] for seed in (0, 0, 1)]
    assert p_values[0] == p_values[1] != p_values[2]
    assert p_values[0] == pytest.approx(plain_weat(*parts)[1], abs=0.1)
