"""Near-duplicate texts: sets of words with a Jaccard index |a & b| / |a | b| of at least 4/5, found exactly.

Not all pairs are compared: two such sets have a word in common among the n - ceil(4n/5) + 1 rarest words of each, where
n is the size of the set (Bayardo, Ma and Srikant 2007, "Scaling up all pairs similarity search"). All arithmetic is in
integers, so there are no rounding errors.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from scipy.sparse import csr_matrix

_CANDIDATES = 1 << 21  # most candidate pairs in memory at once


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
        self.rarest.data[position > np.repeat(self.sizes - -(-4 * self.sizes // 5), self.sizes)] = 0
        self.rarest.eliminate_zeros()

    def near(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All near pairs between two arrays of set numbers, as (left numbers, right numbers) in the order of `left`."""
        found = [np.zeros((2, 0), dtype=np.int64)]
        others = self.rarest[right].T.tocsr()
        batches = np.cumsum(self.rarest[left] @ others.getnnz(axis=1)) // _CANDIDATES
        for some in np.split(left, np.flatnonzero(np.diff(batches)) + 1):
            candidates = (self.rarest[some] @ others).tocoo()
            pairs = np.stack([some[candidates.row], right[candidates.col]])
            sizes = self.sizes[pairs]
            pairs = pairs[:, 5 * sizes.min(axis=0) >= 4 * sizes.max(axis=0)]
            shared = np.asarray(self.matrix[pairs[0]].multiply(self.matrix[pairs[1]]).sum(axis=1)).ravel()
            found.append(pairs[:, 5 * shared >= 4 * (self.sizes[pairs].sum(axis=0) - shared)])
        one, other = np.concatenate(found, axis=1)
        return one, other
