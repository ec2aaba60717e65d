"""The curriculum: the difficulty of triplets, their order, the pacing, and the plan of steps that these make.

Axes: N triplets, n of them trained on. Importing this module loads no torch.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from minbert.errors import UserError
from minbert.seeds import numpy_generator
from minbert.train.plan import Plan, batch_count, shuffled
from minbert.train.settings import SettingsGroup, TrainingSettings, flag

GROUPS = ("easy", "semi-hard", "hard")


class CurriculumSettings(SettingsGroup):
    """The curriculum: order and pacing of the triplets."""

    order: Literal["curriculum", "anti", "random", "none"] = flag(
        "curriculum",
        "curriculum = easy first; anti = hard first; random = random order, same pacing; none = all from the start",
        common=True,
    )
    technique: Literal["groups", "entailment", "contradiction"] = flag(
        "groups", "what makes a triplet hard: groups by margin; cosine of the entailment; of the contradiction"
    )
    margin: float = flag(0.2, "margin between easy and semi-hard triplets", ge=0, common=True)
    power: float = flag(
        0.5, "pacing: (t/T)^power of the triplets are eligible (0.5 root, 1 linear, 2 quadratic)", ge=0, common=True
    )
    pacing: Literal["epoch", "step"] = flag("epoch", "unit of t in the pacing")
    within: Literal["shuffled", "sorted"] = flag("shuffled", "order of the eligible triplets")
    equal_steps: bool = flag(False, "as many updates as without a curriculum: the eligible triplets are cycled")

    @property
    def by_cosine(self) -> bool:
        """Whether triplets are put in order by an encoder's cosines."""
        return self.order in ("curriculum", "anti")


@dataclass(frozen=True)
class Similarities:
    """cos(anchor, positive) and cos(anchor, hard negative) of each triplet: float32 [N] each."""

    positive: np.ndarray
    negative: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        """positive - negative: float64 [N]."""
        return self.positive.astype(np.float64) - self.negative.astype(np.float64)


def difficulty(pos_sim: np.ndarray, neg_sim: np.ndarray, margin: float) -> np.ndarray:
    """0 easy, 1 semi-hard, 2 hard for each triplet (CBCL, section 4.3; SelfCCL, section 4.3.1).

    With gap = cos(anchor, positive) - cos(anchor, negative): easy where gap > margin, semi-hard where
    0 < gap <= margin, hard where gap <= 0. The papers do not define ties. `UserError` for shapes that differ and for
    a cosine that is not finite.
    """
    positive, negative = (np.asarray(cosines, dtype=np.float64) for cosines in (pos_sim, neg_sim))
    if positive.shape != negative.shape:
        raise UserError(f"pos_sim and neg_sim must have one shape, not {positive.shape} and {negative.shape}")
    gap = positive - negative
    if not np.isfinite(gap).all():
        raise UserError("a triplet's similarity is not finite")
    return np.where(gap > margin, 0, np.where(gap > 0, 1, 2))


def arrange(values: np.ndarray, seed: int, direction: str = "curriculum") -> np.ndarray:
    """All triplets in training order: int64 [N]; among equal `values` a fixed order by seed.

    `curriculum` puts low values first, `anti` high ones; `random` depends on the seed alone (SelfCCL, section 3.2).
    """
    if direction == "random":
        return numpy_generator(seed, "curriculum", "random").permutation(len(values))
    ties = numpy_generator(seed, "curriculum").permutation(len(values))
    keys = np.asarray(values)[ties]
    return ties[np.argsort(-keys if direction == "anti" else keys, kind="stable")]


def eligible(epoch: int, epochs: int, size: int, power: float) -> int:
    """How many of `size` triplets epoch 1..epochs may draw on: floor((epoch / epochs)^power * size).

    CBCL, equation 2. Power 0.5 is the root, 1 the linear and 2 the quadratic pacing; the last epoch sees everything.
    `UserError` for an epoch or a power out of range.
    """
    if not 1 <= epoch <= epochs:
        raise UserError(f"epoch {epoch} is not in 1..{epochs}")
    if not (power >= 0 and math.isfinite(power)):
        raise UserError(f"power: {power} is not a number of 0 or more")
    return math.floor((epoch / epochs) ** power * size + 1e-9)  # the summand undoes rounding just below a whole number


def plan(
    order: np.ndarray,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
    power: float,
    pacing: str = "epoch",
    within: str = "shuffled",
    equal_steps: bool = False,
) -> Plan:
    """The steps over the eligible prefix of `order`, which is at least one batch.

    Steps. Epoch t takes ceil(n_t / batch_size) steps, n_t = eligible(t), so it trains on n_t rows;
    with `equal_steps` every epoch takes the ceil(N / batch_size) steps, and each step the batch size, of a run without
    a curriculum. Pacing per step makes as many steps, of the same sizes, as pacing per epoch.

    Prefix. Pacing `epoch`: n_t (CBCL, equation 2). Pacing `step`: step s of all S may draw on floor((s/S)^power * N)
    (SelfCCL, section 4.3.2, where T counts steps). Power 0 makes everything eligible from the start.

    Batches, a function of (seed, epoch) alone. `shuffled`: passes, each a shuffle of the epoch's largest prefix; a
    step takes the next rows that are eligible by then. So every eligible row is equally likely at every step, no row
    is drawn twice in a pass, and while the prefix does not grow each is drawn once. `sorted`: the prefix in its order,
    from the start of each epoch and again when its end is reached. No batch holds a row twice: one that ends a pass is
    filled up with other rows of the next. With pacing per step, a row near the end of the order may never be drawn.
    """
    size = len(order)
    least = min(batch_size, size)
    prefixes = [max(eligible(epoch, epochs, size, power), least) for epoch in range(1, epochs + 1)]
    rows_per_epoch = [size] * epochs if equal_steps else prefixes
    lengths = [batch_count(rows, batch_size) for rows in rows_per_epoch]

    def limits(epoch: int) -> list[int]:
        if pacing == "epoch":
            return [prefixes[epoch]] * lengths[epoch]
        first, total = sum(lengths[:epoch]) + 1, sum(lengths)
        return [max(eligible(first + i, total, size, power), least) for i in range(lengths[epoch])]

    def build(epoch: int) -> list[tuple[str, np.ndarray]]:
        rows = rows_per_epoch[epoch]
        sizes = [min(batch_size, rows - start) for start in range(0, rows, batch_size)]
        bounds = limits(epoch)
        if within == "sorted":
            return [("nli", order[positions]) for positions in _sorted(bounds, sizes)]

        def shuffle(number: int) -> np.ndarray:
            return shuffled(bounds[-1], seed, "nli", epoch, *([number] if number else []))

        return [("nli", order[positions]) for positions in _passes(bounds, sizes, shuffle)]

    return Plan(lengths, build)


def _passes(limits: Sequence[int], sizes: Sequence[int], shuffle: Callable[[int], np.ndarray]) -> list[np.ndarray]:
    """Batches of passes 0, 1, ..., each in the order that `shuffle(pass)` gives."""
    steps, remaining, passes = [], np.empty(0, dtype=np.int64), 0  # `remaining` of this pass, not drawn yet
    for limit, size in zip(limits, sizes, strict=True):
        batch, remaining = _next(remaining, limit, size)
        if len(batch) < size:
            fresh, passes = shuffle(passes), passes + 1
            held = np.isin(fresh, batch)
            filling, after = _next(fresh[~held], limit, size - len(batch))
            batch, remaining = np.concatenate([batch, filling]), np.concatenate([fresh[held], after])
        steps.append(batch)
    return steps


def _next(remaining: np.ndarray, limit: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `size` entries of `remaining` below `limit` (fewer if there are fewer), and those after them."""
    window, indices = size, np.flatnonzero(remaining[:size] < limit)
    while len(indices) < size and window < len(remaining):  # doubled, so that a step need not look at every row
        window *= 2
        indices = np.flatnonzero(remaining[:window] < limit)
    end = indices[size - 1] + 1 if len(indices) >= size else len(remaining)
    return remaining[indices[:size]], remaining[end:]


def _sorted(limits: Sequence[int], sizes: Sequence[int]) -> list[np.ndarray]:
    """Batches in order; where the current prefix ends they start again at the first row."""
    steps, at = [], 0
    for limit, size in zip(limits, sizes, strict=True):
        steps.append((at + np.arange(size)) % limit)
        at = (at + size - 1) % limit + 1
    return steps


@dataclass(frozen=True)
class ScoredTriplets:
    """The training `rows`, int64 [n], and their cosines under the starting encoder where the order needs them: [n]."""

    rows: np.ndarray
    cosines: Similarities | None = None


@dataclass(frozen=True)
class Paced:
    """The plan over `row_count` rows, and the groups as `sort` gives them."""

    plan: Plan
    row_count: int
    groups: np.ndarray | None = None

    def manifest_entry(self) -> dict[str, Any] | None:
        """For the manifest: how many triplets are in each group, and each epoch's mix of them; None without groups."""
        return None if self.groups is None else self.group_sizes | {"mix_per_epoch": self.mix.round(4).tolist()}

    @property
    def group_sizes(self) -> dict[str, int]:
        """How many of the triplets that are trained on are easy, semi-hard and hard; empty without groups."""
        groups = self.groups
        return {} if groups is None else {name: int((groups == g).sum()) for g, name in enumerate(GROUPS)}

    @cached_property
    def mix(self) -> np.ndarray:
        """Share of each group among an epoch's rows: float64 [epochs, 3], each row's sum 1."""
        assert self.groups is not None
        epochs = range(len(self.plan.lengths))
        rows = [np.concatenate([rows for _, rows in self.plan.build(epoch)]) for epoch in epochs]
        counts = np.array([np.bincount(self.groups[epoch_rows], minlength=len(GROUPS)) for epoch_rows in rows])
        return counts / counts.sum(1, keepdims=True)


def sort(
    settings: CurriculumSettings | None, scored: ScoredTriplets, seed: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """The rows in training order, int64 [n], and the group of each row of the file by the margin (CBCL, section 4.3).

    Groups are int64 [1 + last row trained on]: 0 easy, 1 semi-hard, 2 hard, -1 not trained on. They are None for rows
    without cosines. Without a curriculum the order is that of the file. The easiest triplets are those of the easy
    group, or of the largest cosine of the entailment, or of the smallest cosine of the contradiction.
    """
    rows, cosines = scored.rows, scored.cosines
    if settings is None or settings.order == "none":
        return rows, None
    if cosines is None:
        return rows[arrange(np.zeros(len(rows)), seed, "random")], None
    of_rows = difficulty(cosines.positive, cosines.negative, settings.margin)
    groups = np.full(rows.max() + 1, -1)
    groups[rows] = of_rows
    hardness = {"groups": of_rows, "entailment": -cosines.positive, "contradiction": cosines.negative}
    values = hardness[settings.technique].astype(np.float64)
    return rows[arrange(values, seed, settings.order)], groups


def pace(
    settings: CurriculumSettings | None, training: TrainingSettings, order: np.ndarray, groups: np.ndarray | None
) -> Paced:
    """The steps: more of the order is eligible in each epoch (CBCL, equation 2); without a curriculum all of it is."""
    from minbert.train import start  # late: it imports torch

    curriculum = settings or CurriculumSettings(order="none")
    steps = plan(
        order,
        epochs=training.epochs,
        batch_size=training.batch_size,
        seed=training.seed,
        power=0.0 if curriculum.order == "none" else curriculum.power,
        pacing=curriculum.pacing,
        within=curriculum.within,
        equal_steps=curriculum.equal_steps,
    )
    return Paced(start.shortened(steps, training), len(order), groups)
