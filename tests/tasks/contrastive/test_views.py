"""Guards: each of ConSERT's views does what its definition says, to its own sentence, alone as in a batch; their specs.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_views.py
"""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from minbert import BertModel, Ragged, UserError
from tasks.contrastive import views
from tasks.contrastive.views import Dropout, FeatureCutoff, Shuffle, SpanCutoff, Streams, TokenCutoff, View, parse_views

D = 10
CUTS = (TokenCutoff, SpanCutoff, FeatureCutoff, Dropout)
sentences = st.lists(st.integers(1, 12), min_size=1, max_size=7)
rates = st.sampled_from([0.0, 0.05, 0.15, 0.2, 0.29, 0.5, 0.99])


def batch(lengths: list[int], seed: int = 0) -> tuple[Ragged, Streams, Tensor]:
    """Sentences of these lengths, their draws under odd keys, and embeddings without a zero."""
    rng = random.Random(seed)
    ragged = Ragged.from_lists([rng.choices(range(5, 90), k=length) for length in lengths])
    draw = Streams(seed, 1, np.arange(len(lengths)) * 13 + 5, np.arange(len(lengths)) % 2)
    return ragged, draw, torch.rand(sum(lengths), D) + 0.5


@given(sentences, rates, st.booleans(), st.sampled_from(CUTS), st.integers(0, 999))
def test_cuts_are_zeros_of_defined_number(
    lengths: list[int], rate: float, protect: bool, kind: type[View], seed: int
) -> None:
    """So nothing is rescaled; the number of entries is the definition's, int(n * rate) as Python rounds it."""
    ragged, draw, x = batch(lengths, seed)
    changed = kind(rate, protect).hidden(x, ragged, draw)
    assert torch.equal(changed[changed != 0], x[changed != 0])
    for is_cut in (changed == 0).split(ragged.lengths):
        free = is_cut[1:-1] if protect else is_cut
        touched = free.numpy()
        assert is_cut.sum() == touched.sum(), "a protected token is cut"
        rows = touched.any(1)
        if kind is TokenCutoff or kind is SpanCutoff:
            assert rows.sum() == int(len(free) * rate)
            assert touched.sum() == rows.sum() * D
        if kind is SpanCutoff and rows.any():
            assert np.ptp(np.flatnonzero(rows)) + 1 == rows.sum()
        if kind is FeatureCutoff and len(free):
            columns = touched.any(0)
            assert columns.sum() == int(D * rate)
            assert touched.sum() == columns.sum() * len(free)
        if kind is Dropout:
            assert touched.sum() == int(len(free) * D * rate)


@given(sentences, st.booleans(), st.integers(0, 999))
def test_shuffle_permutes_positions_per_sentence(lengths: list[int], protect: bool, seed: int) -> None:
    ragged, draw, x = batch(lengths, seed)
    changed = Shuffle(0.0, protect).positions(ragged, draw)
    assert torch.equal(changed.ids, ragged.ids) and torch.equal(changed.types, ragged.types)
    assert changed.lengths == ragged.lengths
    assert Shuffle().hidden(x, ragged, draw) is x
    for positions in changed.positions.split(ragged.lengths):
        assert sorted(positions.tolist()) == list(range(len(positions)))
        if protect:
            assert (positions[0], positions[-1]) == (0, len(positions) - 1)


@pytest.mark.parametrize("kind", CUTS)
def test_every_counter_changes_the_draw(kind: type[View]) -> None:
    ragged, draw, x = batch([12, 12, 12])
    view = kind(0.3)
    first = view.hidden(x, ragged, draw)
    assert torch.equal(view.hidden(x, ragged, replace(draw)), first)
    for change in ({"seed": 1}, {"epoch": 2}, {"keys": draw.keys + 1}, {"view_numbers": 1 - draw.view_numbers}):
        assert not torch.equal(view.hidden(x, ragged, replace(draw, **change)), first)


MANY = 4000


@pytest.mark.parametrize(
    ("kind", "length", "rate", "choices"),
    [(TokenCutoff, 6, 0.34, 15), (SpanCutoff, 6, 0.34, 5), (FeatureCutoff, 2, 0.2, 45), (Dropout, 1, 0.2, 45)],
)
def test_every_cut_is_equally_likely(kind: type[View], length: int, rate: float, choices: int) -> None:
    """6 over 2 tokens, 5 places of a run of 2, 10 over 2 columns, 10 over 2 entries."""
    ragged, _, x = batch([length] * MANY)
    draw = Streams(2, 0, np.arange(MANY), np.zeros(MANY, dtype=int))
    is_cut = kind(rate).hidden(x, ragged, draw) == 0
    counts = Counter(sentence.numpy().tobytes() for sentence in is_cut.split(length))
    assert len(counts) == choices and chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize(("protect", "choices"), [(False, 24), (True, 2)])
def test_every_shuffle_is_equally_likely(protect: bool, choices: int) -> None:
    ragged, _, _ = batch([4] * MANY)
    draw = Streams(2, 0, np.arange(MANY), np.zeros(MANY, dtype=int))
    positions = Shuffle(0, protect).positions(ragged, draw).positions
    counts = Counter(tuple(order.tolist()) for order in positions.split(4))
    assert len(counts) == choices and chisquare(list(counts.values())).pvalue > 1e-3


ROWS = [[2, 9, 14, 11, 7, 3], [2, 8, 3], [2, 20, 21, 22, 23, 24, 25, 12, 3], [2, 10, 6, 3]]


@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize(
    "spec", ["feature-cutoff,shuffle", "token-cutoff:0.3,dropout:0.4", "span-cutoff:0.4,none", "shuffle,shuffle"]
)
def test_batch_equals_every_sentence_alone(bert: BertModel, spec: str, protect: bool) -> None:
    """So no sentence changes another's view; all sentences of view 0, then all of view 1."""
    both = parse_views(spec, protect_special=protect)
    rows = ROWS + ROWS
    draw = Streams(3, 1, np.tile([40, 7, 3, 12], 2), np.repeat([0, 1], 4))
    ragged = Ragged.from_lists(rows)
    states = views.apply(bert, ragged, both, draw)
    assert len(states) == bert.config.num_hidden_layers + 1
    for i, changed in enumerate(states[-1].split(ragged.lengths)):
        view = both[i // 4]
        draw_of_row = draw.take(np.array([i]))
        moved = view.positions(Ragged.from_lists([rows[i]]), draw_of_row)
        embeddings = view.hidden(bert.embed(moved), moved, draw_of_row)
        expected = bert.encode(embeddings, moved)[-1]
        torch.testing.assert_close(changed, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("protect", [False, True])
def test_adversarial_is_the_normalised_gradient(protect: bool) -> None:
    """None where the gradient is 0 or has overflown in fp16."""
    ragged = Ragged.from_lists(ROWS)
    gradient = torch.randn(len(ragged.ids), 16) * torch.logspace(-30, 20, len(ragged.ids))[:, None]
    gradient[4] = 0
    gradient[7, 0] = float("inf")
    gradient[10, 0] = float("nan")
    ends = np.cumsum(ragged.lengths)
    special = {*(ends - 1).tolist(), *(ends - ragged.lengths).tolist()}
    changed = views.Adversarial(0.3, protect).perturbation(gradient, ragged).double()
    assert len(special) == 8
    for i, row in enumerate(gradient.double()):
        expected = 0.3 * row / row.pow(2).sum().sqrt()
        if i in (4, 7, 10) or (protect and i in special):
            expected = torch.zeros_like(row)
        torch.testing.assert_close(changed[i], expected, atol=1e-7, rtol=1e-6)


def test_specs_become_views() -> None:
    assert parse_views("feature-cutoff:0.2,shuffle") == (FeatureCutoff(0.2), Shuffle())
    assert parse_views(" token-cutoff , dropout") == (TokenCutoff(0.15), Dropout(0.2))
    assert parse_views("span-cutoff,feature-cutoff") == (SpanCutoff(0.15), FeatureCutoff(0.2))
    assert parse_views("adversarial,none") == (views.Adversarial(1.0), View())
    assert parse_views("adversarial:3,none", protect_special=True) == (views.Adversarial(3.0, True), View(0.0, True))
    assert parse_views("dropout:0,shuffle")[0] == Dropout(0.0)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("shuffle", "two views of a text are needed"),
        ("shufle,none", "'shufle' is not one of none, shuffle"),
        ("shuffle:0.2,none", "shuffle takes no rate"),
        ("dropout:,none", "the rate must be"),
        ("dropout:1,none", "at least 0 and below 1"),
        ("none,token-cutoff:nan", "at least 0 and below 1"),
        ("adversarial:0,none", "must be above 0"),
    ],
)
def test_wrong_specs_are_refused(spec: str, why: str) -> None:
    with pytest.raises(UserError) as error:
        parse_views(spec)
    assert why in str(error.value) and str(error.value).startswith("--views")
