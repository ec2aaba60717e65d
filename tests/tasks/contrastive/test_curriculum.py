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
from tasks.contrastive.curriculum import (
    CurriculumSettings,
    Paced,
    Similarities,
    arrange,
    difficulty,
    eligible,
    pace,
    plan,
    sort,
)
from tasks.contrastive.settings import TrainingSettings
from tests.tasks.contrastive.test_unique_batches import clashes

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
    expected = [0 if p - n > margin else 1 if p - n > 0 else 2 for p, n in pairs]
    assert difficulty(positive, negative, margin).tolist() == expected


def test_difficulty_takes_any_numbers() -> None:
    assert difficulty(np.float32([0.9, 0.5]), np.float32([0.1, 0.6]), 0.2).tolist() == [0, 2]
    assert difficulty([0.9], [0.1], 0.2).tolist() == [0]
    with pytest.raises(UserError, match="not finite"):
        difficulty(np.array([0.1, math.nan]), np.zeros(2), 0.2)
    with pytest.raises(AssertionError):
        difficulty(np.zeros(2), np.zeros((2, 1)), 0.2)


@pytest.mark.parametrize("power", POWERS)
@given(st.integers(1, 40), st.integers(0, 500_000))
def test_pacing_is_the_exact_floor(power: float, epochs: int, size: int) -> None:
    """floor((t / T)^p k) is the largest n with n^2 T^2p <= t^2p k^2."""
    double = round(2 * power)
    for epoch in range(1, epochs + 1):
        count = eligible(epoch, epochs, size, power)
        assert count**2 * epochs**double <= epoch**double * size**2 < (count + 1) ** 2 * epochs**double


@given(st.integers(1, 30), st.integers(0, 10_000), st.floats(0.01, 5))
def test_pacing_rises_to_all_triplets(epochs: int, size: int, power: float) -> None:
    values = [eligible(epoch, epochs, size, power) for epoch in range(1, epochs + 1)]
    assert values == sorted(values)
    assert values[-1] == size
    assert all(isinstance(value, int) and 0 <= value <= size for value in values)


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 12), st.sampled_from([0.0, *POWERS]), st.integers(0, 99))
def test_epoch_covers_its_prefix_once(size: int, epochs: int, batch: int, power: float, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(size) + 1000
    schedule = plan(order, epochs=epochs, batch_size=batch, seed=seed, pacing_exponent=power)
    for epoch, length in enumerate(schedule.lengths):
        first = schedule.ends[epoch] - length
        batches = [schedule.at(step) for step in range(first, first + length)]
        wanted = size if power == 0 else eligible(epoch + 1, epochs, size, power)
        prefix = max(wanted, min(batch, size))  # one batch at least
        drawn = [row for batch_of_step in batches for row in batch_of_step.rows.tolist()]
        assert sorted(drawn) == sorted(order[:prefix].tolist())
        assert [len(batch_of_step.rows) for batch_of_step in batches[:-1]] == [batch] * (length - 1)


def rows_by_step(schedule: Plan) -> list[list[int]]:
    return [schedule.at(step).rows.tolist() for step in range(schedule.total)]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 99), st.sampled_from(["curriculum", "anti", "random"]))
def test_every_order_is_a_permutation(values: list[int], seed: int, direction: str) -> None:
    order = arrange(np.array(values, dtype=float), seed, direction)
    assert sorted(order) == list(range(len(values)))
    assert order.tolist() == arrange(np.array(values, dtype=float), seed, direction).tolist()
    keys = [values[i] for i in order]
    if direction != "random":
        assert keys == sorted(values, reverse=direction == "anti")


@pytest.mark.parametrize("direction", ["curriculum", "anti", "random"])
def test_seed_orders_equal_values(direction: str) -> None:
    orders = [arrange(np.zeros(60), seed, direction).tolist() for seed in (1, 2)]
    assert orders[0] != orders[1] and list(range(60)) not in orders


def limit(size: int, step: int, schedule: Plan, variant: dict) -> int:
    """The eligible prefix of a step by its definition."""
    batch, epochs = min(variant["batch_size"], size), variant["epochs"]
    if variant["pace_by"] == "step":
        eligible_now = eligible(step + 1, schedule.total, size, variant["pacing_exponent"])
    else:
        eligible_now = eligible(schedule.at(step).epoch + 1, epochs, size, variant["pacing_exponent"])
    return max(eligible_now, batch)


@given(st.integers(1, 60), variants)
def test_batch_lies_in_growing_prefix(size: int, variant: dict) -> None:
    ranks = np.random.default_rng(size).permutation(size)
    schedule = plan(np.argsort(ranks), **variant)
    before = 0
    for step, rows in enumerate(rows_by_step(schedule)):
        bound = limit(size, step, schedule, variant)
        assert before <= bound <= size
        assert len(set(rows)) == len(rows) > 0 and max(ranks[rows]) < bound
        before = bound
    assert before == size, "the last step may draw on everything"


@given(st.integers(1, 60), variants)
def test_plan_depends_on_arguments_alone(size: int, variant: dict) -> None:
    first, again = plan(np.arange(size), **variant), plan(np.arange(size), **variant)
    backwards = [again.at(step).rows.tolist() for step in reversed(range(again.total))]
    assert rows_by_step(first) == backwards[::-1]


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
    schedule = plan(np.arange(size), **(variant | {"pace_by": "epoch"}))
    counts: dict[int, Counter] = {}
    for step, rows in enumerate(rows_by_step(schedule)):
        epoch, bound = schedule.at(step).epoch, limit(size, step, schedule, variant | {"pace_by": "epoch"})
        count = counts.setdefault(epoch, Counter(dict.fromkeys(range(bound), 0)))
        count.update(rows)
        assert max(count.values()) - min(count.values()) <= 1


def test_pacing_by_step_draws_evenly() -> None:
    """By many seeds: the mean place of a step's rows is that of its prefix, and early rows get no more than others."""
    size, options = 200, {"epochs": 3, "batch_size": 10, "pacing_exponent": 1.0, "pace_by": "step"}
    options["equal_steps"] = True
    plans = [plan(np.arange(size), seed=seed, **options) for seed in range(150)]
    for step in (19, 30, 45, 59):  # the end of an epoch, its middle, and the last step
        bound = limit(size, step, plans[0], options)
        drawn = np.array([schedule.at(step).rows for schedule in plans])
        assert drawn.mean() == pytest.approx((bound - 1) / 2, abs=4 * bound / math.sqrt(12 * drawn.size))


def test_sorted_passes_keep_the_order() -> None:
    options = {"epochs": 2, "batch_size": 4, "seed": 9, "pacing_exponent": 1.0, "equal_steps": True}
    rows = [row for batch in rows_by_step(plan(np.arange(40), **options))[:10] for row in batch]
    assert sorted(rows[:20]) == sorted(rows[20:]) == list(range(20)) and rows[:20] != rows[20:]
    rows = [row for batch in rows_by_step(plan(np.arange(40), order_within="sorted", **options))[:10] for row in batch]
    assert rows == [*range(20), *range(20)]
    grown = rows_by_step(plan(np.arange(40), **(options | {"pace_by": "step", "order_within": "sorted"})))
    assert grown[:4] == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]], "a prefix of 4, 4, 6 and 8 rows"


@pytest.mark.parametrize("columns", [1, 2, 3])
@given(st.integers(1, 60), variants, st.integers(0, 99))
def test_unique_batches_keep_the_plan(columns: int, size: int, variant: dict, seed: int) -> None:
    """Sizes, the rows of an epoch and what is eligible at each step stay; no batch has more repeats than before."""
    ranks = np.random.default_rng(seed).permutation(size)
    texts = np.random.default_rng(seed).integers(0, 4 * size, (size, columns))
    order = np.argsort(ranks)
    plain = plan(order, **variant)
    unique = plan(order, **variant, texts=texts)
    assert unique.lengths == plain.lengths
    rows_of_epoch: dict[int, list[list[int]]] = {}
    for step, (before, after) in enumerate(zip(rows_by_step(plain), rows_by_step(unique), strict=True)):
        assert len(after) == len(before) and len(set(after)) == len(after)
        assert max(ranks[after]) < limit(size, step, plain, variant)
        epochs = rows_of_epoch.setdefault(plain.at(step).epoch, [[], []])
        epochs[0] += before
        epochs[1] += after
    assert all(sorted(before) == sorted(after) for before, after in rows_of_epoch.values())
    backwards = plan(order, **variant, texts=texts)
    again = [backwards.at(step).rows.tolist() for step in reversed(range(backwards.total))]
    assert again[::-1] == rows_by_step(unique), "a function of seed and epoch, as a resumed run needs"


@pytest.mark.parametrize("pace_by", ["epoch", "step"])
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_no_text_is_its_own_negative(columns: int, pace_by: str) -> None:
    """Of 300 rows some share a text: batches of 32 have repeats, of which none is left."""
    options = {"epochs": 3, "batch_size": 32, "seed": 5, "pacing_exponent": 0.5, "pace_by": pace_by}
    texts = np.random.default_rng(1).integers(0, 600 * columns, (300, columns))
    before = [clashes(rows, texts) for rows in rows_by_step(plan(np.arange(300), **options))]
    after = [clashes(rows, texts) for rows in rows_by_step(plan(np.arange(300), **options, texts=texts))]
    assert sum(before) > 10 and sum(after) == 0


def test_texts_of_many_rows_stay() -> None:
    """A text in 7 rows cannot be apart in 5 batches; the texts 1 to 5, of two rows each, are."""
    numbers = np.array([0] * 7 + [1, 2, 3, 4, 5] * 2)
    for seed in range(20):
        options = {"epochs": 1, "batch_size": 4, "seed": seed, "pacing_exponent": 0.0}
        rows = rows_by_step(plan(np.arange(17), **options, texts=numbers[:, None]))
        assert sorted(row for batch in rows for row in batch) == list(range(17))
        for batch in rows:
            others = [number for number in numbers[batch] if number]
            assert len(set(others)) == len(others)


def test_mix_counts_rows_of_epochs() -> None:
    groups = np.array([0] * 20 + [1] * 12 + [2] * 8)
    schedule = plan(np.arange(40), epochs=4, batch_size=3, seed=2, pacing_exponent=1.0)
    shares = Paced(schedule, 40, groups).mix
    assert shares.tolist() == pytest.approx(np.array([[1, 0, 0], [1, 0, 0], [20 / 30, 10 / 30, 0], [0.5, 0.3, 0.2]]))


def random_similarities(count: int) -> Similarities:
    positive, negative = np.random.default_rng(4).uniform(-1, 1, (2, count)).astype(np.float32)
    return Similarities(positive, negative)


@pytest.mark.parametrize("difficulty_by", ["groups", "entailment", "contradiction"])
@pytest.mark.parametrize("order", ["curriculum", "anti"])
def test_easy_triplets_come_first(difficulty_by: str, order: str) -> None:
    """By the margin's groups, by the cosine of the entailment, or by that of the contradiction (CBCL, 4.3)."""
    rows = np.arange(0, 75, 3)  # those that a limit has drawn
    similarities = random_similarities(len(rows))
    settings = CurriculumSettings(order=order, difficulty=difficulty_by, margin=0.5)  # type: ignore[arg-type]
    ordered, groups = sort(settings, rows, similarities, None, seed=2)
    assert sorted(ordered) == rows.tolist()
    gap = similarities.positive.astype(float) - similarities.negative
    hardness = {
        "groups": np.select([gap > 0.5, gap > 0], [0, 1], 2),
        "entailment": -similarities.positive,
        "contradiction": similarities.negative,
    }[difficulty_by]
    hardness_in_order = hardness[ordered // 3]
    if order == "anti":
        hardness_in_order = hardness_in_order[::-1]
    assert (np.diff(hardness_in_order) >= 0).all() and hardness_in_order[0] < hardness_in_order[-1]
    assert groups is not None and groups[rows].tolist() == difficulty(*vars(similarities).values(), 0.5).tolist()

    paced = pace(settings, TrainingSettings(epochs=3, batch_size=4, seed=2), ordered, groups)
    counts = paced.manifest_entry()
    sizes = [int((groups == group).sum()) for group in range(3)]
    assert [counts["easy"], counts["semi-hard"], counts["hard"]] == sizes and sum(sizes) == paced.row_count == 25


def test_random_order_keeps_the_pacing() -> None:
    rows = np.arange(24)
    training = TrainingSettings(epochs=3, batch_size=4, seed=2)
    settings = CurriculumSettings(order="random", pacing_exponent=1.0)
    ordered, groups = sort(settings, rows, None, None, seed=2)
    assert groups is None and ordered.tolist() != rows.tolist()
    assert sort(settings, rows, None, None, seed=3)[0].tolist() != ordered.tolist()
    assert pace(settings, training, ordered, groups).plan.lengths == [2, 4, 6]
    assert pace(settings, training, ordered, groups).manifest_entry() is None


def test_no_curriculum_takes_all_rows() -> None:
    rows = np.arange(24)
    settings = CurriculumSettings(order="none", pacing_exponent=1.0)
    ordered, groups = sort(settings, rows, None, None, seed=2)
    assert ordered.tolist() == rows.tolist() and groups is None
    paced = pace(settings, TrainingSettings(epochs=3, batch_size=4), ordered, groups)
    assert paced.plan.lengths == [6, 6, 6]


@pytest.mark.parametrize("order", ["curriculum", "anti"])
def test_losses_of_a_task_give_order(order: str) -> None:
    rows = np.arange(0, 75, 3)
    losses = np.random.default_rng(4).uniform(0, 50, len(rows))
    settings = CurriculumSettings(order=order, difficulty="task")  # type: ignore[arg-type]
    ordered, groups = sort(settings, rows, None, losses, seed=2)
    expected = rows[np.argsort(losses)]
    assert ordered.tolist() == (expected if order == "curriculum" else expected[::-1]).tolist()
    assert groups is None
