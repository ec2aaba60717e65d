"""Guards: NT-Xent with hard negatives is equation 1, and sentence-transformers' multiple negatives ranking loss.

python -m pytest --import-mode=importlib tests/contrastive/test_losses.py
"""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from minbert import UserError
from tasks.contrastive.losses import nt_xent

TEMPERATURES = [0.025, 0.05, 0.3, 1.0]
SHAPES = [(1, 4), (2, 3), (7, 16), (32, 8)]


def drawn(rows: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    a, p, n = (torch.randn(rows, width, dtype=torch.float64) * 3 for _ in range(3))
    return a.requires_grad_(), p.requires_grad_(), n.requires_grad_()


def loops(anchor: Tensor, positive: Tensor, negative: Tensor, temperature: float) -> Tensor:
    """CBCL, equation 1, one term at a time in float64."""

    def similarity(u: Tensor, v: Tensor) -> Tensor:
        return (u * v).sum() / torch.sqrt((u * u).sum() * (v * v).sum())

    terms = []
    for i in range(len(anchor)):
        total = torch.zeros((), dtype=torch.float64)
        for j in range(len(anchor)):
            total = total + torch.exp(similarity(anchor[i], positive[j]) / temperature)
            total = total + torch.exp(similarity(anchor[i], negative[j]) / temperature)
        terms.append(-torch.log(torch.exp(similarity(anchor[i], positive[i]) / temperature) / total))
    return torch.stack(terms).mean()


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_nt_xent_is_equation_1_term_by_term(rows: int, width: int, temperature: float) -> None:
    inputs = drawn(rows, width)
    expected = loops(*inputs, temperature)
    gradients = torch.autograd.grad(expected, inputs)
    halves = [x.detach().float().requires_grad_() for x in inputs]
    found = nt_xent(*halves, temperature)
    assert found.dtype == torch.float32 and found.shape == ()
    torch.testing.assert_close(found.double(), expected, atol=2e-5, rtol=2e-5)
    for ours, theirs in zip(torch.autograd.grad(found, halves), gradients, strict=True):
        torch.testing.assert_close(ours.double(), theirs, atol=3e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def ranking_loss(tiny: Path):
    """sentence-transformers' loss over given vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    class Given(torch.nn.Module):
        def forward(self, features: dict) -> dict:
            return features

    model = SentenceTransformer(modules=[Given()], device="cpu")

    def loss(anchor: Tensor, positive: Tensor, negative: Tensor, temperature: float) -> Tensor:
        features = [{"sentence_embedding": x} for x in (anchor, positive, negative)]
        return MultipleNegativesRankingLoss(model, scale=1 / temperature)(features, None)

    return loss


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_nt_xent_is_sentence_transformers_ranking_loss(ranking_loss, temperature: float) -> None:
    inputs = [x.detach().float().requires_grad_() for x in drawn(16, 12)]
    theirs = ranking_loss(*inputs, temperature)
    expected = torch.autograd.grad(theirs, inputs)
    ours = nt_xent(*inputs, temperature)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    for found, wanted in zip(torch.autograd.grad(ours, inputs), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_a_zero_vector_gives_no_nan() -> None:
    a, p, n = (x.detach().float() for x in drawn(3, 4))
    a[1] = 0
    a.requires_grad_()
    loss = nt_xent(a, p, n, 0.05)
    loss.backward()
    assert bool(loss.isfinite()) and bool(a.grad.isfinite().all())


@pytest.mark.parametrize("temperature", [0.0, -0.05, math.nan])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    with pytest.raises(UserError, match="temperature"):
        nt_xent(*drawn(3, 4), temperature)


@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (3, 4), (2, 4)), ((3, 4), (3, 5), (3, 5)), ((4,), (4,), (4,)), ((3, 2, 2), (3, 2, 2), (3, 2, 2))],
)
def test_other_shapes_are_refused_with_the_shapes(shapes: tuple) -> None:
    with pytest.raises(UserError, match=r"\[B, D\]"):
        nt_xent(*(torch.randn(shape) for shape in shapes), 0.05)
