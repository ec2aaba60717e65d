"""Overlaps between two splits: rows that are equal, near-duplicates, or have a text in common.

Two texts are near-duplicates if their sets of words have a Jaccard index |a & b| / |a | b| of at least 4/5. They are
found exactly, without comparing all pairs: two such sets of n words have ceil(4n/5) words in common, so the two rarest
common words are among the n - ceil(4n/5) + 2 rarest words of each set (after Bayardo, Ma and Srikant 2007, "Scaling up
all pairs similarity search"). All arithmetic is in integers, so there are no rounding errors.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

from tasks.data.check.corpus import EXAMPLES, values

DEFINITIONS = {
    "same": "the row is in the other split too. Two texts are the same if their letters and digits are (case, width, "
    "white space and punctuation do not count), two pairs if their texts are, in either order",
    "same_order": "those of the same rows whose texts are in the same order",
    "near": "not the same, but every text of the row is near a text of one row of the other split, in either order: "
    "their sets of words have a Jaccard index of 0.8 or more",
    "sharing_a_sentence": "at least one text of the row is the same as a text of the other split, in any row",
    "word": "a run of letters and digits; a Chinese character is a word",
    "place": "a row is named by its id in the course's files and in SICK, else by its line",
}
_CANDIDATES = 1 << 21  # most candidate pairs in memory at once
_RAREST = 2  # common words that two near-duplicates must have among the rarest words of each


class WordSets:
    """Sets of words, indexed for comparison. Each set is a tuple of distinct word numbers below `words`."""

    def __init__(self, sets: Sequence[tuple[int, ...]], words: int) -> None:
        self.sizes = np.fromiter(map(len, sets), dtype=np.int64, count=len(sets))
        ends = np.concatenate([[0], np.cumsum(self.sizes)])
        flat = np.fromiter(chain.from_iterable(sets), dtype=np.int64, count=ends[-1])
        rarity = np.argsort(np.argsort(np.bincount(flat, minlength=words), kind="stable"))
        ones = np.ones(len(flat), dtype=np.int32)
        self.matrix = csr_matrix((ones, rarity[flat], ends), shape=(len(sets), max(words, 1)))
        self.matrix.sort_indices()
        self.rarest = self.matrix.copy()
        position = np.arange(len(flat)) - np.repeat(ends[:-1], self.sizes)
        self.rarest.data[position >= np.repeat(self.sizes - _four_fifths(self.sizes) + _RAREST, self.sizes)] = 0
        self.rarest.eliminate_zeros()

    def near(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All near pairs between two arrays of set numbers, as (left numbers, right numbers) in the order of `left`."""
        found = [np.zeros((2, 0), dtype=np.int64)]
        others = self.rarest[right].T.tocsr()
        batches = np.cumsum(self.rarest[left] @ others.getnnz(axis=1)) // _CANDIDATES
        for some in np.split(left, np.flatnonzero(np.diff(batches)) + 1):
            common = (self.rarest[some] @ others).tocoo()
            pairs = np.stack([some[common.row], right[common.col]])
            sizes = self.sizes[pairs]
            small, large = sizes.min(axis=0), sizes.max(axis=0)
            enough = common.data >= np.minimum(_RAREST, _four_fifths(large))
            pairs = pairs[:, enough & (5 * small >= 4 * large)]
            shared = np.asarray(self.matrix[pairs[0]].multiply(self.matrix[pairs[1]]).sum(axis=1)).ravel()
            found.append(pairs[:, 5 * shared >= 4 * (self.sizes[pairs].sum(axis=0) - shared)])
        one, other = np.concatenate(found, axis=1)
        return one, other


def _four_fifths(sizes: np.ndarray) -> np.ndarray:
    """4/5 of each size, rounded up: the fewest words that a near-duplicate has in common with a set of this size."""
    return -(-4 * sizes // 5)


def overlap(left: pd.DataFrame, right: pd.DataFrame) -> dict[str, Any]:
    """For each side, the number of rows that are also on the other side, with examples.

    `same` and `same_order` are None if the sides have different numbers of texts per row; `near` is None until
    `add_near` has counted it.
    """
    alike = _columns(left) == _columns(right)
    found = {side: _counts(*pair, alike) for side, pair in (("of_left", (left, right)), ("of_right", (right, left)))}
    first = right.drop_duplicates("row").set_index("row")["place"]
    same = left[left["row"].isin(first.index)][:EXAMPLES] if alike else left[:0]
    return {**found, "examples": [[place, first[row]] for place, row in zip(same["place"], same["row"], strict=True)]}


def _counts(one: pd.DataFrame, other: pd.DataFrame, alike: bool) -> dict[str, int | None]:
    texts = values(one, "text")
    shared = np.isin(texts, values(other, "text"), kind="table") & (texts > 0)
    return {
        "rows": len(one),
        "same": int(_among(one, other, "row").sum()) if alike else None,
        "same_order": int(_among(one, other, "ordered").sum()) if alike else None,
        "near": None,
        "sharing_a_sentence": int(shared.any(axis=1).sum()),
    }


def add_near(found: dict[str, Any], left: pd.DataFrame, right: pd.DataFrame, sets: WordSets) -> None:
    """Count the rows that are near a row of the other side, without those equal to one; writes into `found`."""
    if _columns(left) == _columns(right):
        of_left, of_right = _near(left, right, sets)
        found["of_left"]["near"] = int((of_left & ~_among(left, right, "row")).sum())
        found["of_right"]["near"] = int((of_right & ~_among(right, left, "row")).sum())


def _columns(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame if name.startswith("bag")]


def _among(one: pd.DataFrame, other: pd.DataFrame, column: str) -> np.ndarray:
    return np.isin(one[column].to_numpy(), other[column].to_numpy(), kind="table")


def _near(left: pd.DataFrame, right: pd.DataFrame, sets: WordSets) -> tuple[np.ndarray, np.ndarray]:
    """For each side, a mask of rows whose texts are all near those of one row of the other; pairs in either order."""
    columns = _columns(left)
    one, other = left[columns].drop_duplicates(), right[columns].drop_duplicates()
    near = sets.near(np.unique(one), np.unique(other))
    partners = [f"near {column}" for column in columns]
    for column, partner in zip(columns, partners, strict=True):
        one = one.merge(pd.DataFrame(dict(zip((column, partner), near, strict=True))), on=column)
    hits = []
    for order in [partners, partners[::-1]] if len(columns) == 2 else [partners]:
        hits.append(one.merge(other.set_axis(order, axis=1), on=partners)[[*columns, *order]].to_numpy())
    found = np.concatenate(hits)
    return _rows_among(left[columns], found[:, : len(columns)]), _rows_among(right[columns], found[:, len(columns) :])


def _rows_among(rows: pd.DataFrame, others: np.ndarray) -> np.ndarray:
    known = pd.DataFrame(others, columns=rows.columns).drop_duplicates().assign(known=True)
    return rows.merge(known, how="left", on=list(rows.columns))["known"].notna().to_numpy()
