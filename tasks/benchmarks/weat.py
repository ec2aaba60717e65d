"""The word embedding association test (Caliskan et al. 2017), each word encoded as a sentence of its own.

CBCL (section 8) names it as a check after contrastive training. Axes: X, Y target words of equal number, A, B attribute
words, D hidden.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from minbert.encode import Encoder
from minbert.seeds import numpy_generator
from tasks.benchmarks.vectors import encode, way
from tasks.benchmarks.weat_words import TESTS
from tasks.contrastive.validation import unit

EXACT = 20_000  # up to so many partitions all are tried; otherwise so many are drawn


@dataclass(frozen=True)
class Association:
    """A test's effect size in standard deviations, -2 to 2, and its one-sided p; None where all words are alike."""

    effect: float | None
    p: float | None


def associations(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """s(w, A, B): mean cosine to A less mean cosine to B, for each word of unit vectors [X, D]."""
    return (x @ a.T).mean(1) - (x @ b.T).mean(1)


def test(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, *, seed: int = 0, name: str = "") -> Association:
    """Effect size: difference of the mean associations of X and Y over the standard deviation (n - 1) of all.

    p is the share of partitions of X and Y into equal halves whose difference is at least as large: over all of them
    where there are 20,000 at most, else over 20,000 drawn by the seed, the given one among them.
    """
    s = np.concatenate([associations(x, a, b), associations(y, a, b)])
    half, spread = len(x), float(s.std(ddof=1))
    if spread < 1e-12:
        return Association(None, None)
    effect = float((s[:half].mean() - s[half:].mean()) / spread)
    return Association(effect, _p(s, half, seed, name))


def _p(s: np.ndarray, half: int, seed: int, name: str) -> float:
    observed = s[:half].sum() - 1e-12
    if comb(len(s), half) <= EXACT:
        sums = np.array([s[list(chosen)].sum() for chosen in combinations(range(len(s)), half)])
        return float((sums >= observed).mean())
    order = np.argsort(numpy_generator(seed, "weat", name).random((EXACT, len(s))), axis=1)
    sums = s[order[:, :half]].sum(1)
    return float((1 + (sums >= observed).sum()) / (1 + EXACT))


def measure(
    encoder: Encoder, pooler: str, *, seed: int = 0, name: str, tests: Mapping[str, Sequence[str]] = TESTS
) -> dict[str, Association]:
    """All tests with one encoder; `name` says on standard error whose words were cut, if any are."""
    words = list(dict.fromkeys(word for sets in tests.values() for part in sets for word in part.split()))
    vectors = unit(encode(encoder, words, {pooler: way(pooler)}, name=name)[pooler])
    places = {word: place for place, word in enumerate(words)}
    found = {}
    for one, sets in tests.items():
        x, y, a, b = (vectors[[places[word] for word in part.split()]] for part in sets)
        found[one] = test(x, y, a, b, seed=seed, name=one)
    return found
