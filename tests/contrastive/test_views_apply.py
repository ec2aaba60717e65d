"""Guards: specs of views; a batch of views through the encoder equals every sentence alone; the adversarial view.

python -m pytest --import-mode=importlib tests/contrastive/test_views_apply.py
"""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from minbert import BertModel, Ragged, UserError
from tasks.contrastive.views import (
    Adversarial,
    Dropout,
    FeatureCutoff,
    Shuffle,
    SpanCutoff,
    Streams,
    TokenCutoff,
    View,
    adversarial,
    apply,
    parse,
)

ROWS = [[2, 9, 14, 11, 7, 3], [2, 8, 3], [2, 20, 21, 22, 23, 24, 25, 12, 3], [2, 10, 6, 3]]
KEYS = [40, 7, 3, 12]
PAIRS = ["feature-cutoff,shuffle", "token-cutoff:0.3,dropout:0.4", "span-cutoff:0.4,none", "shuffle,shuffle"]


def of_batch(seed: int, epoch: int, keys: Sequence[int] | np.ndarray) -> Streams:
    """The draws of a batch that holds the same sentences twice: all of view 0, then all of view 1."""
    rows = np.asarray(keys, dtype=np.int64)
    return Streams(seed, epoch, np.tile(rows, 2), np.repeat([0, 1], len(rows)))


def alone(model: BertModel, row: list[int], view: View, draw: Streams) -> torch.Tensor:
    """The last layer for one sentence, the plain way."""
    ragged = Ragged.from_lists([row])
    moved = view.positions(ragged, draw)
    return model.encode(view.hidden(model.embed(moved), moved, draw), moved)[-1]


@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize("spec", PAIRS)
def test_both_views_in_one_batch_are_every_sentence_alone(bert: BertModel, spec: str, protect: bool) -> None:
    views, draw = parse(spec, protect_special=protect), of_batch(3, 1, KEYS)
    ragged = Ragged.from_lists(ROWS + ROWS)
    states = apply(bert, ragged, views, draw)
    assert len(states) == bert.config.num_hidden_layers + 1
    for i, found in enumerate(states[-1].split(ragged.lengths)):
        expected = alone(bert, (ROWS + ROWS)[i], views[i // 4], draw.take(np.array([i])))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("protect", [False, True])
def test_the_adversarial_change_is_the_normalised_gradient_of_each_token(protect: bool) -> None:
    ragged = Ragged.from_lists(ROWS)
    gradient = torch.randn(len(ragged.ids), 16) * torch.logspace(-30, 20, len(ragged.ids))[:, None]
    gradient[4] = 0
    ends = np.cumsum(ragged.lengths)
    special = {*(ends - 1).tolist(), *(ends - ragged.lengths).tolist()}
    found = adversarial(gradient, ragged, 0.3, protect_special=protect).double()
    for i, row in enumerate(gradient.double()):
        expected = row * 0 if i == 4 or (protect and i in special) else 0.3 * row / row.pow(2).sum().sqrt()
        torch.testing.assert_close(found[i], expected, atol=1e-7, rtol=1e-6)
    assert len(special) == 8


def test_specs() -> None:
    assert parse("feature-cutoff:0.2,shuffle") == (FeatureCutoff(0.2), Shuffle())
    assert parse(" token-cutoff , dropout") == (TokenCutoff(0.15), Dropout(0.2))
    assert parse("span-cutoff,feature-cutoff") == (SpanCutoff(0.15), FeatureCutoff(0.2))
    assert parse("adversarial,none") == (Adversarial(1.0), View())
    assert parse("adversarial:3,none", protect_special=True) == (Adversarial(3.0, True), View(0.0, True))
    assert parse("dropout:0,shuffle")[0] == Dropout(0.0)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("shuffle", "two are needed"),
        ("shufle,none", "'shufle' is not one of none, shuffle"),
        ("shuffle:0.2,none", "shuffle takes no rate"),
        ("dropout:,none", "is not a number"),
        ("dropout:1,none", "at least 0 and below 1"),
        ("none,token-cutoff:nan", "at least 0 and below 1"),
        ("adversarial:0,none", "must be above 0"),
    ],
)
def test_what_a_spec_cannot_be(spec: str, why: str) -> None:
    with pytest.raises(UserError) as error:
        parse(spec)
    assert why in str(error.value) and str(error.value).startswith("--views: ")
