"""Guards: the words that views draw are SplitMix64's, uniform, independent, and a sentence's own whatever its batch.

python -m pytest --import-mode=importlib tests/contrastive/test_views_draws.py
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from tasks.contrastive.views import Streams
from tests.contrastive.conftest import of_batch

MASK = (1 << 64) - 1


def draw(keys: int, *, seed: int = 11, epoch: int = 3, number: int = 0) -> Streams:
    return Streams(seed, epoch, np.arange(keys), np.full(keys, number))


def splitmix(state: int, count: int) -> list[int]:
    """The published generator, on Python's integers."""
    words = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        words.append(z ^ (z >> 31))
    return words


def test_the_sequence_is_splitmix64() -> None:
    """The first words for state 1234567 are those that are published as its test vector."""
    known = draw(1)
    known.__dict__["states"] = np.array([1234567], dtype=np.uint64)
    assert known.words(np.array([3])).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 2**63))
def test_every_sentence_has_the_first_words_of_its_own_sequence(counts: list[int], seed: int) -> None:
    ours = draw(len(counts), seed=seed)
    expected = [splitmix(int(state), count) for state, count in zip(ours.states, counts, strict=True)]
    assert ours.words(np.array(counts)).tolist() == [word for words in expected for word in words]
    assert [words.tolist() for words in ours.words_of_each(np.array(counts))] == expected


WORDS = draw(400).words(np.full(400, 250)).reshape(400, 250)


@pytest.mark.parametrize("words", [WORDS, WORDS[:, 0], WORDS[0], WORDS[:, :2]], ids=["all", "first", "one", "two"])
def test_words_are_uniform(words: np.ndarray) -> None:
    assert kstest(words.ravel() / 2.0**64, "uniform").pvalue > 1e-3


def test_no_word_stands_twice() -> None:
    assert len(np.unique(WORDS)) == WORDS.size
    assert len(np.unique(draw(100_000).states)) == 100_000


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.data())
def test_batch_mates_and_their_order_change_nothing(counts: list[int], data: st.DataObject) -> None:
    whole = of_batch(5, 1, np.arange(len(counts)) * 7)
    doubled = np.array(counts * 2)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(doubled) - 1), min_size=1, max_size=8, unique=True)))
    ends = np.cumsum(doubled)
    for name in ("words", "permutation"):
        every = getattr(whole, name)(doubled)
        base = ends - doubled if name == "permutation" else np.zeros_like(ends)
        expected = [every[ends[i] - doubled[i] : ends[i]] - base[i].astype(every.dtype) for i in chosen]
        part = getattr(whole.take(chosen), name)(doubled[chosen])
        starts = np.cumsum(doubled[chosen]) - doubled[chosen]
        shift = np.repeat(starts, doubled[chosen]) if name == "permutation" else 0
        assert (part - np.asarray(shift, dtype=every.dtype)).tolist() == np.concatenate(expected).tolist()
    assert whole.take(chosen).below(doubled[chosen] + 1).tolist() == whole.below(doubled + 1)[chosen].tolist()


def test_every_order_of_four_is_equally_likely() -> None:
    found = draw(6000).permutation(np.full(6000, 4)).reshape(-1, 4) - 4 * np.arange(6000)[:, None]
    orders = Counter(map(tuple, found.tolist()))
    assert len(orders) == 24 and all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert chisquare(list(orders.values())).pvalue > 1e-3
