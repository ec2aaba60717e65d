"""Guards: ConSERT's losses over views, and joint with NLI, are float64 loops over one sentence at a time.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_consert.py
"""

import math
from typing import Any

import numpy as np
import pytest
import torch

from minbert.bert import BertModel
from minbert.ragged import Ragged
from tasks.contrastive import losses, views
from tasks.contrastive.consert import JointTrainStep, LossSettings, ViewsTrainStep, chance_loss
from tasks.contrastive.losses import softmax_features
from tasks.contrastive.step import ContrastiveModel
from tasks.contrastive.views import Adversarial, Streams
from tasks.examples import Examples
from tests.tasks.contrastive.conftest import LABELS, run_step
from tests.tasks.contrastive.formulas import two_views

ROWS = np.array([5, 0, 2, 3])
SPEC = "token-cutoff:0.3,shuffle"


@pytest.fixture
def model(bert: BertModel) -> ContrastiveModel:
    """The tiny BERT with a classifier of pairs, without dropout."""
    return ContrastiveModel(bert, "mean", seed=9, classifier=(3, 3)).eval()


def vector_of(
    model: ContrastiveModel, ids: list[int], view: views.View, key: int, number: int, perturbation: Any = None
) -> Any:
    """The vector of one sentence through view `number`, alone in its batch."""
    streams = Streams(9, 1, np.array([key]), np.array([number]))
    kinds = [views.View()] * 3
    kinds[number] = view
    ragged = Ragged.from_lists([ids])
    with torch.no_grad():
        states = views.apply(model.encoder, ragged, kinds, streams, perturbation=perturbation)
        return model.pool(states, ragged)[0].double().numpy()


@pytest.mark.parametrize(("protect", "temperature"), [(True, 0.1), (False, 0.07)])
def test_views_loss_is_equation_1(
    model: ContrastiveModel, unlabelled: Examples, protect: bool, temperature: float
) -> None:
    options = LossSettings(views=SPEC, protect_special=protect, temperature=temperature)
    metrics, _ = run_step(ViewsTrainStep(unlabelled, loss_settings=options), model, ROWS)
    vectors = []
    for number, view in enumerate(views.parse_views(SPEC, protect_special=protect)):
        vectors.append([vector_of(model, unlabelled.sentence(row, 0), view, int(row), number) for row in ROWS])
    expected = two_views(*vectors, temperature).item()
    assert metrics["loss"].item() == pytest.approx(expected, rel=1e-4)
    same_view = two_views(vectors[0], vectors[0], temperature).item()
    assert same_view != pytest.approx(expected, rel=1e-3), "the views differ"


@pytest.mark.parametrize(
    ("kind", "rows", "options"),
    [
        (ViewsTrainStep, "unlabelled", LossSettings(views="feature-cutoff:0.2,dropout:0.2")),
        (JointTrainStep, "labelled", LossSettings(objective="joint", views="shuffle,adversarial:0.5")),
    ],
)
def test_chunks_draw_the_same_views(
    model: ContrastiveModel,
    request: pytest.FixtureRequest,
    kind: type[ViewsTrainStep],
    rows: str,
    options: LossSettings,
) -> None:
    """The last chunk is smaller."""
    examples = request.getfixturevalue(rows)
    metrics, gradients = run_step(kind(examples, loss_settings=options), model, ROWS)
    chunk_metrics, chunk_gradients = run_step(kind(examples, chunk=5, loss_settings=options), model, ROWS)
    assert chunk_metrics["loss"].item() == pytest.approx(metrics["loss"].item(), rel=1e-6)
    for name, gradient in gradients.items():
        torch.testing.assert_close(chunk_gradients[name], gradient, atol=1e-5, rtol=0, msg=name)


def test_adversarial_pass_has_counted_dropout(model: ContrastiveModel, labelled: Examples) -> None:
    step = JointTrainStep(labelled, loss_settings=LossSettings(objective="joint", views="none,adversarial:0.5"))
    model.train()
    step_losses = []
    for state in (1, 2):
        torch.manual_seed(state)
        step_losses.append(run_step(step, model, ROWS)[0]["loss"])
    assert torch.equal(*step_losses)


@pytest.mark.parametrize("protect", [True, False])
@pytest.mark.parametrize(
    ("spec", "encodings"),
    [
        ("none,token-cutoff:0.3", 4),
        ("token-cutoff:0.3,none", 4),
        ("adversarial:0.5,none", 4),
        ("adversarial:0.5,shuffle", 6),
    ],
)
def test_joint_loss_is_classification_plus_views(
    model: ContrastiveModel, labelled: Examples, spec: str, encodings: int, protect: bool
) -> None:
    """The released code sums both sides and both directions; a view `none` is the encoding that is classified."""
    options = LossSettings(objective="joint", views=spec, temperature=0.07, alpha=0.3, protect_special=protect)
    step = JointTrainStep(labelled, loss_settings=options)
    metrics, gradients = run_step(step, model, ROWS)
    assert len(step.columns) == encodings
    assert "classifier.weight" in gradients

    # the classification of the unchanged texts
    sides = [[labelled.sentence(row, column) for row in ROWS] for column in (0, 1)]
    u = np.array([vector_of(model, ids, views.View(), 0, 2) for ids in sides[0]])
    v = np.array([vector_of(model, ids, views.View(), 0, 2) for ids in sides[1]])
    weight = model.classifier.weight.detach().double().numpy()
    bias = model.classifier.bias.detach().double().numpy()
    logits = np.concatenate([u, v, abs(u - v)], axis=1) @ weight.T + bias
    gold = np.array(LABELS)[ROWS].astype(int)
    classification = -(logits[np.arange(4), gold] - np.log(np.exp(logits).sum(1))).mean()
    assert metrics["classification_loss"].item() == pytest.approx(classification, rel=1e-4)

    # both views of both sides
    first_view, second_view = views.parse_views(spec, protect_special=protect)
    changes = [[None] * 4, [None] * 4]
    if isinstance(first_view, Adversarial):
        changes = perturbations(model, sides, gold, first_view.rate, protect)
    views_loss = 0.0
    for column, side in enumerate(sides):
        first = []
        second = []
        for row, ids, change in zip(ROWS, side, changes[column], strict=True):
            key = int(row) * 2 + column
            first.append(vector_of(model, ids, first_view, key, 0, change))
            second.append(vector_of(model, ids, second_view, key, 1))
        views_loss += 2 * two_views(first, second, 0.07).item()  # two directions, each a mean over half of the views
    assert metrics["views_loss"].item() == pytest.approx(views_loss, rel=1e-3)
    assert metrics["loss"].item() == pytest.approx(classification + 0.3 * views_loss, rel=1e-3)


def perturbations(
    model: ContrastiveModel, sides: list[list[list[int]]], gold: np.ndarray, size: float, protect: bool
) -> list[list[Any]]:
    """size * g / |g| for every token, or all but the first and the last, by autograd over one pair at a time."""
    changes: list[list[Any]] = [[], []]
    for first, second, label in zip(*sides, gold, strict=True):
        embeddings = []
        vectors = []
        for ids in (first, second):
            ragged = Ragged.from_lists([ids])
            x = model.encoder.embed(ragged).detach().requires_grad_()
            embeddings.append(x)
            vectors.append(model.encoder.encode(x, ragged)[-1].mean(0, keepdim=True))
        logits = model.classify(softmax_features(*vectors))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([int(label)]))
        for column, gradient in enumerate(torch.autograd.grad(loss, embeddings)):
            change = size * gradient / gradient.norm(dim=1, keepdim=True)
            if protect:
                change[[0, -1]] = 0
            changes[column].append(change)
    return changes


@pytest.mark.parametrize("rows", [1, 5, 32])
def test_chance_is_loss_of_equal_vectors(rows: int) -> None:
    same = torch.ones(rows, 7)
    expected = float(losses.nt_xent_from_logits(losses.view_logits(same, same, 0.05)))
    assert chance_loss(LossSettings(), rows) == pytest.approx(expected, abs=1e-5)
    joint = chance_loss(LossSettings(objective="joint", alpha=2.0), rows)
    assert joint == pytest.approx(math.log(3) + 2 * 4 * expected, abs=1e-5)
