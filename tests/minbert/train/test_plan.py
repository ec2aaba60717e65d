"""Guards: subsets and parts of a plan keep its rows and their order. `tests/tasks/test_sampling.py` has mixtures.

python -m pytest --import-mode=importlib tests/minbert/train/test_plan.py
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.train.plan import Plan, batch_count, batches, first_steps, random_subset, shuffled

sizes = st.integers(1, 60)
batch_sizes = st.integers(1, 9)
seeds = st.integers(0, 2**31)


def make(size: int, batch: int, seed: int) -> Plan:
    """Two epochs over the rows of one task."""

    def build(epoch: int) -> list[tuple[str, np.ndarray]]:
        return [("sst", rows) for rows in batches(shuffled(size, seed, epoch), batch)]

    return Plan([batch_count(size, batch)] * 2, build)


def as_lists(plan: Plan) -> list[tuple[list[int], int, int]]:
    planned = [plan.at(step) for step in range(plan.total)]
    return [(batch.rows.tolist(), batch.epoch, batch.step) for batch in planned]


@given(st.integers(1, 50), st.integers(1, 60), seeds)
def test_smaller_limit_draws_a_subset(count: int, limit: int, seed: int) -> None:
    chosen = random_subset(count, limit, seed, "sst").tolist()
    larger = random_subset(count, limit + 1, seed, "sst").tolist()
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(limit, count)
    assert set(chosen) <= set(larger) <= set(range(count))
    assert random_subset(count, 0, seed, "sst").tolist() == list(range(count)), "0 is no limit"


@given(seeds)
def test_tasks_and_seeds_have_own_subsets(seed: int) -> None:
    subset = random_subset(1000, 9, seed, "sst").tolist()
    assert subset != random_subset(1000, 9, seed, "sts").tolist()
    assert subset != random_subset(1000, 9, seed + 1, "sst").tolist()


@given(st.data(), sizes, batch_sizes, seeds)
def test_first_steps_are_a_prefix(data: st.DataObject, size: int, batch: int, seed: int) -> None:
    whole = make(size, batch, seed)
    count = data.draw(st.integers(0, whole.total + 2))
    short = first_steps(whole, count)
    total = min(count, whole.total) if count else whole.total
    assert short.total == short.ends[-1] == total
    assert as_lists(short) == as_lists(whole)[: short.total]


def test_fewer_steps_than_asked_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    whole = Plan([2], lambda epoch: [("nli", np.arange(3))] * 2)
    assert first_steps(whole, 5) is whole
    assert "note: --max-steps 5: the run has only 2 steps" in capsys.readouterr().err
