"""Does a cosine move when words that say nothing are appended to one sentence of a pair? (EdaCSE, Table 1.)"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from minbert.encode import Encoder
from tasks import intervals, metrics
from tasks.benchmarks import paired
from tasks.benchmarks.own_pairs import Pairs
from tasks.benchmarks.vectors import cosines, encode, way
from tasks.intervals import Interval, interval

ADDED = (" Okay, okay, okay.", " ? ? ? ? ?", " . . .", " What are the", " And so on, and so on, and so on.")
"""What is appended: words and marks of the kinds that EdaCSE's Table 1 shows."""
PURPOSE = "length bias"  # of the resamples' random numbers


@dataclass(frozen=True)
class Shift:
    """What one addition does: mean cosine before and after, and Spearman's rho; intervals are of the change.

    `nearer` is the mean change where the addition brings the two lengths (in tokens) closer together, `apart` where it
    drives them apart; an encoder with a length bias gains in the first and loses in the second.
    """

    added: str
    before: float
    after: float
    change: Interval | None
    nearer: float | None
    apart: float | None
    spearman_before: float | None
    spearman_after: float | None
    spearman_change: Interval | None
    changes: np.ndarray = field(repr=False, compare=False)  # of each pair: float64 [pairs]

    def as_json(self) -> dict[str, Any]:
        """The numbers but for the single pairs'."""
        return {name: value for name, value in asdict(self).items() if name != "changes"}


def measure(
    encoder: Encoder, pooler: str, pairs: Pairs, added: Sequence[str] = ADDED, *, seed: int, resamples: int, name: str
) -> list[Shift]:
    """Append each addition to every second sentence, and compare with the pairs as they are.

    `name` says on standard error whose texts were cut, if any are.
    """
    first, second = ([pair[side] for pair in pairs.texts] for side in (0, 1))
    texts = [*first, *second, *(text + more for more in added for text in second)]
    distinct = list(dict.fromkeys(texts))
    places = {text: place for place, text in enumerate(distinct)}
    vectors = encode(encoder, distinct, {pooler: way(pooler)}, name=name)[pooler]

    def of(some: Sequence[str]) -> np.ndarray:
        return vectors[[places[text] for text in some]]

    def lengths(some: Sequence[str]) -> np.ndarray:
        return np.array([len(ids) for ids in encoder.tokenizer.encode(some)])

    before, found = cosines(of(first), of(second)), []
    for more in added:
        changed = [text + more for text in second]
        gap = np.abs(lengths(changed) - lengths(first)) - np.abs(lengths(second) - lengths(first))
        after = cosines(of(first), of(changed))
        found.append(_shift(more, before, after, gap, pairs.gold, seed, resamples))
    return found


def _shift(
    added: str, before: np.ndarray, after: np.ndarray, gap: np.ndarray, gold: np.ndarray | None, seed: int,
    resamples: int,
) -> Shift:  # fmt: skip
    change = after - before
    means = paired.means(change, PURPOSE, added, seed=seed, resamples=resamples)
    rho: tuple[float | None, float | None] = (None, None)
    around = None
    if gold is not None:
        rho = metrics.spearman(before, gold), metrics.spearman(after, gold)
    if gold is not None and resamples:
        both, name = np.stack([before, after]), f"length bias {added}"
        draws = intervals.bootstrap("Spearman's rho", both, gold, name, seed=seed, resamples=resamples)
        around = interval(draws[1] - draws[0])
    nearer, apart = _mean(change[gap < 0]), _mean(change[gap > 0])
    return Shift(added, float(before.mean()), float(after.mean()), interval(means), nearer, apart, *rho, around, change)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None
