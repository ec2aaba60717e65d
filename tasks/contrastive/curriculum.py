"""The curriculum: the difficulty of triplets, their order, the pacing, and the plan of steps that these make.

Axes: N triplets, n of them trained on.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minbert.errors import UserError
from minbert.seeds import numpy_generator
from minbert.train.plan import Plan, batch_count, first_steps, shuffled
from minbert.train.settings import TrainingSettings, flag, require_range
from tasks.contrastive.settings import TASK
from tasks.contrastive.unique_batches import separate_repeats

GROUPS = ("easy", "semi-hard", "hard")
COSINES = ("positive", "negative")
"""The scores that order triplets: the cosine of the anchor with its positive, and that with its hard negative."""
TASK_LOSS = "task loss"
"""The score that orders triplets with `--difficulty task`: the loss of a similarity head."""


@dataclass(frozen=True)
class CurriculumSettings:
    """The curriculum: order and pacing of the triplets."""

    order: Literal["curriculum", "anti", "random", "none"] = flag(
        "curriculum",
        "curriculum = easy first; anti = hard first; random = random order, same pacing; none = all from the start",
    )
    difficulty: Literal["groups", "entailment", "contradiction", "task"] = flag(
        "groups",
        "what makes a triplet hard: groups by margin; cosine of the entailment; of the contradiction; the loss of a "
        "similarity head (--difficulty-run)",
        aliases=["--technique"],
    )
    margin: float = flag(0.2, "margin between easy and semi-hard triplets")
    pacing_exponent: float = flag(
        0.5,
        "pacing: (t/T)^X of the triplets are eligible (0.5 root, 1 linear, 2 quadratic)",
        aliases=["--power"],
        metavar="X",
    )
    pace_by: Literal["epoch", "step"] = flag("epoch", "unit of t in the pacing", aliases=["--pacing"])
    order_within: Literal["shuffled", "sorted"] = flag(
        "shuffled", "order of the eligible triplets", aliases=["--within"]
    )
    equal_steps: bool = flag(False, "as many updates as without a curriculum: the eligible triplets are cycled")

    def __post_init__(self) -> None:
        require_range(self, "margin", 0)
        require_range(self, "pacing_exponent", 0)

    @property
    def by_difficulty(self) -> bool:
        """Whether triplets are put in order by their difficulty."""
        return self.order in ("curriculum", "anti")

    @property
    def score_names(self) -> tuple[str, ...]:
        """The scores that an order by difficulty needs."""
        return (TASK_LOSS,) if self.difficulty == "task" else COSINES


def difficulty(pos_sim: np.ndarray, neg_sim: np.ndarray, margin: float) -> np.ndarray:
    """0 easy, 1 semi-hard, 2 hard for each triplet (CBCL, section 4.3; SelfCCL, section 4.3.1).

    With gap = cos(anchor, positive) - cos(anchor, negative): easy where gap > margin, semi-hard where
    0 < gap <= margin, hard where gap <= 0. The papers do not define ties. Raises `UserError` if a cosine is not finite.
    """
    assert np.shape(pos_sim) == np.shape(neg_sim), "one cosine of each kind for every triplet"
    gap = np.asarray(pos_sim, dtype=np.float64) - np.asarray(neg_sim, dtype=np.float64)
    if not np.isfinite(gap).all():
        raise UserError("a triplet's similarity is not finite")
    return np.select([gap > margin, gap > 0], [0, 1], default=2)


def arrange(values: np.ndarray, seed: int, direction: str = "curriculum") -> np.ndarray:
    """All triplets in training order: int64 [N]; among equal `values` a fixed order by seed.

    `curriculum` puts low values first, `anti` high ones.
    """
    ties = numpy_generator(seed, "curriculum").permutation(len(values))
    keys = np.asarray(values)[ties]
    if direction == "anti":
        keys = -keys
    return ties[np.argsort(keys, kind="stable")]


def eligible(epoch: int, epochs: int, size: int, power: float) -> int:
    """How many of `size` triplets epoch 1..epochs may draw on: floor((epoch / epochs)^power * size).

    CBCL, equation 2. Power 0.5 is the root, 1 the linear and 2 the quadratic pacing; the last epoch sees everything.
    """
    return math.floor((epoch / epochs) ** power * size + 1e-9)  # the summand undoes rounding just below a whole number


def pace(
    settings: CurriculumSettings,
    training: TrainingSettings,
    order: np.ndarray,
    texts: np.ndarray | None = None,
) -> Plan:
    """The steps over the eligible prefix of `order`, which is at least one batch; without a curriculum over all of it.

    Steps. Epoch t trains on the first n_t = max(eligible(t), one batch) rows, once each; with `equal_steps` it takes
    the steps and batch sizes of a run without a curriculum. Pacing per step makes as many steps, of the same sizes, as
    pacing per epoch.

    Prefix. Pacing by `epoch`: n_t (CBCL, equation 2). By `step`: step s of all S may draw on floor((s/S)^power * N)
    (SelfCCL, section 4.3.2, where T counts steps).

    Batches, a function of (seed, epoch) alone: `_shuffled_batches` or `_sorted_batches`. With pacing by step, a row
    near the end of the order may never be drawn. With `texts` [rows of the file, k], the numbers of each row's k
    sentences, the rows of an epoch are exchanged between its batches by `separate_repeats`.
    """
    size = len(order)
    epochs = training.epochs
    batch_size = training.batch_size
    # with 0 everything is eligible from the start
    exponent = 0.0 if settings.order == "none" else settings.pacing_exponent

    def prefix(time: int, end: int) -> int:
        """The number of rows eligible in epoch `time` of `end`, or in step `time` of `end`."""
        return max(eligible(time, end, size, exponent), min(batch_size, size))

    prefixes = [prefix(epoch, epochs) for epoch in range(1, epochs + 1)]
    rows_per_epoch = [size] * epochs if settings.equal_steps else prefixes
    steps_per_epoch = [batch_count(rows, batch_size) for rows in rows_per_epoch]

    def build(epoch: int) -> list[tuple[str, np.ndarray]]:
        rows = rows_per_epoch[epoch]
        sizes = [min(batch_size, rows - begin) for begin in range(0, rows, batch_size)]
        # the eligible prefix at each step
        limits = [prefixes[epoch]] * len(sizes)
        if settings.pace_by == "step":
            first = sum(steps_per_epoch[:epoch]) + 1
            limits = [prefix(first + step, sum(steps_per_epoch)) for step in range(len(sizes))]

        def shuffle(number: int) -> np.ndarray:
            """The positions below the epoch's largest prefix, in the random order of pass `number`."""
            # pass 0 has no number in its key: with one, the order of every run would be another
            counter = [number] if number else []
            return shuffled(limits[-1], training.seed, TASK, epoch, *counter)

        if settings.order_within == "sorted":
            positions = _sorted_batches(limits, sizes)
        else:
            positions = _shuffled_batches(limits, sizes, shuffle)
        if texts is not None:
            positions = separate_repeats(positions, limits, texts[order])
        return [(TASK, order[batch]) for batch in positions]

    return first_steps(Plan(steps_per_epoch, build), training.max_steps)


def _shuffled_batches(
    limits: Sequence[int], sizes: Sequence[int], shuffle: Callable[[int], np.ndarray]
) -> list[np.ndarray]:
    """Batches of passes 0, 1, ..., each in the order that `shuffle(pass)` gives.

    A step takes the next rows that are eligible by then. So no row is drawn twice in a pass, and while the prefix does
    not grow every row is equally likely at every step, and drawn once. No batch holds a row twice: one
    that ends a pass is filled up with other rows of the next.
    """
    batches = []
    passes = 0
    undrawn = np.empty(0, dtype=np.int64)  # rows of the current pass that no batch has had
    for limit, size in zip(limits, sizes, strict=True):
        batch, undrawn = _take_eligible(undrawn, limit, size)
        if len(batch) < size:
            # the pass is used up: fill the batch from the next one, whose rows that are in the batch already come later
            following = shuffle(passes)
            passes += 1
            repeated = np.isin(following, batch)
            filling, undrawn = _take_eligible(following[~repeated], limit, size - len(batch))
            batch = np.concatenate([batch, filling])
            undrawn = np.concatenate([following[repeated], undrawn])
        batches.append(batch)
    return batches


def _take_eligible(undrawn: np.ndarray, limit: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `size` entries of `undrawn` below `limit` (fewer if there are fewer), and those that come after them.

    Entries that are passed over, not eligible yet, are not kept: a later pass has them.
    """
    # Eligible rows are mostly near the front: a window that doubles keeps a step from looking at every row.
    window = size
    indices = np.flatnonzero(undrawn[:window] < limit)
    while len(indices) < size and window < len(undrawn):
        window *= 2
        indices = np.flatnonzero(undrawn[:window] < limit)
    end = indices[size - 1] + 1 if len(indices) >= size else len(undrawn)
    return undrawn[indices[:size]], undrawn[end:]


def _sorted_batches(limits: Sequence[int], sizes: Sequence[int]) -> list[np.ndarray]:
    """Batches in order; where the current prefix ends they start again at the first row."""
    batches = []
    start = 0
    for limit, size in zip(limits, sizes, strict=True):
        batches.append((start + np.arange(size)) % limit)
        # in 1..limit: a batch that ends exactly at the prefix's end continues with the rows by which the prefix grows
        start = (start + size - 1) % limit + 1
    return batches


def count_groups(groups: np.ndarray | None, steps: Plan) -> dict[str, Any] | None:
    """The size of each group of `sort`, and its share of each epoch's rows (`mix_per_epoch`); None without groups."""
    if groups is None:
        return None
    mix = []
    for epoch in range(len(steps.lengths)):
        rows = np.concatenate([batch for _, batch in steps.build(epoch)])
        counts = np.bincount(groups[rows], minlength=len(GROUPS))
        mix.append((counts / len(rows)).round(4).tolist())
    sizes = {name: int((groups == group).sum()) for group, name in enumerate(GROUPS)}
    return {**sizes, "mix_per_epoch": mix}


def sort(
    settings: CurriculumSettings, count: int, scores: Mapping[str, np.ndarray], seed: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """The rows of N = `count` triplets in training order, and the group of each by the margin (CBCL, section 4.3).

    `scores` has float64 [N] for each of `settings.score_names`: none for the orders `none` and `random`. The order is
    int64 [N], without a curriculum that of the file. Groups are int64 [N]: 0 easy, 1 semi-hard, 2 hard; None without
    cosines. The easiest triplets are those of the easy group, or of the largest cosine of the entailment, of the
    smallest cosine of the contradiction, or of the smallest loss.
    """
    if settings.order == "none":
        return np.arange(count), None
    if settings.order == "random":
        # by the seed alone (SelfCCL, section 3.2)
        return numpy_generator(seed, "curriculum", "random").permutation(count), None
    if settings.difficulty == "task":
        return arrange(scores[TASK_LOSS], seed, settings.order), None
    positive, negative = (scores[name] for name in COSINES)
    groups = difficulty(positive, negative, settings.margin)
    difficulties = {"groups": groups, "entailment": -positive, "contradiction": negative}
    return arrange(difficulties[settings.difficulty], seed, settings.order), groups


def shuffled_plan(count: int, training: TrainingSettings, texts: np.ndarray | None = None) -> Plan:
    """The steps over `count` rows, shuffled in each epoch: the plan of commands without a curriculum."""
    return pace(CurriculumSettings(order="none"), training, np.arange(count), texts)
