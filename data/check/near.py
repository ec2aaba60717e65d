"""Which texts are nearly the same: word sets whose Jaccard index |a & b| / |a | b| is at least 4/5, exactly.

Found without comparing all pairs: two such sets share one of their few rarest words (Bayardo, Ma and Srikant 2007,
"Scaling up all pairs similarity search": of n words, the n - ceil(4n/5) + 1 rarest), and neither is smaller than
4/5 of the other. Every candidate is then counted out. Whole numbers throughout: no rounding decides.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from scipy.sparse import csr_matrix

TIMES, OUT_OF = 4, 5
_CHUNK = 1 << 21  # candidates held at once


class Bags:
    """Sets of words, each a tuple of distinct word numbers, ready to be compared."""

    def __init__(self, bags: Sequence[tuple[int, ...]], words: int) -> None:
        self.sizes = np.fromiter(map(len, bags), dtype=np.int64, count=len(bags))
        flat = np.fromiter(chain.from_iterable(bags), dtype=np.int64, count=int(self.sizes.sum()))
        rarity = np.empty(words, dtype=np.int64)
        rarity[np.argsort(np.bincount(flat, minlength=words), kind="stable")] = np.arange(words)
        owners = np.repeat(np.arange(len(bags)), self.sizes)
        flat = rarity[flat]
        flat = flat[np.lexsort((flat, owners))]
        self.ends = np.concatenate([[0], np.cumsum(self.sizes)])
        self.sketches = np.zeros(len(bags), dtype=np.uint64)
        full = self.sizes > 0
        if full.any():
            bits = np.uint64(1) << (flat % 64).astype(np.uint64)
            self.sketches[full] = np.bitwise_or.reduceat(bits, self.ends[:-1][full])
        self.matrix = csr_matrix(
            (np.ones(len(flat), dtype=np.int32), flat, self.ends), shape=(len(bags), max(words, 1))
        )

    def links(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All near pairs of two arrays of distinct bag numbers, as places in them, ordered by the first."""
        found = [self._verified(left, right, *some) for some in self._candidates(left, right)]
        pairs = _distinct(np.concatenate([np.zeros(0, dtype=np.int64), *found]))
        return pairs // max(len(right), 1), pairs % max(len(right), 1)

    def _rarest(self, bags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The words that near sets must share one of, and the place in `bags` of the set each belongs to."""
        sizes = self.sizes[bags]
        taken = np.where(sizes > 0, sizes - _least(sizes) + 1, 0)
        owners = np.repeat(np.arange(len(bags)), taken)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(taken) - taken, taken)
        return self.matrix.indices[self.ends[bags][owners] + within].astype(np.int64), owners

    def _candidates(self, left: np.ndarray, right: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        words, owners = self._rarest(left)
        other_words, other_owners = self._rarest(right)
        wide = int(self.sizes.max(initial=0)) + 2
        keys = other_words * wide + self.sizes[right][other_owners]
        order = np.argsort(keys, kind="stable")
        keys, other_owners = keys[order], other_owners[order]
        sizes = self.sizes[left][owners]
        low = np.searchsorted(keys, words * wide + _least(sizes))
        high = np.searchsorted(keys, words * wide + np.minimum(sizes * OUT_OF // TIMES, wide - 1), side="right")
        counts = high - low
        total = np.cumsum(counts)
        start = 0
        while start < len(owners):
            reached = total[start - 1] if start else 0
            stop = max(int(np.searchsorted(total, reached + _CHUNK, side="right")), start + 1)
            some = slice(start, stop)
            each = np.repeat(np.arange(start, stop), counts[some])
            within = np.arange(len(each)) - np.repeat(total[some] - counts[some] - reached, counts[some])
            yield owners[each], other_owners[low[each] + within]
            start = stop

    def _verified(self, left: np.ndarray, right: np.ndarray, places: np.ndarray, others: np.ndarray) -> np.ndarray:
        one, other = left[places], right[others]
        # Every bit in which two sketches differ is a word that only one of the sets has.
        apart = np.bitwise_count(self.sketches[one] ^ self.sketches[other])
        maybe = _is_near(self.sizes[one] + self.sizes[other], apart)
        pairs = _distinct(places[maybe] * len(right) + others[maybe])
        one, other = left[pairs // len(right)], right[pairs % len(right)]
        both = self.sizes[one] + self.sizes[other]
        shared = np.asarray(self.matrix[one].multiply(self.matrix[other]).sum(axis=1)).ravel()
        return pairs[_is_near(both, both - 2 * shared)]


def _is_near(both: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """Whether sets of `both` words together, `apart` of which only one of them has, reach the index."""
    # shared / union = (both - apart) / (both + apart)
    return OUT_OF * (both - apart) >= TIMES * (both + apart)


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """Sorted, each once. (`numpy.unique` may take a hash table, which is many times slower here.)"""
    numbers = np.sort(numbers)
    return numbers[np.diff(numbers, prepend=-1) > 0]


def _least(sizes: np.ndarray) -> np.ndarray:
    """The least number of shared words, and the least size, of a set near one of this size."""
    return -(-TIMES * sizes // OUT_OF)
