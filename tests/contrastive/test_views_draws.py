"""Guards: the words that views draw are SplitMix64's, and a sentence's own whatever its batch.

python -m pytest --import-mode=importlib tests/contrastive/test_views_draws.py
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.contrastive.views import Streams

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
