"""Guards: NT-Xent with its options is CBCL's equation 1 term by term, and sentence-transformers' ranking loss.

python -m pytest --import-mode=importlib tests/contrastive/test_losses.py
"""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tasks.contrastive.losses import false_negatives, in_batch_accuracy, nt_xent
from tests.contrastive import formulas

WIDTH = 6


def drawn(rows: int, sides: int = 3) -> list[Tensor]:
    return [(torch.randn(rows, WIDTH, dtype=torch.float64) * 2).requires_grad_() for _ in range(sides)]


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_the_loss_is_the_formula_term_by_term(rows: int) -> None:
    inputs = drawn(rows)
    expected, found = formulas.nt_xent(*inputs, temperature=0.3), nt_xent(*inputs, 0.3)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    gradients = torch.autograd.grad(expected, inputs)
    for ours, theirs in zip(torch.autograd.grad(found, inputs), gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("temperature", [0.05, 0.3])
@pytest.mark.parametrize("sides", [2, 3])
def test_is_sentence_transformers_ranking_loss(given_model: Any, sides: int, temperature: float) -> None:
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    inputs = [x.detach().float().requires_grad_() for x in drawn(12, sides)]
    peer = MultipleNegativesRankingLoss(given_model, scale=1 / temperature)
    theirs = peer([{"sentence_embedding": x} for x in inputs], None)
    ours = nt_xent(*inputs, *[None] * (3 - sides), temperature)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    expected = torch.autograd.grad(theirs, inputs)
    for found, wanted in zip(torch.autograd.grad(ours, inputs), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=7), st.booleans())
def test_false_negatives_by_their_definition(rows: list[tuple[int, int, int]], hard: bool) -> None:
    anchor, positive, negative = (torch.tensor(keys) for keys in zip(*rows, strict=True))
    found = false_negatives(anchor, positive, negative if hard else None)
    texts = [row[1] for row in rows] + ([row[2] for row in rows] if hard else [])
    assert found.dtype == torch.bool and found.shape == (len(rows), len(texts))
    for i, (own_anchor, own_positive, _) in enumerate(rows):
        for column, text in enumerate(texts):
            j = column % len(rows)
            of_its_premise = column < len(rows) and rows[j][0] == own_anchor  # its contradictions are true negatives
            expected = j != i and (text in (own_anchor, own_positive) or of_its_premise)
            assert bool(found[i, column]) == expected


def test_accuracy_counts_rows_whose_own_candidate_is_above_all_others() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.9, 0.0], [0.5, 0.2, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert float(in_batch_accuracy(logits)) == pytest.approx(1 / 3), "one right, one wrong, one tie"
    assert float(in_batch_accuracy(torch.tensor([[0.3]]))) == 1, "an only candidate"
    ignored = torch.tensor([[False] * 4, [True, False, True, True], [False] * 4])
    assert float(in_batch_accuracy(logits.masked_fill(ignored, -math.inf))) == pytest.approx(2 / 3)


def test_a_zero_vector_gives_no_nan() -> None:
    a, p, n = (x.detach().float() for x in drawn(3))
    a[1] = 0
    a.requires_grad_()
    loss = nt_xent(a, p, n, 0.05)
    loss.backward()
    assert bool(loss.isfinite()) and bool(a.grad.isfinite().all())
