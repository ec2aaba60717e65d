"""Guards: difficulty groups, pacing and the plans they make follow the papers' definitions.

python -m pytest --import-mode=importlib tests/contrastive/test_curriculum.py
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert import UserError
from tasks.contrastive.curriculum import difficulty, eligible, plan

EASY, SEMI_HARD, HARD = 0, 1, 2
POWERS = [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("gap", "group"),
    [
        (0.5, EASY),
        (np.nextafter(0.25, 1), EASY),
        (0.25, SEMI_HARD),
        (0.1, SEMI_HARD),
        (np.nextafter(0, 1), SEMI_HARD),
        (0.0, HARD),
        (-0.1, HARD),
        (-2.0, HARD),
    ],
)
def test_difficulty_on_all_sides_and_at_the_ties(gap: float, group: int) -> None:
    """Easy: gap > m. Semi-hard: 0 < gap <= m. Hard: gap <= 0 (CBCL, section 4.3; ties are ours)."""
    assert difficulty(np.array([gap]), np.array([0.0]), 0.25).tolist() == [group]


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1), st.floats(0, 1))
def test_difficulty_is_the_papers_case_by_case(pairs: list[tuple[float, float]], margin: float) -> None:
    positive, negative = np.array(pairs).T
    expected = [0 if p - n > margin else 1 if p - n > 0 else 2 for p, n in pairs]
    assert difficulty(positive, negative, margin).tolist() == expected


def test_difficulty_takes_lists_and_float32_and_refuses_nan() -> None:
    assert difficulty(np.float32([0.9, 0.5]), np.float32([0.1, 0.6]), 0.2).tolist() == [0, 2]
    assert difficulty([0.9], [0.1], 0.2).tolist() == [0]
    with pytest.raises(UserError, match="not finite"):
        difficulty(np.array([0.1, math.nan]), np.zeros(2), 0.2)


@given(st.integers(1, 40), st.integers(0, 500_000))
def test_linear_pacing_is_the_exact_floor(epochs: int, size: int) -> None:
    for epoch in range(1, epochs + 1):
        assert eligible(epoch, epochs, size, 1.0) == math.floor(Fraction(epoch, epochs) * size)


@given(st.integers(1, 40), st.integers(0, 500_000))
def test_quadratic_pacing_is_the_exact_floor(epochs: int, size: int) -> None:
    for epoch in range(1, epochs + 1):
        assert eligible(epoch, epochs, size, 2.0) == math.floor(Fraction(epoch, epochs) ** 2 * size)


@given(st.integers(1, 40), st.integers(0, 500_000))
def test_root_pacing_is_the_exact_floor(epochs: int, size: int) -> None:
    """floor(sqrt(t / T) k) = the largest n with n^2 T <= t k^2."""
    for epoch in range(1, epochs + 1):
        found = eligible(epoch, epochs, size, 0.5)
        assert found**2 * epochs <= epoch * size**2 < (found + 1) ** 2 * epochs


@given(st.integers(1, 30), st.integers(0, 10_000), st.floats(0.01, 5))
def test_pacing_rises_and_ends_at_everything(epochs: int, size: int, power: float) -> None:
    values = [eligible(epoch, epochs, size, power) for epoch in range(1, epochs + 1)]
    assert values == sorted(values)
    assert values[-1] == size
    assert all(isinstance(value, int) and 0 <= value <= size for value in values)


@pytest.mark.parametrize("epoch", [0, 11, -1])
def test_epochs_count_from_one(epoch: int) -> None:
    with pytest.raises(UserError, match="epoch"):
        eligible(epoch, 10, 100, 1.0)


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 12), st.sampled_from([0.0, *POWERS]), st.integers(0, 99))
def test_each_epoch_goes_once_through_its_prefix(size: int, epochs: int, batch: int, power: float, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(size) + 1000
    made = plan(order, epochs=epochs, batch_size=batch, seed=seed, power=power)
    for epoch, length in enumerate(made.lengths):
        first = made.ends[epoch] - length
        found = [made.at(step) for step in range(first, first + length)]
        wanted = size if power == 0 else eligible(epoch + 1, epochs, size, power)
        prefix = max(wanted, min(batch, size))  # one batch at least
        drawn = [row for step in found for row in step.rows.tolist()]
        assert sorted(drawn) == sorted(order[:prefix].tolist())
        assert [len(step.rows) for step in found[:-1]] == [batch] * (length - 1)
