"""Guards: NT-Xent is CBCL's and ConSERT's equation 1 term by term; losses of triplets are sentence-transformers'.

SBERT's softmax: test_nli.py.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_losses.py
"""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from minbert import UserError
from tasks.contrastive import losses
from tasks.contrastive.losses import nearest_share, nt_xent
from tests.tasks.contrastive import formulas

WIDTH = 5
SIMILAR = torch.tensor([True, False, False, True, False, True])


def drawn(rows: int, sides: int = 3, kind: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(rows, WIDTH, dtype=torch.float64).to(kind).requires_grad_() for _ in range(sides)]


def same(actual: Tensor, expected: Tensor, inputs: list[Tensor], tolerance: float) -> None:
    """Equal values and equal gradients."""
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)
    ours = torch.autograd.grad(actual, inputs)
    theirs = torch.autograd.grad(expected, inputs)
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


def two_views(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    return losses.nt_xent_from_logits(losses.view_logits(first, second, temperature))


@pytest.mark.parametrize("sides", [2, 3])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_nt_xent_is_cbcl_equation_1(rows: int, sides: int) -> None:
    """With hard negatives and without them."""
    inputs = drawn(rows, sides)
    loss = nt_xent(*inputs, *[None] * (3 - sides), 0.3)
    same(loss, formulas.nt_xent(*inputs, temperature=0.3), inputs, 1e-10)


def features(*sides: Tensor) -> list[dict[str, Tensor]]:
    return [{"sentence_embedding": x} for x in sides]


@pytest.mark.parametrize("sides", [2, 3])
def test_nt_xent_equals_sentence_transformers(identity_model: Any, sides: int) -> None:
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    inputs = drawn(7, sides, torch.float32)
    theirs = MultipleNegativesRankingLoss(identity_model, scale=20.0)(features(*inputs), None)
    same(nt_xent(*inputs, *[None] * (3 - sides), 0.05), theirs, inputs, 1e-5)


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
@pytest.mark.parametrize("texts", [1, 2, 8])
def test_views_are_consert_equation_1(texts: int, temperature: float) -> None:
    """A single text has no negatives: its loss is 0, and has no gradient."""
    inputs = drawn(texts, 2)
    same(two_views(*inputs, temperature), formulas.two_views(*inputs, temperature), inputs, 1e-10)


@pytest.mark.parametrize("margin", [0.5, 2.0, 4.0])
def test_margin_contrastive_equals_sentence_transformers(identity_model: Any, margin: float) -> None:
    """Its label 1 means similar, and its distance adds 1e-6 to every coordinate."""
    from sentence_transformers.sentence_transformer.losses import ContrastiveLoss, SiameseDistanceMetric

    inputs = drawn(6, 2, torch.float32)
    theirs = ContrastiveLoss(identity_model, SiameseDistanceMetric.EUCLIDEAN, margin)(features(*inputs), SIMILAR.long())
    same(losses.margin_contrastive(*inputs, SIMILAR, margin), theirs, inputs, 1e-5)


@pytest.mark.parametrize("similar", [True, False])
def test_equal_vectors_have_finite_gradients(similar: bool) -> None:
    u = torch.ones(2, 3, requires_grad=True)
    v = torch.ones(2, 3, requires_grad=True)
    losses.margin_contrastive(u, v, torch.tensor([similar, similar]), 1.0).backward()
    assert bool(u.grad.isfinite().all()) and bool(v.grad.isfinite().all())


@pytest.mark.parametrize("margin", [0.2, 1.0, 5.0])
def test_triplet_equals_sentence_transformers(identity_model: Any, margin: float) -> None:
    from sentence_transformers.sentence_transformer.losses import TripletDistanceMetric, TripletLoss

    inputs = drawn(9, 3, torch.float32)
    loss = TripletLoss(identity_model, TripletDistanceMetric.EUCLIDEAN, triplet_margin=margin)
    same(losses.triplet(*inputs, margin), loss(features(*inputs), None), inputs, 1e-5)


def test_accuracy_counts_nearest_positives() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.9, 0.0], [0.5, 0.2, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert float(nearest_share(logits)) == pytest.approx(1 / 3), "one right, one wrong, one tie"
    assert float(nearest_share(torch.tensor([[0.3]]))) == 1, "an only candidate"
    ignored = torch.tensor([[False] * 4, [True, False, True, True], [False] * 4])
    assert float(nearest_share(logits.masked_fill(ignored, -math.inf))) == pytest.approx(2 / 3)


def test_zero_vector_gives_no_nan() -> None:
    a, p, n = drawn(3, 3, torch.float32)
    a.data[1] = 0
    loss = nt_xent(a, p, n, 0.05)
    loss.backward()
    assert bool(loss.isfinite()) and bool(a.grad.isfinite().all())


def test_half_precision_gives_fp32_losses() -> None:
    u, v, w = (x.detach() for x in drawn(6, 3, torch.bfloat16))
    for loss, inputs in [
        (partial(two_views, temperature=0.1), (u, v)),
        (partial(losses.margin_contrastive, similar=SIMILAR, margin=2.0), (u, v)),
        (partial(losses.triplet, margin=1.0), (u, v, w)),
        (losses.softmax_features, (u, v)),
        (partial(nt_xent, temperature=0.1), (u, v, w)),
    ]:
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(*inputs)
        assert value.dtype == torch.float32
        assert torch.equal(value, loss(*(x.float() for x in inputs)))


def test_wrong_shapes_are_refused() -> None:
    """One row would be broadcast; candidates that no anchor has would go unseen."""
    three = torch.ones(3, 2)
    for other in (torch.ones(1, 2), torch.ones(4, 2)):
        for loss, inputs in [
            (nt_xent, (three, other, None, 0.05)),
            (nt_xent, (three, three, other, 0.05)),
            (two_views, (three, other, 0.05)),
            (losses.margin_contrastive, (three, other, SIMILAR[:3], 1.0)),
            (losses.triplet, (three, three, other, 1.0)),
        ]:
            with pytest.raises(UserError, match=r"\[B, D\]"):
                loss(*inputs)
