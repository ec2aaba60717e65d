"""The rows of all files as data frames of integers, which compare faster than texts; and statistics of one frame.

A frame has the columns `place` (the row's id or line, for display), `label` (NaN: none), `ordered` and `row` (numbers
that are equal for equal rows; `row` is also equal for a pair in the other order), and for each text column `text0`
(equal for equal texts) and `words0` (number of words).
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from tasks import readers

CLASSES = 12  # label columns with more different values than this are treated as scores
EXAMPLES = 5
LONG = 512  # words; BERT reads 512 tokens


def _numbering() -> defaultdict[Any, int]:
    """A dictionary that numbers its keys from 0 in the order of their first use."""
    numbers: defaultdict[Any, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


class Corpus:
    """Numbers texts and rows consistently across files. Text 0 is the empty text."""

    def __init__(self) -> None:
        self.texts, self.rows = _numbering(), _numbering()
        self.texts[""]

    def frame(self, rows: Iterable[tuple[str, tuple[str, ...], float]]) -> pd.DataFrame:
        """The frame of a file's rows, (place, texts, label); all rows must have the same number of texts."""
        places, labels, numbers, columns = [], [], array("i"), 1
        for place, row, label in rows:
            places.append(place)
            labels.append(label)
            columns = len(row)
            for text in row:
                words = readers.words(text)
                numbers.extend((self.texts[readers.text_key(text, words)], len(words)))
        names = [f"{prefix}{column}" for column in range(columns) for prefix in ("text", "words")]
        frame = pd.DataFrame(np.array(numbers, dtype=np.int32).reshape(-1, len(names)), columns=names)
        ordered = values(frame, "text")
        frame["ordered"] = self._rows(ordered)
        frame["row"] = self._rows(np.sort(ordered, axis=1)) if columns == 2 else frame["ordered"]
        return frame.assign(place=pd.Series(places, dtype=object), label=np.array(labels, dtype=np.float64))

    def _rows(self, table: np.ndarray) -> list[int]:
        return [self.rows[tuple(row)] for row in table.tolist()]


def values(frame: pd.DataFrame, prefix: str) -> np.ndarray:
    """The columns `text0`, `text1`, ... (or `words0`, ...) as an array [rows, columns]."""
    return frame.filter(regex=rf"^{prefix}\d").to_numpy()


def labels(column: pd.Series, *, scored: bool) -> dict[str, Any]:
    """Number of missing labels, and either the counts of classes or min, mean, max and histogram of scores."""
    present = column.dropna()
    result: dict[str, Any] = {"missing": int(column.isna().sum()), "counts": None, "scores": None}
    if present.empty:
        return result
    if not scored and present.nunique() <= CLASSES and (present == present.round()).all():
        counts = present.astype(int).value_counts().sort_index()
        return result | {"counts": {str(label): int(count) for label, count in counts.items()}}
    low, high = float(np.floor(present.min())), float(np.ceil(present.max()))
    high = max(high, low + 1)
    heights, edges = np.histogram(present, bins=int(high - low) if high - low <= 20 else 10, range=(low, high))
    scores = {statistic: float(getattr(present, statistic)()) for statistic in ("min", "mean", "max")}
    return result | {"scores": scores | {"histogram": {"edges": edges.tolist(), "counts": heights.tolist()}}}


def lengths(frame: pd.DataFrame) -> dict[str, Any]:
    """Words per text: mean, nearest-rank percentiles, histogram, and places of rows with a text over `LONG` words."""
    counts = values(frame, "words")
    if not counts.size:
        return {"texts": 0, "mean": None, "p50": None, "p95": None, "max": None, "long": [], "histogram": {}}
    p50, p95, longest = np.percentile(counts, [50, 95, 100], method="inverted_cdf").astype(int).tolist()
    sizes, times = np.unique(counts, return_counts=True)
    return {
        "texts": counts.size,
        "mean": float(counts.mean()),
        **{"p50": p50, "p95": p95, "max": longest},
        "long": frame["place"].to_numpy()[np.nonzero(counts > LONG)[0]].tolist(),
        "histogram": {str(size): int(count) for size, count in zip(sizes, times, strict=True)},
    }


def duplicates(frame: pd.DataFrame) -> dict[str, Any]:
    """Number of rows that repeat an earlier row, pairs in either order, with examples.

    `swapped` counts rows equal only to a pair in the other order; `disagreeing` counts rows whose label differs from
    that of the first equal row.
    """
    first = frame.drop_duplicates("row").set_index("row").loc[frame["row"]].reset_index()
    again = frame.duplicated("row")
    differs = again & (frame["label"] != first["label"]) & ~(frame["label"].isna() & first["label"].isna())
    examples = zip(first["place"][again][:EXAMPLES], frame["place"][again][:EXAMPLES], strict=True)
    return {
        "rows": int(again.sum()),
        "swapped": int(again.sum() - frame.duplicated("ordered").sum()),
        "disagreeing": int(differs.sum()),
        "examples": [list(pair) for pair in examples],
    }
