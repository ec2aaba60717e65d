"""Plans: the examples of every training step, as pure functions of (sizes, seed, epoch)."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, count
from typing import Any

import numpy as np

from minbert.seeds import numpy_generator


@dataclass(frozen=True)
class PlannedBatch:
    """One update: a task's name and the row numbers of its examples."""

    task: str
    rows: np.ndarray
    epoch: int
    number: int = 0  # of the step in the run
    task_index: int = 0  # index among the steps of the same task in the epoch


@dataclass
class Plan:
    """All steps of a run. Epoch e has `lengths[e]` steps; `build(e)` returns their tasks and rows."""

    lengths: Sequence[int]
    build: Callable[[int], list[tuple[str, np.ndarray]]]
    _latest: tuple[int, list[PlannedBatch]] = field(default=(-1, []), repr=False)  # an epoch and its steps

    @cached_property
    def ends(self) -> list[int]:
        """Total number of steps at the end of each epoch."""
        return list(accumulate(self.lengths))

    @property
    def total(self) -> int:
        """Number of steps of the run."""
        return sum(self.lengths)

    def at(self, step: int) -> PlannedBatch:
        """PlannedBatch number `step` of 0..total-1."""
        epoch = bisect_right(self.ends, step)
        if epoch != self._latest[0]:
            self._latest = epoch, self._steps_of(epoch)
        return self._latest[1][step - self.ends[epoch]]  # an index from the end

    def _steps_of(self, epoch: int) -> list[PlannedBatch]:
        built, counts = self.build(epoch), defaultdict[str, Iterator[int]](count)
        assert len(built) == self.lengths[epoch], "a plan's lengths must be those of its epochs"
        first = self.ends[epoch] - self.lengths[epoch]
        return [PlannedBatch(task, rows, epoch, n, next(counts[task])) for n, (task, rows) in enumerate(built, first)]


def shuffled(size: int, seed: int, *counter: int | str) -> np.ndarray:
    """A permutation of 0..size-1 determined by the seed and the counter: int64 [size]."""
    return numpy_generator(seed, "order", *counter).permutation(size)


def batches(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive batches of `size` rows; the last one may be smaller."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def batch_count(rows: int, size: int) -> int:
    """Number of batches that `batches` returns."""
    return -(-rows // size)


def random_subset(count: int, limit: int, seed: int, *counter: int | str) -> np.ndarray:
    """The rows to train on, ascending: a random subset of `limit` of `count` rows (0: all); int64 [rows]."""
    if not 0 < limit < count:
        return np.arange(count)
    return np.sort(numpy_generator(seed, "limit", *counter).permutation(count)[:limit])


def over_rows(plan: Plan, rows: Mapping[str, np.ndarray]) -> Plan:
    """The plan with its row numbers as indices into chosen rows: row i of a task becomes `rows[task][i]`."""
    return Plan(plan.lengths, lambda epoch: [(task, rows[task][indices]) for task, indices in plan.build(epoch)])


def first_steps(plan: Plan, steps: int) -> Plan:
    """A plan of the first `steps` steps of `plan` (0: all)."""
    if not 0 < steps < plan.total:
        return plan
    epoch = bisect_right(plan.ends, steps - 1)
    lengths = [*plan.lengths[:epoch], steps - sum(plan.lengths[:epoch])]
    return Plan(lengths, lambda epoch: plan.build(epoch)[: lengths[epoch]])


def describe(plan: Plan) -> dict[str, Any]:
    """Number of epochs, of steps, and of steps per epoch, for the manifest."""
    return {"epochs": len(plan.lengths), "steps": plan.total, "steps_per_epoch": list(plan.lengths)}
