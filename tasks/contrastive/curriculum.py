"""The curriculum: difficulty of triplets, pacing, and the plan they make. Pure NumPy.

Axes: N triplets; a position is a place in the order that a technique gives them, easiest first.
"""

import math
import re
from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from minbert.errors import UserError, one_of
from minbert.seeds import numpy_generator
from minbert.training.plan import Plan, batch_count, batches, shuffled

GROUPS = ("easy", "semi-hard", "hard")
TECHNIQUES = ("groups", "entailment", "contradiction", "gap", "length", "rarity")
"""What makes a triplet hard. Length and rarity need no model, the others an encoder's cosines."""
DIRECTIONS = ("curriculum", "anti", "random", "none")
PACINGS = ("epoch", "step")
WITHIN = ("shuffled", "sorted")


def difficulty(pos_sim: np.ndarray, neg_sim: np.ndarray, margin: float) -> np.ndarray:
    """0 easy, 1 semi-hard, 2 hard for each triplet (CBCL, section 4.3; SelfCCL, section 4.3.1).

    With gap = cos(anchor, positive) - cos(anchor, negative): easy where gap > margin, semi-hard where
    0 < gap <= margin, hard where gap <= 0. The papers leave the ties open. `UserError` for shapes that differ and for
    a cosine that is not finite.
    """
    positive, negative = (np.asarray(cosines, dtype=np.float64) for cosines in (pos_sim, neg_sim))
    if positive.shape != negative.shape:
        raise UserError(f"pos_sim and neg_sim must have one shape, not {positive.shape} and {negative.shape}")
    gap = positive - negative
    if not np.isfinite(gap).all():
        raise UserError("a triplet's similarity is not finite")
    return np.where(gap > margin, 0, np.where(gap > 0, 1, 2))


_WORD = re.compile(r"\w+(?:['’]\w+)*")


def rarity(texts: Iterable[Sequence[str]]) -> np.ndarray:
    """Mean of -ln p(word) over all words of a row's texts: float64 [N]; 0 for a row without a word.

    p is a word's share among all words of `texts`, lower-cased (Platanios et al., 2019, section 3.1; they take the
    sum, which mixes rarity with length; the mean leaves length to the technique of that name).
    """
    numbers: dict[str, int] = {}
    words, lengths = array("q"), array("q")
    for row in texts:
        found = _WORD.findall(" ".join(row).lower())
        words.extend(numbers.setdefault(word, len(numbers)) for word in found)
        lengths.append(len(found))
    flat, count = np.frombuffer(words, dtype=np.int64), np.frombuffer(lengths, dtype=np.int64)
    cost = -np.log(np.bincount(flat) / max(len(flat), 1))
    rows = np.repeat(np.arange(len(count)), count)
    return np.bincount(rows, weights=cost[flat], minlength=len(count)) / np.maximum(count, 1)


def hardness(
    technique: str,
    *,
    positive: np.ndarray | None = None,
    negative: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    rarity: np.ndarray | None = None,
) -> np.ndarray:
    """How hard each triplet is by one of TECHNIQUES: float64 [N], the easiest one lowest.

    `positive` and `negative` are cos(anchor, positive) and cos(anchor, hard negative), `groups` as `difficulty` gives
    them. Groups,
    entailment: cosine descending, contradiction: cosine ascending (CBCL, section 4.3); gap: descending; length:
    `lengths` of a row (any unit), short first; rarity: as `rarity` gives it. `UserError` where a score is not finite.
    """
    needed = {
        "groups": (groups,),
        "entailment": (positive,),
        "contradiction": (negative,),
        "gap": (positive, negative),
        "length": (lengths,),
        "rarity": (rarity,),
    }
    technique = one_of(technique, TECHNIQUES, "technique")
    given = [np.asarray(score, dtype=np.float64) for score in needed[technique] if score is not None]
    assert len(given) == len(needed[technique]), f"{technique}: a score is missing"
    if not all(np.isfinite(score).all() for score in given):
        raise UserError(f"technique {technique!r}: a triplet's score is not finite")
    if technique == "gap":
        return given[1] - given[0]
    return -given[0] if technique == "entailment" else given[0]


def arrange(values: np.ndarray, seed: int, direction: str = "curriculum") -> np.ndarray:
    """All triplets in training order: int64 [N]; among equal `values` a fixed order by seed.

    `curriculum` puts low values first, `anti` high ones; `random` asks only the seed; `none` leaves them as they stand
    (SelfCCL, section 3.2, names the first three).
    """
    direction = one_of(direction, DIRECTIONS, "direction")
    if direction == "none":
        return np.arange(len(values))
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
    start: float = 0.0,
    within: str = "shuffled",
    equal_steps: bool = False,
) -> Plan:
    """Steps that draw on the eligible prefix of `order`: one batch at least, at least the share `start` of all.

    Steps. Epoch t takes ceil(n_t / batch_size) steps, n_t = max(eligible(t), start * N), so that its rows number n_t;
    with `equal_steps` every epoch takes the ceil(N / batch_size) steps, and each step the batch size, of a run without
    a curriculum. Pacing per step makes as many steps, of the same sizes, as pacing per epoch.

    Prefix. Pacing `epoch`: n_t (CBCL, equation 2). Pacing `step`: step s of all S may draw on max(floor((s/S)^power
    * N), start * N) (SelfCCL, section 4.3.2, where T counts steps). Power 0 makes everything eligible at once.

    Batches, a function of (seed, epoch) alone. `shuffled`: passes, each a shuffle of the epoch's largest prefix; a
    step takes the next rows that are eligible by then. So every eligible row is equally likely at every step, no row
    comes twice in a pass, and with a prefix that stays each comes once. `sorted`: the prefix in its order, from the
    start of each epoch and again when its end is reached. No batch holds a row twice: one that ends a pass is filled
    up with other rows of the next. A row that is late in a step's pacing may not come before the run ends.
    """
    pacing = one_of(pacing, PACINGS, "pacing")
    within = one_of(within, WITHIN, "within")
    if not 0 <= start <= 1:
        raise UserError(f"start: {start} is not a share between 0 and 1")
    size = len(order)
    least = max(min(batch_size, size), math.floor(start * size + 1e-9))
    prefixes = [max(eligible(epoch, epochs, size, power), least) for epoch in range(1, epochs + 1)]
    drawn = [size] * epochs if equal_steps else prefixes
    lengths = [batch_count(rows, batch_size) for rows in drawn]

    def limits(epoch: int) -> list[int]:
        if pacing == "epoch":
            return [prefixes[epoch]] * lengths[epoch]
        first, total = sum(lengths[:epoch]) + 1, sum(lengths)
        return [max(eligible(first + i, total, size, power), least) for i in range(lengths[epoch])]

    def build(epoch: int) -> list[tuple[str, np.ndarray]]:
        sizes = [len(part) for part in batches(np.empty(drawn[epoch]), batch_size)]
        bounds = limits(epoch)
        if within == "sorted":
            return [("nli", order[places]) for places in _sorted(bounds, sizes)]

        def shuffle(turn: int) -> np.ndarray:
            return shuffled(bounds[-1], seed, "nli", epoch, *([turn] if turn else []))

        return [("nli", order[places]) for places in _passes(bounds, sizes, shuffle)]

    return Plan(lengths, build)


def _passes(limits: Sequence[int], sizes: Sequence[int], shuffle: Callable[[int], np.ndarray]) -> list[np.ndarray]:
    """Batches of passes 0, 1, ..., each in the order that `shuffle(pass)` gives."""
    made, ahead, turn = [], np.empty(0, dtype=np.int64), 0
    for limit, size in zip(limits, sizes, strict=True):
        batch, ahead = _next(ahead, limit, size)
        if len(batch) < size:
            fresh, turn = shuffle(turn), turn + 1
            held = np.isin(fresh, batch)
            filling, rest = _next(fresh[~held], limit, size - len(batch))
            batch, ahead = np.concatenate([batch, filling]), np.concatenate([fresh[held], rest])
        made.append(batch)
    return made


def _next(ahead: np.ndarray, limit: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `size` places below `limit`, fewer where there are not so many, and what stands behind them."""
    span, found = size, np.flatnonzero(ahead[:size] < limit)
    while len(found) < size and span < len(ahead):
        span *= 2
        found = np.flatnonzero(ahead[:span] < limit)
    end = found[size - 1] + 1 if len(found) >= size else len(ahead)
    return ahead[found[:size]], ahead[end:]


def _sorted(limits: Sequence[int], sizes: Sequence[int]) -> list[np.ndarray]:
    """Batches in order, from the first row again where the prefix of the moment ends."""
    made, at = [], 0
    for limit, size in zip(limits, sizes, strict=True):
        made.append((at + np.arange(size)) % limit)
        at = (at + size - 1) % limit + 1
    return made


def mix(plan: Plan, groups: np.ndarray, *, block: int = 0) -> np.ndarray:
    """Share of each group among the rows that are trained on: float64 [epochs, 3], each row's sum 1.

    `groups` as `difficulty` gives them, [N]. With `block`, one row for every so many steps: [ceil(steps/block), 3].
    """
    if block:
        spans = [range(first, min(first + block, plan.total)) for first in range(0, plan.total, block)]
    else:
        spans = [range(end - length, end) for end, length in zip(plan.ends, plan.lengths, strict=True)]
    counts = np.array(
        [np.bincount(np.concatenate([groups[plan.at(i).rows] for i in span]), minlength=len(GROUPS)) for span in spans]
    )
    return counts / counts.sum(1, keepdims=True)
