"""Does a cosine move when words that say nothing are appended to one sentence of a pair? (EdaCSE, Table 1.)"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minbert.encode import Encoder
from minbert.errors import UserError
from minbert.seeds import numpy_generator
from minbert.token_cache import Row
from tasks import metrics
from tasks.benchmarks.vectors import cosines, encode, way
from tasks.readers import chinese
from tasks.readers.lines import sentences
from tasks.report import measures
from tasks.report.measures import Interval, interval

ADDED = (" Okay, okay, okay.", " ? ? ? ? ?", " . . .", " What are the", " And so on, and so on, and so on.")
"""What is appended: words and marks of the kinds that EdaCSE's Table 1 shows."""


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs, and their gold score where the file has one: `gold` is None without."""

    name: str
    texts: list[tuple[str, str]]
    gold: np.ndarray | None


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


def read(path: Path, *, seed: int) -> Pairs:
    """Pairs of any sentence file: two or three columns with or without a score, or one sentence a line.

    Sentences without partners are joined at random by the seed. Raises `UserError` where there are fewer than two.
    """
    form = chinese.recognise(path) if path.is_file() else None
    if form is not None:
        from tasks.benchmarks.sets import subset

        found = subset(path.name, chinese.pairs(path))
        return Pairs(path.name, found.pairs, found.gold)
    texts = [row.texts[0] for row in sentences(path) if isinstance(row, Row)]
    rows = [cells for text in texts if all(cells := [cell.strip() for cell in text.split("\t")])]
    if rows and all(len(cells) >= 2 for cells in rows):
        return Pairs(path.name, [(cells[0], cells[1]) for cells in rows], None)
    if len(rows) < 2 or any(len(cells) != 1 for cells in rows):
        raise UserError(f"{path}: neither pairs in two columns nor two sentences or more, one a line")
    order = numpy_generator(seed, "partners", path.name).permutation(len(rows)).tolist()
    partners = zip(order, [*order[1:], order[0]], strict=True)
    return Pairs(path.name, [(rows[one][0], rows[two][0]) for one, two in partners], None)


def measure(
    encoder: Encoder, pooler: str, pairs: Pairs, added: Sequence[str] = ADDED, *, seed: int, resamples: int
) -> list[Shift]:
    """Append each addition to every second sentence, and compare with the pairs as they are."""
    first, second = ([pair[side] for pair in pairs.texts] for side in (0, 1))
    texts = [*first, *second, *(text + more for more in added for text in second)]
    distinct = list(dict.fromkeys(texts))
    places = {text: place for place, text in enumerate(distinct)}
    vectors = encode(encoder, distinct, {pooler: way(pooler)})[pooler]

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
    means = [
        change[numpy_generator(seed, "length bias", added, place).integers(len(change), size=len(change))].mean()
        for place in range(resamples)
    ]
    rho: tuple[float | None, float | None] = (None, None)
    around = None
    if gold is not None:
        rho = metrics.spearman(before, gold), metrics.spearman(after, gold)
    if gold is not None and resamples:
        both, name = np.stack([before, after]), f"length bias {added}"
        draws = measures.bootstrap("Spearman's rho", both, gold, name, seed=seed, resamples=resamples)
        around = interval(draws[1] - draws[0])
    nearer, apart = _mean(change[gap < 0]), _mean(change[gap > 0])
    return Shift(added, float(before.mean()), float(after.mean()), interval(means), nearer, apart, *rho, around)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None
