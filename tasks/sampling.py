"""Task sampling: the order of batches over several data sets (CBCL, section 4.2.4)."""

from collections.abc import Mapping
from itertools import product

import numpy as np

from minbert.seeds import numpy_generator
from minbert.train.plan import Plan, batch_count, batches, shuffled

Steps = list[tuple[str, np.ndarray]]


def plan(
    sampling: str, sizes: Mapping[str, int], *, epochs: int, batch_size: int, seed: int, power: float = 0.5
) -> Plan:
    """The plan of a run over data sets of the given sizes (task -> rows); `sizes` is in the order of the round.

    `sampling` is one of the values of `--sampling`.
    """
    counts = {task: batch_count(size, batch_size) for task, size in sizes.items()}

    def stream(task: str, epoch: int, quota: int) -> Steps:
        """`quota` batches of a task: as many passes as needed, each reshuffled, the last one cut short."""
        steps: Steps = []
        passes = 0
        while len(steps) < quota:
            order = shuffled(sizes[task], seed, task, epoch, passes)
            steps += [(task, batch) for batch in batches(order, batch_size)]
            passes += 1
        return steps[:quota]

    if sampling == "sequential":
        # all epochs of a task, then all epochs of the next one
        parts = [*product(sizes, range(epochs))]
        lengths = [counts[task] for task, _ in parts]
        return Plan(lengths, lambda part: stream(*parts[part], lengths[part]))
    quotas = _quotas(sampling, counts, power)

    def build(epoch: int) -> Steps:
        streams = {task: stream(task, epoch, quota) for task, quota in quotas.items()}
        if sampling == "proportional":
            return _spread(streams, numpy_generator(seed, "mixture", epoch))
        steps: Steps = []
        for index in range(max(quotas.values())):
            # one batch of each task in turn; with `hybrid` a set that is used up has none
            steps += [streams[task][index] for task in sizes if index < quotas[task]]
        return steps

    return Plan([sum(quotas.values())] * epochs, build)


def _quotas(sampling: str, counts: Mapping[str, int], power: float) -> dict[str, int]:
    """Number of batches of each task per epoch. The largest set is used exactly once per epoch."""
    largest = max(counts.values())
    if sampling == "round-robin":  # small sets restart until the largest set is used up
        return dict.fromkeys(counts, largest)
    if sampling == "hybrid":  # a set is dropped when it is used up
        return dict(counts)
    # proportional: each task in proportion to a power of its size
    quotas = {}
    for task, count in counts.items():
        quotas[task] = max(1, round(largest * (count / largest) ** power))
    return quotas


def _spread(streams: Mapping[str, Steps], generator: np.random.Generator) -> Steps:
    """Merge the streams in a random order of tasks; within a stream the order is kept."""
    names: list[str] = []
    for task, steps in streams.items():
        names += [task] * len(steps)
    remaining = {task: iter(steps) for task, steps in streams.items()}
    return [next(remaining[names[index]]) for index in generator.permutation(len(names))]
