"""Guards: the samplings' laws: which task is covered how often, in which turn, the same for the same arguments.

python -m pytest --import-mode=importlib tests/tasks/test_sampling.py
"""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.train.plan import Plan, PlannedBatch, shuffled
from tasks.sampling import plan

SAMPLING = ["round-robin", "hybrid", "sequential", "proportional"]
sizes_of_tasks = st.lists(st.integers(1, 60), min_size=1, max_size=4).map(
    lambda sizes: {f"task{number}": size for number, size in enumerate(sizes)}
)
batch_sizes = st.integers(1, 9)
seeds = st.integers(0, 2**31)


def all_steps(schedule: Plan) -> list[PlannedBatch]:
    return [schedule.at(step) for step in range(schedule.total)]


def steps(schedule: Plan, epoch: int) -> list[PlannedBatch]:
    first = schedule.ends[epoch] - schedule.lengths[epoch]
    return [schedule.at(step) for step in range(first, schedule.ends[epoch])]


def rows(batches: list[PlannedBatch], task: str) -> list[list[int]]:
    return [step.rows.tolist() for step in batches if step.task == task]


def passes(batches: list[list[int]], size: int, batch: int) -> list[list[list[int]]]:
    """The batches of a task, cut where a whole pass must end."""
    per_pass = -(-size // batch)
    return [batches[start : start + per_pass] for start in range(0, len(batches), per_pass)]


def flat(lists: list[list]) -> list:
    return list(chain.from_iterable(lists))


def assert_whole(batches: list[list[int]], size: int, batch: int) -> None:
    """One pass: every row once, full batches but for the last."""
    assert sorted(flat(batches)) == list(range(size))
    assert all(len(rows) == batch for rows in batches[:-1])
    assert 1 <= len(batches[-1]) <= batch


def assert_restarted(batches: list[list[int]], size: int, batch: int) -> None:
    """Whole passes; the last may be cut off, and then repeats nothing."""
    *whole, last = passes(batches, size, batch)
    for single_pass in whole:
        assert_whole(single_pass, size, batch)
    assert len(set(flat(last))) == len(flat(last))


def as_lists(batches: list[PlannedBatch]) -> list[tuple[str, list[int], int, int]]:
    return [(batch.task, batch.rows.tolist(), batch.epoch, batch.step) for batch in batches]


@given(sizes_of_tasks, batch_sizes, seeds)
def test_round_robin_restarts_smaller_sets(sizes: dict[str, int], batch: int, seed: int) -> None:
    batches = steps(plan("round-robin", sizes, epochs=2, batch_size=batch, seed=seed), 1)
    turns = -(-max(sizes.values()) // batch)
    assert [step.task for step in batches] == list(sizes) * turns, "tasks in strict turn"
    for task, size in sizes.items():
        assert_restarted(rows(batches, task), size, batch)
        if size == max(sizes.values()):
            assert_whole(rows(batches, task), size, batch)


@given(sizes_of_tasks, batch_sizes, seeds)
def test_hybrid_drops_finished_sets(sizes: dict[str, int], batch: int, seed: int) -> None:
    batches = steps(plan("hybrid", sizes, epochs=1, batch_size=batch, seed=seed), 0)
    for task, size in sizes.items():
        assert_whole(rows(batches, task), size, batch)
    counts = {task: -(-size // batch) for task, size in sizes.items()}
    tasks = []
    for turn in range(max(counts.values())):
        tasks += [task for task in sizes if counts[task] > turn]
    assert [step.task for step in batches] == tasks


@given(sizes_of_tasks, batch_sizes, seeds, st.integers(1, 3))
def test_sequential_finishes_task_by_task(sizes: dict[str, int], batch: int, seed: int, epochs: int) -> None:
    schedule = plan("sequential", sizes, epochs=epochs, batch_size=batch, seed=seed)
    assert len(schedule.lengths) == epochs * len(sizes)
    for number, (task, size) in enumerate(sizes.items()):
        for epoch in range(epochs):
            batches = steps(schedule, number * epochs + epoch)
            assert {step.task for step in batches} == {task}
            assert_whole(rows(batches, task), size, batch)
            assert flat(rows(batches, task)) == shuffled(size, seed, task, epoch, 0).tolist()


@given(sizes_of_tasks, batch_sizes, seeds, st.floats(0, 1))
def test_proportional_counts_are_exact(sizes: dict[str, int], batch: int, seed: int, power: float) -> None:
    batches = steps(plan("proportional", sizes, epochs=1, batch_size=batch, seed=seed, power=power), 0)
    counts = {task: -(-size // batch) for task, size in sizes.items()}
    most = max(counts.values())
    drawn = Counter(step.task for step in batches)
    for task, size in sizes.items():
        wanted = most * (counts[task] / most) ** power
        assert drawn[task] >= 1 and abs(drawn[task] - wanted) <= 0.5 + 1e-9
        assert_restarted(rows(batches, task), size, batch)
        if counts[task] == most:
            assert_whole(rows(batches, task), size, batch)
    if power == 0:
        assert set(drawn.values()) == {most}
    if power == 1:
        assert drawn == counts


@pytest.mark.parametrize("sampling", SAMPLING)
def test_plan_depends_on_arguments_alone(sampling: str) -> None:
    def make(seed: int = 7, a: int = 30) -> Plan:
        return plan(sampling, {"a": a, "b": 14, "c": 22}, epochs=2, batch_size=4, seed=seed)

    np.random.seed(1)
    first = as_lists(all_steps(make()))
    np.random.seed(2)
    assert as_lists(all_steps(make())) == first
    assert as_lists(all_steps(make(seed=8))) != first
    assert as_lists(all_steps(make(a=31))) != first
    schedule = make()
    backwards = [schedule.at(step) for step in reversed(range(schedule.total))]
    batches = backwards[::-1]
    assert as_lists(batches) == first, "in any order"
    assert [batch.step for batch in batches] == list(range(schedule.total))
    turns: Counter[tuple[str, int]] = Counter()
    for batch in batches:
        assert batch.task_index == turns[batch.task, batch.epoch], "a task's own count of its steps in an epoch"
        turns[batch.task, batch.epoch] += 1


@pytest.mark.parametrize("sampling", SAMPLING)
def test_every_pass_is_shuffled_anew(sampling: str) -> None:
    """In the epochs, and where a smaller set starts again within one."""
    schedule = plan(sampling, {"a": 200, "b": 20}, epochs=2, batch_size=5, seed=3)
    batches = all_steps(schedule)
    for task, size in (("a", 200), ("b", 20)):
        orders = [tuple(flat(single_pass)) for single_pass in passes(rows(batches, task), size, 5)]
        assert len(set(orders)) == len(orders) >= 2
        assert tuple(range(size)) not in orders
