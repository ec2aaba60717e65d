"""Labels, lengths and duplicates of one file, as plain values for JSON."""

from typing import Any

import numpy as np

from data.check.corpus import Part

CLASSES = 12  # whole numbers of more kinds than this are scores
EXAMPLES = 5
LONG = 512  # words; BERT reads 512 tokens


def labels(values: np.ndarray, *, scored: bool) -> dict[str, Any]:
    """Counts of classes, or minimum, mean, maximum and histogram of scores; and how many rows have no label."""
    known = values[~np.isnan(values)]
    found: dict[str, Any] = {"missing": int(len(values) - len(known)), "counts": None, "scores": None}
    kinds, counts = np.unique(known, return_counts=True)
    if not len(known):
        return found
    if not scored and len(kinds) <= CLASSES and (kinds == kinds.round()).all():
        found["counts"] = {f"{kind:.0f}": int(count) for kind, count in zip(kinds, counts, strict=True)}
        return found
    low, high = float(np.floor(known.min())), float(np.ceil(known.max()))
    high = max(high, low + 1)
    bins = int(high - low) if high - low <= 20 else 10
    heights, edges = np.histogram(known, bins=bins, range=(low, high))
    found["scores"] = {
        "min": float(known.min()),
        "mean": float(known.mean()),
        "max": float(known.max()),
        "histogram": {"edges": edges.tolist(), "counts": heights.tolist()},
    }
    return found


def lengths(part: Part) -> dict[str, Any]:
    """Words a text: nearest-rank percentiles, rows of texts of more than `LONG`, how many texts have how many."""
    words = part.lengths
    if not len(words):
        return {"texts": 0, "mean": None, "p50": None, "p95": None, "max": None, "long": [], "histogram": {}}
    p50, p95 = np.percentile(words, [50, 95], method="inverted_cdf")
    sizes, counts = np.unique(words, return_counts=True)
    return {
        "texts": len(words),
        "mean": float(words.mean()),
        "p50": int(p50),
        "p95": int(p95),
        "max": int(words.max()),
        "long": [part.places[text // part.sentences.shape[1]] for text in np.flatnonzero(words > LONG).tolist()],
        "histogram": {str(size): int(count) for size, count in zip(sizes, counts, strict=True)},
    }


def duplicates(part: Part) -> dict[str, Any]:
    """Rows that repeat an earlier row of the split.

    `rows`: those beyond the first of their kind. `swapped`: those of them that are the same only in the other order of
    the pair. `disagreeing`: those whose label is not that of the first.
    """
    first: dict[int, int] = {}
    again: list[tuple[int, int]] = []
    for place, number in enumerate(part.rows.tolist()):
        earlier = first.setdefault(number, place)
        if earlier != place:
            again.append((earlier, place))
    disagreeing = sum(
        1 for one, other in again if not np.array_equal(part.labels[one], part.labels[other], equal_nan=True)
    )
    return {
        "rows": len(again),
        "swapped": len(again) - (len(part) - int(np.count_nonzero(np.bincount(part.ordered)))),
        "disagreeing": disagreeing,
        "examples": [[part.places[one], part.places[other]] for one, other in again[:EXAMPLES]],
    }
