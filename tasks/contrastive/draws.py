"""Random words for the views of a batch, all at once: each sentence has a counter, and so a sequence, of its own.

Axes: B sentences.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from minbert.seeds import digest

_STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Draw:
    """Random words for each sentence of a batch, a pure function of (seed, epoch, number of the view, key).

    `keys` (the sentence's row) and `numbers` (0 for the first view) are int64 [B] and travel with the sentences: no
    batch mate, chunk or rank changes a draw. Each sentence has its own SplitMix64 sequence (Steele et al. 2014), whose
    words never repeat, so that all of a batch are drawn at once.
    """

    seed: int
    epoch: int
    keys: np.ndarray
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, sentences: np.ndarray | slice) -> "Draw":
        """The draws of some of the sentences, such as those of one chunk."""
        return replace(self, keys=self.keys[sentences], numbers=self.numbers[sentences])

    @cached_property
    def states(self) -> np.ndarray:
        """Where each sentence's sequence begins: uint64 [B]."""
        first, second = np.frombuffer(digest(self.seed, "views", self.epoch)[:16], dtype=np.uint64)
        by_key = _mixed(self.keys.astype(np.uint64) * _STEP + first)
        return _mixed((by_key ^ second) + self.numbers.astype(np.uint64) * _STEP)

    def words(self, counts: np.ndarray) -> np.ndarray:
        """The first `counts[i]` words of each sentence i, end to end: uint64 [sum of counts]."""
        return _mixed(np.repeat(self.states, counts) + (ramp(counts) + 1).astype(np.uint64) * _STEP)

    def words_of_each(self, counts: np.ndarray) -> Iterator[np.ndarray]:
        """The same words, one sentence after the other: where there are many, they stay in the processor's cache."""
        steps = (np.arange(counts.max(initial=0)) + 1).astype(np.uint64) * _STEP
        for state, count in zip(self.states, counts, strict=True):
            yield _mixed(state + steps[:count])

    def below(self, limits: np.ndarray) -> np.ndarray:
        """A whole number in 0..limits[i] - 1 for each sentence i: int64 [B]."""
        fractions = (self.words(np.ones(len(self), dtype=np.int64)) >> np.uint64(11)) * 2.0**-53
        return (fractions * limits).astype(np.int64)

    def permutation(self, counts: np.ndarray) -> np.ndarray:
        """Runs of `counts` items end to end, each shuffled inside itself: int64 [sum of counts]."""
        return np.lexsort((self.words(counts), np.repeat(np.arange(len(counts)), counts)))


def ramp(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... inside each run of the given counts, which may be 0."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def smallest(words: np.ndarray, count: int) -> np.ndarray:
    """Mask of the `count` smallest words of each row: a random subset of that size, as no word stands twice."""
    if count == 0:
        return np.zeros(words.shape, dtype=bool)
    return words <= np.partition(words, count - 1, axis=-1)[..., count - 1 : count]


def _mixed(words: np.ndarray) -> np.ndarray:
    """SplitMix64's output function, in place: a bijection of 64-bit words (Stafford's variant 13)."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
