"""Plans: the examples of every training step, as pure functions of (sizes, seed, epoch)."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from minbert.errors import format_count
from minbert.seeds import numpy_generator
from minbert.train import distributed


@dataclass(frozen=True)
class PlannedBatch:
    """One update: a task's name and the row numbers of its examples."""

    task: str
    rows: np.ndarray
    epoch: int
    step: int = 0  # in the run, from 0
    task_index: int = 0  # index among the steps of the same task in the epoch


@dataclass
class Plan:
    """All steps of a run. Epoch e has `lengths[e]` steps; `build(e)` returns their tasks and rows."""

    lengths: Sequence[int]
    build: Callable[[int], list[tuple[str, np.ndarray]]]
    # the epoch that was asked for last, and its batches
    _epoch: int = field(default=-1, repr=False)
    _batches: list[PlannedBatch] = field(default_factory=list, repr=False)

    @cached_property
    def ends(self) -> list[int]:
        """Total number of steps at the end of each epoch."""
        return list(accumulate(self.lengths))

    @cached_property
    def total(self) -> int:
        """Number of steps of the run."""
        return sum(self.lengths)

    def epoch_of(self, step: int) -> int:
        """The epoch, from 0, of step `step` of 0..total-1."""
        return bisect_right(self.ends, step)

    def at(self, step: int) -> PlannedBatch:
        """The batch of step `step` of 0..total-1."""
        epoch = self.epoch_of(step)
        first = self.ends[epoch] - self.lengths[epoch]
        # built once an epoch: all its steps follow each other
        if epoch != self._epoch:
            built = self.build(epoch)
            assert len(built) == self.lengths[epoch], "a plan's lengths must be those of its epochs"
            steps_of_task = Counter[str]()
            self._batches = []
            for number, (task, rows) in enumerate(built, start=first):
                self._batches.append(PlannedBatch(task, rows, epoch, number, steps_of_task[task]))
                steps_of_task[task] += 1
            self._epoch = epoch
        return self._batches[step - first]


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
    """Ascending row numbers: a random subset of `limit` of `count` rows (0: all); int64 [rows].

    A smaller subset is part of a larger one with the same seed and counter.
    """
    if not 0 < limit < count:
        return np.arange(count)
    return np.sort(numpy_generator(seed, *counter).permutation(count)[:limit])


def first_steps(plan: Plan, steps: int) -> Plan:
    """The first `steps` steps of `plan`, or all for 0: the value of `--max-steps`. Warns if the plan has fewer."""
    if steps > plan.total:
        distributed.note(f"--max-steps {steps:,}: the run has only {format_count(plan.total, 'steps')}")
    if not 0 < steps < plan.total:
        return plan
    last_epoch = plan.epoch_of(steps - 1)
    whole_epochs = list(plan.lengths[:last_epoch])
    lengths = [*whole_epochs, steps - sum(whole_epochs)]
    return Plan(lengths, lambda epoch: plan.build(epoch)[: lengths[epoch]])


def manifest_entry(plan: Plan) -> dict[str, Any]:
    """Number of epochs, of steps, and of steps per epoch, for the manifest."""
    return {"epochs": len(plan.lengths), "steps": plan.total, "steps_per_epoch": list(plan.lengths)}
