"""Does a cosine move when words that say nothing are appended to one sentence of a pair? (EdaCSE, Table 1.)"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minbert.encode import Encoder
from tasks import intervals, metrics
from tasks.benchmarks.own_pairs import Pairs
from tasks.benchmarks.results import means
from tasks.benchmarks.vectors import cosines, encode, way

ADDED = (" Okay, okay, okay.", " ? ? ? ? ?", " . . .", " What are the", " And so on, and so on, and so on.")
"""What is appended: words and marks of the kinds that EdaCSE's Table 1 shows."""
PURPOSE = "length bias"  # of the resamples' random numbers


@dataclass(frozen=True)
class Shift:
    """What one addition does, by measure: its value, and the resamples of those that have an interval.

    `lengths nearer` is the mean change of the cosine where the addition brings the two lengths (in tokens) closer
    together, `lengths apart` where it drives them apart; a length bias gains in the first and loses in the second.
    """

    added: str
    measures: dict[str, tuple[float | None, np.ndarray | None]]


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
    added: str,
    before: np.ndarray,
    after: np.ndarray,
    gap: np.ndarray,
    gold: np.ndarray | None,
    seed: int,
    resamples: int,
) -> Shift:
    change = after - before
    drawn = means(change, PURPOSE, added, seed=seed, resamples=resamples)
    found: dict[str, tuple[float | None, np.ndarray | None]] = {
        "cosine": (float(before.mean()), None),
        "cosine then": (float(after.mean()), None),
        "change": (float(change.mean()), drawn),
        "lengths nearer": (_mean(change[gap < 0]), None),
        "lengths apart": (_mean(change[gap > 0]), None),
    }
    rho: list[float | None] = [None, None]
    draws = np.empty((2, 0))
    if gold is not None:
        rho = [metrics.spearman(side, gold) for side in (before, after)]
        both, how = np.stack([before, after]), {"seed": seed, "resamples": resamples}
        draws = intervals.bootstrap("Spearman's rho", both, gold, f"{PURPOSE} {added}", **how)
    found |= {"spearman": (rho[0], None), "spearman then": (rho[1], None)}
    moved = None if rho[0] is None or rho[1] is None else rho[1] - rho[0]
    return Shift(added, found | {"spearman change": (moved, draws[1] - draws[0])})


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None
