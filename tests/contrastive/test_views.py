"""Guards: each of ConSERT's views does what its definition says, to its own sentence, and lets gradients through.

python -m pytest --import-mode=importlib tests/contrastive/test_views.py
"""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from minbert.ragged import Ragged
from tasks.contrastive.views import Dropout, FeatureCutoff, Shuffle, SpanCutoff, Streams, TokenCutoff, View

D = 10
CUTS = (TokenCutoff, SpanCutoff, FeatureCutoff, Dropout)
sentences = st.lists(st.integers(1, 12), min_size=1, max_size=7)
rates = st.sampled_from([0.0, 0.05, 0.15, 0.2, 0.29, 0.5, 0.99])


def batch(lengths: list[int], seed: int = 0) -> tuple[Ragged, Streams, Tensor]:
    """Sentences of these lengths, their draws under odd keys, and embeddings without a zero."""
    rng = random.Random(seed)
    ragged = Ragged.from_lists([[rng.randrange(5, 90) for _ in range(length)] for length in lengths])
    draw = Streams(seed, 1, np.arange(len(lengths)) * 13 + 5, np.arange(len(lengths)) % 2)
    return ragged, draw, torch.rand(sum(lengths), D) + 0.5


def inner(length: int, protect: bool) -> list[int]:
    return list(range(1, length - 1)) if protect else list(range(length))


@given(sentences, rates, st.booleans(), st.sampled_from(CUTS), st.integers(0, 999))
def test_what_is_not_cut_stays_to_the_bit_and_what_is_cut_is_zero(
    lengths: list[int], rate: float, protect: bool, kind: type[View], seed: int
) -> None:
    """So nothing is rescaled; the number of entries is the definition's, int(n * rate) as Python rounds it."""
    ragged, draw, x = batch(lengths, seed)
    found = kind(rate, protect).hidden(x, ragged, draw)
    assert torch.equal(found[found != 0], x[found != 0])
    for one in (found == 0).split(ragged.lengths):
        free = inner(len(one), protect)
        touched = one[free].numpy()
        assert one.sum() == touched.sum(), "a protected token is cut"
        rows, columns = touched.any(1), touched.any(0)
        if kind is TokenCutoff or kind is SpanCutoff:
            assert rows.sum() == int(len(free) * rate) and touched.sum() == rows.sum() * D
        if kind is SpanCutoff and rows.any():
            assert np.ptp(np.flatnonzero(rows)) + 1 == rows.sum()
        if kind is FeatureCutoff and free:
            assert columns.sum() == int(D * rate) and touched.sum() == columns.sum() * len(free)
        if kind is Dropout:
            assert touched.sum() == int(len(free) * D * rate)


@given(sentences, st.booleans(), st.integers(0, 999))
def test_shuffle_permutes_the_positions_of_each_sentence_and_nothing_else(
    lengths: list[int], protect: bool, seed: int
) -> None:
    ragged, draw, x = batch(lengths, seed)
    found = Shuffle(0.0, protect).positions(ragged, draw)
    assert torch.equal(found.ids, ragged.ids) and torch.equal(found.types, ragged.types)
    assert found.lengths == ragged.lengths and Shuffle().hidden(x, ragged, draw) is x
    for positions in found.positions.split(ragged.lengths):
        assert sorted(positions.tolist()) == list(range(len(positions)))
        if protect:
            assert (positions[0], positions[-1]) == (0, len(positions) - 1)


@given(sentences, st.booleans(), st.sampled_from([*CUTS, Shuffle]), st.data())
def test_batch_mates_chunks_and_order_change_nothing(
    lengths: list[int], protect: bool, kind: type[View], data: st.DataObject
) -> None:
    ragged, draw, x = batch(lengths)
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, unique=True))
    rows = [ragged.ids.split(ragged.lengths)[i].tolist() for i in chosen]
    part = Ragged.from_lists(rows)
    pieces = torch.cat([x.split(ragged.lengths)[i] for i in chosen])
    view, own = kind(0.3, protect), draw.take(np.array(chosen))
    for whole, alone in (
        (view.hidden(x, ragged, draw), view.hidden(pieces, part, own)),
        (view.positions(ragged, draw).positions, view.positions(part, own).positions),
    ):
        assert torch.equal(torch.cat([whole.split(ragged.lengths)[i] for i in chosen]), alone)


@pytest.mark.parametrize("kind", CUTS)
def test_every_part_of_the_counter_counts(kind: type[View]) -> None:
    ragged, draw, x = batch([12, 12, 12])
    view = kind(0.3)
    same = view.hidden(x, ragged, Streams(draw.seed, draw.epoch, draw.keys.copy(), draw.numbers.copy()))
    assert torch.equal(same, view.hidden(x, ragged, draw))
    for other in (
        Streams(draw.seed + 1, draw.epoch, draw.keys, draw.numbers),
        Streams(draw.seed, draw.epoch + 1, draw.keys, draw.numbers),
        Streams(draw.seed, draw.epoch, draw.keys + 1, draw.numbers),
        Streams(draw.seed, draw.epoch, draw.keys, 1 - draw.numbers),
    ):
        assert not torch.equal(view.hidden(x, ragged, other), same)


@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize("kind", CUTS)
def test_gradients_pass_where_nothing_is_cut_and_nowhere_else(kind: type[View], protect: bool) -> None:
    ragged, draw, x = batch([12, 2, 7])
    found = kind(0.3, protect).hidden(x.requires_grad_(), ragged, draw)
    weight = torch.rand_like(x) + 0.5
    (found * weight).sum().backward()
    assert x.grad is not None and (found == 0).any()
    assert torch.equal(x.grad, torch.where(found == 0, 0.0, weight))


def shares(kind: type[View], length: int, rate: float, protect: bool = False, count: int = 4000) -> list[tuple]:
    """What is cut of each of many sentences."""
    ragged, _, x = batch([length] * count)
    draw = Streams(2, 0, np.arange(count), np.zeros(count, dtype=int))
    return [tuple(map(tuple, one.tolist())) for one in (kind(rate, protect).hidden(x, ragged, draw) == 0).split(length)]


@pytest.mark.parametrize(
    ("kind", "length", "rate", "choices"),
    [
        (TokenCutoff, 6, 0.34, 15),
        (SpanCutoff, 6, 0.34, 5),
        (FeatureCutoff, 2, 0.2, 45),
        (Dropout, 1, 0.2, 45),
    ],
)
def test_every_choice_is_equally_likely(kind: type[View], length: int, rate: float, choices: int) -> None:
    """6 over 2 tokens, 5 places of a run of 2, 10 over 2 columns, 10 over 2 entries."""
    found = Counter(shares(kind, length, rate))
    assert len(found) == choices and chisquare(list(found.values())).pvalue > 1e-3


def test_every_shuffle_is_equally_likely() -> None:
    count = 5000
    ragged, _, _ = batch([4] * count)
    draw = Streams(2, 0, np.arange(count), np.zeros(count, dtype=int))
    free = Counter(tuple(one.tolist()) for one in Shuffle().positions(ragged, draw).positions.split(4))
    assert len(free) == 24 and chisquare(list(free.values())).pvalue > 1e-3
    kept = Counter(tuple(one.tolist()) for one in Shuffle(0, True).positions(ragged, draw).positions.split(4))
    assert set(kept) == {(0, 1, 2, 3), (0, 2, 1, 3)} and chisquare(list(kept.values())).pvalue > 1e-3


def splitmix(state: int, count: int) -> list[int]:
    """The published generator, on Python's integers."""
    words, mask = [], (1 << 64) - 1
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        words.append(z ^ (z >> 31))
    return words


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 2**63))
def test_every_sentence_has_the_first_words_of_a_splitmix64_of_its_own(counts: list[int], seed: int) -> None:
    """The first words for state 1234567 are those that are published as its test vector."""
    assert splitmix(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    ours = Streams(seed, 3, np.arange(len(counts)), np.zeros(len(counts), dtype=np.int64))
    expected = [splitmix(int(state), count) for state, count in zip(ours.states, counts, strict=True)]
    assert ours.words(np.array(counts)).tolist() == [word for words in expected for word in words]
    assert [words.tolist() for words in ours.words_of_each(np.array(counts))] == expected
