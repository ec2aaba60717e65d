"""Guards: difficulty groups and pacing follow the papers' definitions, and the laws of every plan.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_curriculum.py
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minbert import UserError
from minbert.train.plan import Plan
from tasks.contrastive.curriculum import (
    CurriculumSettings,
    arrange,
    count_groups,
    difficulty,
    eligible,
    pace,
    sort,
)
from tasks.contrastive.settings import TrainingSettings

POWERS = [0.5, 1.0, 2.0]
variants = st.fixed_dictionaries(
    {
        "epochs": st.integers(1, 5),
        "batch_size": st.integers(1, 9),
        "seed": st.integers(0, 50),
        "pacing_exponent": st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.7]),
        "pace_by": st.sampled_from(["epoch", "step"]),
        "order_within": st.sampled_from(["shuffled", "sorted"]),
        "equal_steps": st.booleans(),
    }
)


@example([(0.5, 0.25), (0.25, 0.25)], 0.25)
@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1), st.floats(0, 1))
def test_difficulty_follows_the_papers(pairs: list[tuple[float, float]], margin: float) -> None:
    """Easy: gap > m. Semi-hard: 0 < gap <= m. Hard: gap <= 0 (CBCL, section 4.3; ties are ours)."""
    positive, negative = np.array(pairs).T
    groups = difficulty(positive, negative, margin)
    for gap, group in zip(positive - negative, groups, strict=True):
        assert (group == 0) == (gap > margin)
        assert (group == 1) == (0 < gap <= margin)
        assert (group == 2) == (gap <= 0)


def test_undefined_similarity_is_refused() -> None:
    with pytest.raises(UserError, match="not finite"):
        difficulty(np.array([0.1, math.nan]), np.zeros(2), 0.2)


@pytest.mark.parametrize("power", POWERS)
@given(st.integers(1, 40), st.integers(0, 500_000))
def test_pacing_is_the_exact_floor(power: float, epochs: int, size: int) -> None:
    """floor((t / T)^p k) is the largest n with n^2 T^2p <= t^2p k^2."""
    double = round(2 * power)
    for epoch in range(1, epochs + 1):
        count = eligible(epoch, epochs, size, power)
        assert count**2 * epochs**double <= epoch**double * size**2 < (count + 1) ** 2 * epochs**double


def plan(
    order: np.ndarray, *, epochs: int, batch_size: int, seed: int, texts: np.ndarray | None = None, **options: Any
) -> Plan:
    """The plan by `pace`; `options` are settings of the curriculum."""
    training = TrainingSettings(epochs=epochs, batch_size=batch_size, seed=seed)
    return pace(CurriculumSettings(**options), training, order, texts)


def rows_by_step(schedule: Plan) -> list[list[int]]:
    return [schedule.at(step).rows.tolist() for step in range(schedule.total)]


@pytest.mark.parametrize("direction", ["curriculum", "anti"])
def test_seed_orders_equal_values(direction: str) -> None:
    orders = [arrange(np.zeros(60), seed, direction).tolist() for seed in (1, 2)]
    assert orders[0] != orders[1] and list(range(60)) not in orders


def limit(size: int, step: int, schedule: Plan, variant: dict) -> int:
    """The eligible prefix of a step by its definition."""
    power = variant["pacing_exponent"]
    if variant["pace_by"] == "step":
        eligible_now = eligible(step + 1, schedule.total, size, power)
    else:
        eligible_now = eligible(schedule.at(step).epoch + 1, variant["epochs"], size, power)
    return max(eligible_now, min(variant["batch_size"], size))


@given(st.integers(1, 60), variants)
def test_batch_lies_in_growing_prefix(size: int, variant: dict) -> None:
    """Also where rows are exchanged between batches, as they share a text."""
    ranks = np.random.default_rng(size).permutation(size)
    schedule = plan(np.argsort(ranks), **variant, texts=ranks[:, None] % 9)
    before = 0
    for step, rows in enumerate(rows_by_step(schedule)):
        bound = limit(size, step, schedule, variant)
        assert before <= bound <= size
        assert len(set(rows)) == len(rows) > 0
        assert max(ranks[rows]) < bound
        before = bound
    assert before == size, "the last step may draw on everything"


def test_exchange_compares_texts_of_rows() -> None:
    order = np.random.default_rng(3).permutation(40)
    schedule = plan(order, epochs=2, batch_size=5, seed=1, texts=np.arange(40)[:, None] % 20)
    for rows in rows_by_step(schedule):
        assert len({row % 20 for row in rows}) == len(rows), "two rows of one text"


@given(st.integers(1, 60), variants)
def test_step_counts_are_those_promised(size: int, variant: dict) -> None:
    """With equal steps: step by step the batch sizes of the run without a curriculum. Else the two pacings agree."""
    schedule = plan(np.arange(size), **variant)
    sizes = [len(rows) for rows in rows_by_step(schedule)]
    plain = {"epochs": variant["epochs"], "batch_size": variant["batch_size"], "seed": 0, "pacing_exponent": 0.0}
    if variant["equal_steps"]:
        assert schedule.total == variant["epochs"] * math.ceil(size / variant["batch_size"])
        assert sizes == [len(rows) for rows in rows_by_step(plan(np.arange(size), **plain))]
    else:
        other = plan(np.arange(size), **(variant | {"pace_by": "epoch", "order_within": "shuffled"}))
        assert sizes == [len(rows) for rows in rows_by_step(other)]


@given(st.integers(1, 60), variants)
def test_pacing_by_epoch_draws_evenly(size: int, variant: dict) -> None:
    """An epoch draws every row of its prefix once; with equal steps it cycles them."""
    variant = variant | {"pace_by": "epoch"}
    schedule = plan(np.arange(size), **variant)
    step = 0
    for length in schedule.lengths:
        prefix = limit(size, step, schedule, variant)
        rows = np.concatenate([schedule.at(step + number).rows for number in range(length)])
        counts = np.bincount(rows, minlength=prefix)
        assert len(counts) == prefix
        assert np.ptp(counts) <= 1
        assert len(rows) == (size if variant["equal_steps"] else prefix)
        step += length


def test_pacing_by_step_draws_evenly() -> None:
    """By many seeds: the mean place of a step's rows is that of its prefix, and early rows get no more than others."""
    size = 200
    options = {"epochs": 3, "batch_size": 10, "pacing_exponent": 1.0, "pace_by": "step", "equal_steps": True}
    plans = [plan(np.arange(size), seed=seed, **options) for seed in range(150)]
    for step in (19, 30, 45, 59):  # the end of an epoch, its middle, and the last step
        bound = limit(size, step, plans[0], options)
        drawn = np.array([schedule.at(step).rows for schedule in plans])
        assert drawn.mean() == pytest.approx((bound - 1) / 2, abs=4 * bound / math.sqrt(12 * drawn.size))


@pytest.mark.parametrize("pace_by", ["epoch", "step"])
def test_fewer_steps_keep_the_pace(pace_by: Any) -> None:
    settings = CurriculumSettings(pace_by=pace_by)
    training = TrainingSettings(epochs=3, batch_size=4)
    whole = pace(settings, training, np.arange(40))
    short = pace(settings, replace(training, max_steps=5), np.arange(40))
    assert rows_by_step(short) == rows_by_step(whole)[:5]


def test_sorted_passes_keep_the_order() -> None:
    options = {"epochs": 2, "batch_size": 4, "seed": 9, "pacing_exponent": 1.0, "equal_steps": True}
    shuffled = rows_by_step(plan(np.arange(40), **options))
    rows = np.concatenate(shuffled[:10]).tolist()
    assert sorted(rows[:20]) == sorted(rows[20:]) == list(range(20))
    assert rows[:20] != rows[20:]
    in_order = rows_by_step(plan(np.arange(40), **options, order_within="sorted"))
    assert np.concatenate(in_order[:10]).tolist() == [*range(20), *range(20)]
    grown = rows_by_step(plan(np.arange(40), **options, order_within="sorted", pace_by="step"))
    assert grown[:4] == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]], "a prefix of 4, 4, 6 and 8 rows"


def test_mix_counts_rows_of_epochs() -> None:
    groups = np.array([0] * 20 + [1] * 12 + [2] * 8)
    schedule = plan(np.arange(40), epochs=4, batch_size=3, seed=2, pacing_exponent=1.0)
    counts = count_groups(groups, schedule)
    mix = [[1, 0, 0], [1, 0, 0], [0.6667, 0.3333, 0], [0.5, 0.3, 0.2]]
    assert counts == {"easy": 20, "semi-hard": 12, "hard": 8, "mix_per_epoch": mix}


@pytest.mark.parametrize("difficulty_by", ["groups", "entailment", "contradiction", "task"])
@pytest.mark.parametrize("order", ["curriculum", "anti"])
def test_easy_triplets_come_first(difficulty_by: str, order: str) -> None:
    """By the margin's groups, the cosine of the entailment or of the contradiction (CBCL, 4.3), or a task's loss."""
    positive, negative, losses = np.random.default_rng(4).uniform(-1, 1, (3, 25))
    scores = {"task loss": losses} if difficulty_by == "task" else {"positive": positive, "negative": negative}
    settings = CurriculumSettings(order=order, difficulty=difficulty_by, margin=0.5)  # type: ignore[arg-type]
    ordered, groups = sort(settings, 25, scores, seed=2)
    assert sorted(ordered) == list(range(25))
    gap = positive - negative
    hardness = {
        "groups": np.select([gap > 0.5, gap > 0], [0, 1], 2),
        "entailment": -positive,
        "contradiction": negative,
        "task": losses,
    }[difficulty_by]
    hardness_in_order = hardness[ordered]
    if order == "anti":
        hardness_in_order = hardness_in_order[::-1]
    assert (np.diff(hardness_in_order) >= 0).all()
    assert hardness_in_order[0] < hardness_in_order[-1]
    if difficulty_by == "task":
        assert groups is None
    else:
        assert groups is not None and groups.tolist() == difficulty(positive, negative, 0.5).tolist()


def test_orders_without_groups() -> None:
    """A random order keeps the pacing, none takes all rows in every epoch."""
    training = TrainingSettings(epochs=3, batch_size=4, seed=2)
    settings = CurriculumSettings(order="random", pacing_exponent=1.0)
    ordered, groups = sort(settings, 24, {}, seed=2)
    assert groups is None
    assert ordered.tolist() != list(range(24))
    assert sorted(ordered) == list(range(24))
    with_other_seed, _ = sort(settings, 24, {}, seed=3)
    assert with_other_seed.tolist() != ordered.tolist()
    steps = pace(settings, training, ordered)
    assert steps.lengths == [2, 4, 6] and count_groups(groups, steps) is None

    none = CurriculumSettings(order="none", pacing_exponent=1.0)
    ordered, groups = sort(none, 24, {}, seed=2)
    assert groups is None
    assert ordered.tolist() == list(range(24))
    assert pace(none, training, ordered).lengths == [6, 6, 6]
