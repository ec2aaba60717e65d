"""The curriculum: difficulty of triplets, pacing, and the plan they make. Pure NumPy."""

import math

import numpy as np

from minbert.errors import UserError
from minbert.seeds import numpy_generator
from minbert.training.plan import Plan, batch_count, batches, shuffled

GROUPS = ("easy", "semi-hard", "hard")


def difficulty(pos_sim: np.ndarray, neg_sim: np.ndarray, margin: float) -> np.ndarray:
    """0 easy, 1 semi-hard, 2 hard for each triplet (CBCL, section 4.3.1; SelfCCL, section 4.2).

    With gap = cos(anchor, positive) - cos(anchor, negative): easy where gap > margin, semi-hard where
    0 < gap <= margin, hard where gap <= 0. The papers leave the ties open.
    """
    gap = np.asarray(pos_sim, dtype=np.float64) - np.asarray(neg_sim, dtype=np.float64)
    if not np.isfinite(gap).all():
        raise UserError("a triplet's similarity is not finite")
    return np.where(gap > margin, 0, np.where(gap > 0, 1, 2))


def eligible(epoch: int, epochs: int, size: int, power: float) -> int:
    """How many of `size` triplets epoch 1..epochs may draw on: floor((epoch / epochs)^power * size).

    CBCL, equation 2. Power 0.5 is the root, 1 the linear and 2 the quadratic pacing; the last epoch sees everything.
    """
    if not 1 <= epoch <= epochs:
        raise UserError(f"epoch {epoch} is not in 1..{epochs}")
    return math.floor((epoch / epochs) ** power * size + 1e-9)  # the summand undoes rounding just below a whole number


def by_difficulty(groups: np.ndarray, seed: int) -> np.ndarray:
    """All triplets, easy ones first; inside a group a fixed order by seed."""
    ties = numpy_generator(seed, "curriculum").permutation(len(groups))
    return ties[np.argsort(groups[ties], kind="stable")]


def plan(order: np.ndarray, *, epochs: int, batch_size: int, seed: int, power: float) -> Plan:
    """Each epoch goes once, shuffled, through the eligible prefix of `order`; through one batch at least.

    Power 0 makes everything eligible from the first epoch: plain contrastive training.
    """
    sizes = [
        max(eligible(epoch, epochs, len(order), power), min(batch_size, len(order))) for epoch in range(1, epochs + 1)
    ]

    def build(epoch: int) -> list[tuple[str, np.ndarray]]:
        prefix = order[: sizes[epoch]]
        return [("nli", rows) for rows in batches(prefix[shuffled(len(prefix), seed, "nli", epoch)], batch_size)]

    return Plan([batch_count(size, batch_size) for size in sizes], build)
