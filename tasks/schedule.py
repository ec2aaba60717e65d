"""Which task comes when: plans over several data sets (CBCL, section 4.2.4)."""

from collections.abc import Mapping
from itertools import chain

import numpy as np

from minbert.errors import one_of
from minbert.seeds import numpy_generator
from minbert.training.plan import Plan, batch_count, batches, shuffled

SAMPLING = ("round-robin", "hybrid", "sequential", "proportional")

Steps = list[tuple[str, np.ndarray]]


def plan(
    sampling: str, sizes: Mapping[str, int], *, epochs: int, batch_size: int, seed: int, power: float = 0.5
) -> Plan:
    """The plan of a run over data sets of the given sizes. `sizes` is in the order of the round.

    Raises `UserError` for a sampling that is none of SAMPLING.
    """
    sampling = one_of(sampling, SAMPLING, "sampling")
    counts = {task: batch_count(size, batch_size) for task, size in sizes.items()}
    if sampling == "sequential":
        order = [task for task in sizes for _ in range(epochs)]
        return Plan(
            [counts[task] for task in order],
            lambda epoch: _pass(order[epoch], sizes[order[epoch]], epoch % epochs, 0, batch_size, seed),
        )
    quotas = _quotas(sampling, counts, power)

    def build(epoch: int) -> Steps:
        streams = {task: _stream(task, sizes[task], epoch, quotas[task], batch_size, seed) for task in sizes}
        if sampling == "proportional":
            return _spread(streams, numpy_generator(seed, "mixture", epoch))
        rounds = range(max(quotas.values()))
        return [streams[task][turn] for turn in rounds for task in sizes if turn < quotas[task]]

    return Plan([sum(quotas.values())] * epochs, build)


def _quotas(sampling: str, counts: Mapping[str, int], power: float) -> dict[str, int]:
    """How many batches of each task an epoch holds. The largest set is seen once in each."""
    most = max(counts.values())
    if sampling == "round-robin":  # small sets restart until the largest is through
        return dict.fromkeys(counts, most)
    if sampling == "hybrid":  # a set that is through drops out
        return dict(counts)
    # proportional: each task in proportion to a power of its size
    return {task: max(1, round(most * (count / most) ** power)) for task, count in counts.items()}


def _pass(task: str, size: int, epoch: int, turn: int, batch_size: int, seed: int) -> Steps:
    """One pass over a task's data, in an order of its own."""
    return [(task, rows) for rows in batches(shuffled(size, seed, task, epoch, turn), batch_size)]


def _stream(task: str, size: int, epoch: int, quota: int, batch_size: int, seed: int) -> Steps:
    """As many batches as the quota asks for: pass after pass, reshuffled each time."""
    passes = -(-quota // batch_count(size, batch_size))
    return list(chain.from_iterable(_pass(task, size, epoch, turn, batch_size, seed) for turn in range(passes)))[:quota]


def _spread(streams: Mapping[str, Steps], generator: np.random.Generator) -> Steps:
    """All streams merged in a random order of tasks, each stream in its own order."""
    names = [task for task, steps in streams.items() for _ in steps]
    left = {task: iter(steps) for task, steps in streams.items()}
    return [next(left[names[place]]) for place in generator.permutation(len(names))]
