"""Plans: which examples make each step, as pure functions of (sizes, seed, epoch) that tests can print."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import Any

import numpy as np

from minbert.seeds import numpy_generator


@dataclass(frozen=True)
class Step:
    """One update: a task's name and the examples it is made on, by their row numbers."""

    task: str
    rows: np.ndarray
    epoch: int
    index: int  # its place in the epoch
    number: int = 0  # its place in the run
    turn: int = 0  # its place among the steps of its task in the epoch


@dataclass
class Plan:
    """All steps of a run. `lengths[e]` is the number of steps of epoch e, which `build(e)` lists."""

    lengths: Sequence[int]
    build: Callable[[int], list[tuple[str, np.ndarray]]]
    _epoch: int = field(default=-1, repr=False)
    _steps: list[tuple[str, np.ndarray]] = field(default_factory=list, repr=False)
    _turns: list[int] = field(default_factory=list, repr=False)

    @property
    def ends(self) -> list[int]:
        """How many steps have been made at the end of each epoch."""
        return list(accumulate(self.lengths))

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return sum(self.lengths)

    def at(self, step: int) -> Step:
        """Step number `step` of 0..total-1."""
        epoch = bisect_right(self.ends, step)
        if epoch != self._epoch:
            self._epoch, self._steps = epoch, self.build(epoch)
            assert len(self._steps) == self.lengths[epoch], "a plan's lengths must be those of its epochs"
            counts: dict[str, count[int]] = defaultdict(count)
            self._turns = [next(counts[task]) for task, _ in self._steps]
        index = step - (self.ends[epoch] - self.lengths[epoch])
        task, rows = self._steps[index]
        return Step(task, rows, epoch, index, step, self._turns[index])


def shuffled(size: int, seed: int, *counter: int | str) -> np.ndarray:
    """A permutation of 0..size-1 that belongs to one counter."""
    return numpy_generator(seed, "order", *counter).permutation(size)


def batches(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive batches of `size` rows; the last one may be smaller."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def batch_count(rows: int, size: int) -> int:
    """How many batches `batches` makes."""
    return -(-rows // size)


def drawn(count: int, limit: int, seed: int, *counter: int | str) -> np.ndarray:
    """The rows to train on, rising: all of `count`, or `limit` of them by seed (0: all); int64 [rows]."""
    if not 0 < limit < count:
        return np.arange(count)
    return np.sort(numpy_generator(seed, "limit", *counter).permutation(count)[:limit])


def among(plan: Plan, rows: Mapping[str, np.ndarray]) -> Plan:
    """The same steps over chosen rows: place i in a task's data is its row `rows[task][i]`."""
    return Plan(plan.lengths, lambda epoch: [(task, rows[task][places]) for task, places in plan.build(epoch)])


def first(plan: Plan, steps: int) -> Plan:
    """The first `steps` steps of a plan as a plan of their own (0: all of them)."""
    if not 0 < steps < plan.total:
        return plan
    whole = bisect_right(plan.ends, steps - 1)
    lengths = [*plan.lengths[:whole], steps - sum(plan.lengths[:whole])]
    return Plan(lengths, lambda epoch: plan.build(epoch)[: lengths[epoch]])


def describe(plan: Plan) -> dict[str, Any]:
    """A plan in numbers, for the manifest."""
    return {"epochs": len(plan.lengths), "steps": plan.total, "steps_per_epoch": list(plan.lengths)}
