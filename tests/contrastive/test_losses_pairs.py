"""Guards: two-view NT-Xent, margin contrastive, triplet and softmax losses are their formulas and their peers'.

python -m pytest --import-mode=importlib tests/contrastive/test_losses_pairs.py
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from minbert import UserError
from tasks.contrastive import losses
from tests.contrastive import formulas
from tests.contrastive.formulas import cosine

WIDTH = 5


def drawn(rows: int, sides: int = 2) -> list[Tensor]:
    return [torch.randn(rows, WIDTH, dtype=torch.float64).requires_grad_() for _ in range(sides)]


def far(u: Tensor, v: Tensor) -> Tensor:
    return torch.sqrt(((u - v) ** 2).sum())


def same(found: Tensor, expected: Tensor, inputs: list[Tensor], tolerance: float) -> None:
    """Equal values and equal gradients."""
    wanted = torch.autograd.grad(expected, inputs)
    for ours, theirs in zip([found, *torch.autograd.grad(found, inputs)], [expected, *wanted], strict=True):
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


def two_views(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    return losses.nt_xent_from_logits(losses.view_logits(first, second, temperature))


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
@pytest.mark.parametrize("texts", [2, 3, 8])
def test_two_views_are_equation_1_of_consert_term_by_term(texts: int, temperature: float) -> None:
    inputs = drawn(texts)
    same(two_views(*inputs, temperature), formulas.two_views(*inputs, temperature), inputs, 1e-10)


def test_two_views_of_one_text_have_no_negatives() -> None:
    inputs = drawn(1)
    loss = two_views(*inputs, 0.1)
    loss.backward()
    assert float(loss.detach()) == 0 and not any(bool(x.grad.any()) for x in inputs)


def test_another_view_of_a_text_is_its_own_candidate() -> None:
    first, second = drawn(5)
    logits = losses.view_logits(first, second, 0.1)
    every = torch.cat([first, second]).detach().double().numpy()
    unit = every / np.linalg.norm(every, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(1) == (np.arange(10) + 5) % 10
    assert float(losses.in_batch_accuracy(logits)) == pytest.approx(nearest.mean())
    np.testing.assert_allclose(logits.detach().numpy(), np.roll(cosines, -5, axis=1) / 0.1, rtol=1e-4, atol=1e-4)


SIMILAR = torch.tensor([True, False, False, True, False, True])


@pytest.mark.parametrize("margin", [0.5, 2.0, 4.0])
def test_margin_contrastive_is_its_formula_pair_by_pair(margin: float) -> None:
    inputs = drawn(6)
    terms = []
    for u, v, similar in zip(*inputs, SIMILAR, strict=True):
        terms.append(far(u, v) ** 2 / 2 if similar else torch.clamp(margin - far(u, v), min=0) ** 2 / 2)
    same(losses.margin_contrastive(*inputs, SIMILAR, margin), torch.stack(terms).mean(), inputs, 1e-12)


@pytest.mark.parametrize("similar", [True, False])
def test_margin_contrastive_of_equal_vectors_has_finite_gradients(similar: bool) -> None:
    u, v = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
    losses.margin_contrastive(u, v, torch.tensor([similar, similar]), 1.0).backward()
    assert bool(u.grad.isfinite().all()) and bool(v.grad.isfinite().all())


@pytest.mark.parametrize("margin", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("distance", losses.DISTANCES)
def test_triplet_is_its_formula_row_by_row(distance: str, margin: float) -> None:
    inputs = drawn(6, 3)
    terms = []
    for a, p, n in zip(*inputs, strict=True):
        gap = far(a, p) - far(a, n) if distance == "euclidean" else cosine(a, n) - cosine(a, p)
        terms.append(torch.clamp(gap + margin, min=0))
    same(losses.triplet(*inputs, margin, distance), torch.stack(terms).mean(), inputs, 1e-12)


def test_softmax_is_a_classifier_over_u_v_and_their_difference() -> None:
    inputs = [
        *drawn(4),
        *(torch.randn(*shape, dtype=torch.float64).requires_grad_() for shape in ((3, 3 * WIDTH), (3,))),
    ]
    u, v, weight, bias = inputs
    labels = torch.tensor([2, 0, 1, 1])
    terms = []
    for row in range(4):
        features = [*u[row], *v[row], *(abs(a - b) for a, b in zip(u[row], v[row], strict=True))]
        logits = [sum(w * x for w, x in zip(weight[k], features, strict=True)) + bias[k] for k in range(3)]
        terms.append(torch.log(sum(torch.exp(x) for x in logits)) - logits[int(labels[row])])
    found = losses.softmax_pairs(losses.softmax_features(u, v) @ weight.t() + bias, labels)
    same(found, torch.stack(terms).mean(), inputs, 1e-10)


def features(*sides: Tensor) -> list[dict[str, Tensor]]:
    return [{"sentence_embedding": x} for x in sides]


@pytest.mark.parametrize("margin", [0.5, 2.0, 4.0])
def test_margin_contrastive_is_sentence_transformers_loss(given_model, margin: float) -> None:
    """Its label 1 means similar, and its distance adds 1e-6 to every coordinate."""
    from sentence_transformers.sentence_transformer.losses import ContrastiveLoss, SiameseDistanceMetric

    inputs = [x.detach().float().requires_grad_() for x in drawn(6)]
    theirs = ContrastiveLoss(given_model, SiameseDistanceMetric.EUCLIDEAN, margin)(features(*inputs), SIMILAR.long())
    same(losses.margin_contrastive(*inputs, SIMILAR, margin), theirs, inputs, 1e-5)


@pytest.mark.parametrize("distance", losses.DISTANCES)
def test_triplet_is_sentence_transformers_loss(given_model, distance: str) -> None:
    from sentence_transformers.sentence_transformer.losses import TripletDistanceMetric, TripletLoss

    inputs = [x.detach().float().requires_grad_() for x in drawn(9, 3)]
    metric = getattr(TripletDistanceMetric, distance.upper())
    theirs = TripletLoss(given_model, metric, triplet_margin=1.0)(features(*inputs), None)
    same(losses.triplet(*inputs, 1.0, distance), theirs, inputs, 1e-5)


def test_softmax_is_sentence_transformers_loss(given_model) -> None:
    from sentence_transformers.sentence_transformer.losses import SoftmaxLoss

    inputs = [x.detach().float().requires_grad_() for x in drawn(7)]
    labels = torch.randint(3, (7,))
    peer = SoftmaxLoss(given_model, WIDTH, 3)
    ours = losses.softmax_pairs(peer.classifier(losses.softmax_features(*inputs)), labels)
    same(ours, peer(features(*inputs), labels), [*inputs, *peer.classifier.parameters()], 1e-6)


def test_half_precision_vectors_give_fp32_losses() -> None:
    u, v, w = (x.detach().bfloat16() for x in drawn(6, 3))
    for loss, inputs in [
        (lambda *x: two_views(*x, 0.1), (u, v)),
        (lambda *x: losses.margin_contrastive(*x, SIMILAR, 2.0), (u, v)),
        (lambda *x: losses.triplet(*x, 1.0, "cosine"), (u, v, w)),
        (lambda *x: losses.triplet(*x, 1.0), (u, v, w)),
        (losses.softmax_features, (u, v)),
        (lambda x: losses.softmax_pairs(x, torch.tensor([0, 1, 2, 3, 4, 0])), (u,)),
    ]:
        found = loss(*inputs)
        assert found.dtype == torch.float32
        assert torch.equal(found, loss(*(x.float() for x in inputs)))


X, Y, Z = torch.ones(3, 2), torch.ones(3, 4), torch.ones(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.nt_xent(X, X, X, 0.0), "temperature"),
        (lambda: losses.nt_xent(X, X, Y, 0.05), r"\[B, D\]"),
        (lambda: losses.nt_xent(Z, Z, None, 0.05), r"\[B, D\]"),
        (lambda: two_views(X, Y, 0.1), r"one shape \[B, D\]"),
        (lambda: two_views(X, X, 0.0), "temperature"),
        (lambda: losses.margin_contrastive(X, X, Z.bool(), math.nan), "margin"),
        (lambda: losses.triplet(X, X, X, 0.0), "margin"),
        (lambda: losses.margin_contrastive(X, Y, Z.bool(), 1.0), r"u and v must have one shape"),
        (lambda: losses.triplet(X, X, Y, 1.0), r"one shape \[B, D\]"),
        (lambda: losses.triplet(X, X, X, 1.0, "manhattan"), "'manhattan' is not one of euclidean, cosine"),
    ],
)
def test_other_shapes_and_modes_are_refused(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()
