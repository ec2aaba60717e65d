"""Guards: difficulty groups and pacing follow the papers' definitions, and the laws of every plan.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_curriculum.py
"""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minbert import UserError
from minbert.train.plan import Plan
from tasks.contrastive.curriculum import Paced, arrange, difficulty, eligible, plan

POWERS = [0.5, 1.0, 2.0]
variants = st.fixed_dictionaries(
    {
        "epochs": st.integers(1, 5),
        "batch_size": st.integers(1, 9),
        "seed": st.integers(0, 50),
        "power": st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.7]),
        "pacing": st.sampled_from(["epoch", "step"]),
        "within": st.sampled_from(["shuffled", "sorted"]),
        "equal_steps": st.booleans(),
    }
)


@example([(0.5, 0.25), (0.25, 0.25)], 0.25)
@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1), st.floats(0, 1))
def test_difficulty_is_the_papers_case_by_case(pairs: list[tuple[float, float]], margin: float) -> None:
    """Easy: gap > m. Semi-hard: 0 < gap <= m. Hard: gap <= 0 (CBCL, section 4.3; ties are ours)."""
    positive, negative = np.array(pairs).T
    expected = [0 if p - n > margin else 1 if p - n > 0 else 2 for p, n in pairs]
    assert difficulty(positive, negative, margin).tolist() == expected


def test_difficulty_takes_lists_and_float32_and_refuses_nan() -> None:
    assert difficulty(np.float32([0.9, 0.5]), np.float32([0.1, 0.6]), 0.2).tolist() == [0, 2]
    assert difficulty([0.9], [0.1], 0.2).tolist() == [0]
    for bad, words in ((np.array([0.1, math.nan]), "not finite"), (np.zeros(3), "must have one shape")):
        with pytest.raises(UserError, match=words):
            difficulty(bad, np.zeros(2), 0.2)


@pytest.mark.parametrize("power", POWERS)
@given(st.integers(1, 40), st.integers(0, 500_000))
def test_pacing_is_the_exact_floor(power: float, epochs: int, size: int) -> None:
    """floor((t / T)^p k) is the largest n with n^2 T^2p <= t^2p k^2."""
    double = round(2 * power)
    for epoch in range(1, epochs + 1):
        found = eligible(epoch, epochs, size, power)
        assert found**2 * epochs**double <= epoch**double * size**2 < (found + 1) ** 2 * epochs**double


@given(st.integers(1, 30), st.integers(0, 10_000), st.floats(0.01, 5))
def test_pacing_rises_and_ends_at_everything(epochs: int, size: int, power: float) -> None:
    values = [eligible(epoch, epochs, size, power) for epoch in range(1, epochs + 1)]
    assert values == sorted(values)
    assert values[-1] == size
    assert all(isinstance(value, int) and 0 <= value <= size for value in values)


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


def steps(made: Plan) -> list[list[int]]:
    return [made.at(step).rows.tolist() for step in range(made.total)]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 99), st.sampled_from(["curriculum", "anti", "random"]))
def test_every_direction_is_a_seeded_permutation(values: list[int], seed: int, direction: str) -> None:
    found = arrange(np.array(values, dtype=float), seed, direction)
    assert sorted(found) == list(range(len(values)))
    assert found.tolist() == arrange(np.array(values, dtype=float), seed, direction).tolist()
    keys = [values[i] for i in found]
    if direction != "random":
        assert keys == sorted(values, reverse=direction == "anti")


@pytest.mark.parametrize("direction", ["curriculum", "anti", "random"])
def test_equal_values_come_in_an_order_of_the_seed(direction: str) -> None:
    orders = [arrange(np.zeros(60), seed, direction).tolist() for seed in (1, 2)]
    assert orders[0] != orders[1] and list(range(60)) not in orders


def limit(size: int, step: int, made: Plan, variant: dict) -> int:
    """The eligible prefix of a step by its definition."""
    batch, epochs = min(variant["batch_size"], size), variant["epochs"]
    if variant["pacing"] == "step":
        eligible_now = eligible(step + 1, made.total, size, variant["power"])
    else:
        eligible_now = eligible(made.at(step).epoch + 1, epochs, size, variant["power"])
    return max(eligible_now, batch)


@given(st.integers(1, 60), variants)
def test_a_batch_lies_in_its_prefix_holds_no_row_twice_and_the_prefix_grows(size: int, variant: dict) -> None:
    ranks = np.random.default_rng(size).permutation(size)
    made = plan(np.argsort(ranks), **variant)
    before = 0
    for step, rows in enumerate(steps(made)):
        bound = limit(size, step, made, variant)
        assert before <= bound <= size
        assert len(set(rows)) == len(rows) > 0 and max(ranks[rows]) < bound
        before = bound
    assert before == size, "the last step may draw on everything"


@given(st.integers(1, 60), variants)
def test_a_plan_is_a_function_of_its_arguments_and_of_the_epoch_alone(size: int, variant: dict) -> None:
    first, again = plan(np.arange(size), **variant), plan(np.arange(size), **variant)
    backwards = [again.at(step).rows.tolist() for step in reversed(range(again.total))]
    assert steps(first) == backwards[::-1]


@given(st.integers(1, 60), variants)
def test_step_counts(size: int, variant: dict) -> None:
    """With equal steps: step by step the batch sizes of the run without a curriculum. Else the two pacings agree."""
    made = plan(np.arange(size), **variant)
    sizes = [len(rows) for rows in steps(made)]
    plain = {"epochs": variant["epochs"], "batch_size": variant["batch_size"], "seed": 0, "power": 0.0}
    if variant["equal_steps"]:
        assert made.total == variant["epochs"] * math.ceil(size / variant["batch_size"])
        assert sizes == [len(rows) for rows in steps(plan(np.arange(size), **plain))]
    else:
        other = plan(np.arange(size), **(variant | {"pacing": "epoch", "within": "shuffled"}))
        assert sizes == [len(rows) for rows in steps(other)]


@given(st.integers(1, 60), variants)
def test_pacing_per_epoch_covers_the_prefix_evenly_at_every_moment(size: int, variant: dict) -> None:
    made = plan(np.arange(size), **(variant | {"pacing": "epoch"}))
    counts: dict[int, Counter] = {}
    for step, rows in enumerate(steps(made)):
        epoch, bound = made.at(step).epoch, limit(size, step, made, variant | {"pacing": "epoch"})
        count = counts.setdefault(epoch, Counter(dict.fromkeys(range(bound), 0)))
        count.update(rows)
        assert max(count.values()) - min(count.values()) <= 1


def test_pacing_per_step_draws_each_eligible_row_equally_often() -> None:
    """By many seeds: the mean place of a step's rows is that of its prefix, and early rows get no more than others."""
    size, how = 200, {"epochs": 3, "batch_size": 10, "power": 1.0, "pacing": "step"}
    how["equal_steps"] = True
    plans = [plan(np.arange(size), seed=seed, **how) for seed in range(150)]
    for step in (19, 30, 45, 59):  # the end of an epoch, its middle, and the last step
        bound = limit(size, step, plans[0], how)
        drawn = np.array([made.at(step).rows for made in plans])
        assert drawn.mean() == pytest.approx((bound - 1) / 2, abs=4 * bound / math.sqrt(12 * drawn.size))


def test_passes_differ_and_sorted_passes_keep_the_order() -> None:
    how = {"epochs": 2, "batch_size": 4, "seed": 9, "power": 1.0, "equal_steps": True}
    rows = [row for batch in steps(plan(np.arange(40), **how))[:10] for row in batch]
    assert sorted(rows[:20]) == sorted(rows[20:]) == list(range(20)) and rows[:20] != rows[20:]
    rows = [row for batch in steps(plan(np.arange(40), within="sorted", **how))[:10] for row in batch]
    assert rows == [*range(20), *range(20)]
    grown = steps(plan(np.arange(40), **(how | {"pacing": "step", "within": "sorted"})))
    assert grown[:4] == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]], "a prefix of 4, 4, 6 and 8 rows"


def test_the_mix_counts_what_the_steps_hold() -> None:
    groups = np.array([0] * 20 + [1] * 12 + [2] * 8)
    made = plan(np.arange(40), epochs=4, batch_size=3, seed=2, power=1.0)
    shares = Paced(made, 40, groups).mix
    assert shares.tolist() == pytest.approx(np.array([[1, 0, 0], [1, 0, 0], [20 / 30, 10 / 30, 0], [0.5, 0.3, 0.2]]))
