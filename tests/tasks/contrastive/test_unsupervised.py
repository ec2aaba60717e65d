"""Guards: ConSERT's and EdaCSE's objectives against float64 loops over one sentence at a time, and their draws.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_unsupervised.py
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tasks.contrastive.model import ContrastiveModel, ContrastiveTrainStep

from minbert.bert import BertModel
from minbert.ragged import Ragged
from minbert.tokenizer import Tokenizer
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from tasks.augment.punctuation import Punctuation, insert
from tasks.contrastive import views
from tasks.contrastive.losses import softmax_features
from tasks.contrastive.settings import ContrastiveSettings
from tasks.contrastive.simcse import SimCSE
from tasks.contrastive.views import Streams
from tasks.examples import Examples
from tests.tasks.contrastive.conftest import ANCHORS, LABELS, backward
from tests.tasks.contrastive.formulas import nt_xent, two_views

ROWS = np.array([5, 0, 2, 3])
SPEC = "token-cutoff:0.3,shuffle"


def settings(objective: str, **more: Any) -> ContrastiveSettings:
    texts = {"texts": "sts"} if objective in ("views", "simcse") else {}
    return ContrastiveSettings.of(**{"objective": objective, "pooler": "mean", "seed": 9} | texts | more)


def seen(model: ContrastiveModel, ids: list[int], view: views.View, key: int, number: int, added: Any = None) -> Any:
    """The vector of one sentence through one view, alone in its batch."""
    draw = Streams(9, 1, np.array([key]), np.array([number]))
    chosen = {number: view}
    ragged = Ragged.from_lists([ids])
    with torch.no_grad():
        kinds = [chosen.get(n, views.View()) for n in range(3)]
        states = views.apply(model.encoder, ragged, kinds, draw, perturbation=added)
        return model.pool(states, ragged)[0].double().numpy()


@pytest.mark.parametrize(("protect", "temperature"), [(True, 0.1), (False, 0.07)])
def test_views_are_contrasted_as_equation_1_says(
    bert: BertModel, unlabelled: Examples, protect: bool, temperature: float
) -> None:
    how = settings("views", views=SPEC, protect_special=protect, temperature=temperature)
    numbers, _, model = backward(bert, unlabelled, ROWS, how)
    a, b = views.parse(SPEC, protect_special=protect)
    first, second = (
        [seen(model, unlabelled.sentence(row, 0), one, int(row), number) for row in ROWS]
        for number, one in enumerate((a, b))
    )
    expected = two_views(first, second, temperature).item()
    assert numbers["loss"].item() == pytest.approx(expected, rel=1e-4)
    assert two_views(first, first, temperature).item() != pytest.approx(expected, rel=1e-3), "views change nothing"


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize(
    ("objective", "given"),
    [
        ("views", {"views": "feature-cutoff:0.2,dropout:0.2"}),
        ("joint", {"views": "shuffle,adversarial:0.5"}),
        ("nt-xent", {"pooler": "pooler"}),
    ],
)
def test_parts_change_neither_draws_nor_gradients(
    bert: BertModel, unlabelled: Examples, labelled: Examples, objective: str, given: dict[str, str], size: int
) -> None:
    how = settings(objective, temperature=0.1, **given)
    examples = unlabelled if objective == "views" else labelled
    whole, gradients, _ = backward(bert, examples, ROWS, how)
    numbers, in_parts, _ = backward(bert, examples, ROWS, how.changed(chunk=size))
    assert numbers["loss"].item() == pytest.approx(whole["loss"].item(), rel=1e-6)
    for name, gradient in gradients.items():
        torch.testing.assert_close(in_parts[name], gradient, atol=1e-5, rtol=0, msg=name)


def test_edacse_is_simcse_plus_lambda_times_punctuation(bert: BertModel, unlabelled: Examples, tiny: Path) -> None:
    tokenizer = Tokenizer.load(tiny)
    how = settings("simcse", eda_weight=0.6, marks_most=3)
    numbers, _, model = backward(bert, unlabelled, ROWS, how, augment=Punctuation(tokenizer, seed=9, most=3))
    plain = [seen(model, unlabelled.sentence(row, 0), views.View(), 0, 0) for row in ROWS]
    marked = []
    for row in ROWS:
        text = insert(ANCHORS[row], seed=9, epoch=1, key=int(row), most=3)
        assert text != ANCHORS[row]
        ids = [tokenizer.cls, *tokenizer.encode([text])[0], tokenizer.sep]
        marked.append(seen(model, ids, views.View(), 0, 0))
    own, to_marked = (nt_xent(plain, other, temperature=0.05).item() for other in (plain, marked))
    assert numbers["loss"].item() == pytest.approx(own + 0.6 * to_marked, rel=1e-4)
    alone = backward(bert, unlabelled, ROWS, settings("simcse"))[0]
    assert alone["loss"].item() == pytest.approx(own, rel=1e-4)


@pytest.mark.parametrize("chunk", [0, 5])
def test_simcse_draws_two_masks_of_dropout(
    bert: BertModel, unlabelled: Examples, tiny: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    seen_by_the_loss, loss = [], SimCSE.loss

    def watched(self: SimCSE, model: ContrastiveModel, vectors: torch.Tensor, *rest: Any) -> Any:
        seen_by_the_loss.append(vectors.detach().double().numpy())
        return loss(self, model, vectors, *rest)

    monkeypatch.setattr(SimCSE, "loss", watched)
    how = settings("simcse", eda_weight=0.6, marks_most=3, chunk=chunk)
    augment = Punctuation(Tokenizer.load(tiny), seed=9, most=3)
    numbers = backward(bert, unlabelled, ROWS, how, train=True, augment=augment)[0]
    first, second, marked = np.split(seen_by_the_loss[0], 3)
    assert (np.abs(first - second).max(1) > 1e-3).all(), "both passes have the same mask"
    own, to_marked = (nt_xent(first, other, temperature=0.05).item() for other in (second, marked))
    assert numbers["loss"].item() == pytest.approx(own + 0.6 * to_marked, rel=1e-4)


def test_an_adversarial_pass_has_dropout_of_its_own_counter(bert: BertModel, labelled: Examples) -> None:
    how = settings("joint", views="none,adversarial:0.5")
    losses = []
    for state in (1, 2):
        model = ContrastiveModel(how, bert).train()
        torch.manual_seed(state)
        context = StepContext(9, 7, "fp32", torch.device("cpu"))
        step = ContrastiveTrainStep(how.objective, labelled)
        losses.append(step.backward(model, PlannedBatch("nli", ROWS, 1, 7), context)["loss"])
    assert torch.equal(*losses)


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
def test_joint_is_classification_plus_alpha_times_views(
    bert: BertModel, labelled: Examples, spec: str, encodings: int, protect: bool
) -> None:
    """The released code sums both sides and both directions; a view `none` is the encoding that is classified."""
    how = settings("joint", views=spec, temperature=0.07, alpha=0.3, protect_special=protect)
    numbers, gradients, model = backward(bert, labelled, ROWS, how)
    texts = [[labelled.sentence(row, column) for row in ROWS] for column in (0, 1)]
    u, v = ([seen(model, ids, views.View(), 0, 2) for ids in side] for side in texts)
    weight, bias = (p.detach().double().numpy() for p in (model.classifier.weight, model.classifier.bias))
    logits = np.array([np.concatenate([a, b, abs(a - b)]) for a, b in zip(u, v, strict=True)]) @ weight.T + bias
    gold = np.array(LABELS)[ROWS].astype(int)
    classified = -(logits[np.arange(4), gold] - np.log(np.exp(logits).sum(1))).mean()
    assert numbers["classification_loss"].item() == pytest.approx(classified, rel=1e-4)
    assert numbers["loss"].item() == pytest.approx(
        numbers["classification_loss"].item() + 0.3 * numbers["views_loss"].item(), rel=1e-6
    )
    assert "classifier.weight" in gradients

    parsed = views.parse(spec, protect_special=protect)
    contrast = 0.0
    for column, side in enumerate(texts):
        added = perturbations(model, texts, gold, 0.5, protect)[column] if "adversarial" in spec else [None] * 4
        first, second = (
            [
                seen(model, ids, one, int(row) * 2 + column, number, extra if number == 0 else None)
                for row, ids, extra in zip(ROWS, side, added, strict=True)
            ]
            for number, one in enumerate(parsed)
        )
        contrast += 2 * two_views(first, second, 0.07).item()  # of two directions, each a mean over half of the views
    assert numbers["views_loss"].item() == pytest.approx(contrast, rel=1e-3)
    assert len(how.objective.encoded(labelled)) == encodings


def perturbations(
    model: ContrastiveModel, texts: list[list[list[int]]], gold: np.ndarray, eps: float, protect: bool
) -> list[list[Any]]:
    """eps * g / |g| for every token, or all but the first and the last, by autograd over one pair at a time."""
    found: list[list[Any]] = [[], []]
    for pair, label in zip(zip(*texts, strict=True), gold, strict=True):
        raggeds = [Ragged.from_lists([ids]) for ids in pair]
        inputs = [model.encoder.embed(ragged).detach().requires_grad_() for ragged in raggeds]
        states = [
            model.encoder.encode(x, ragged)[-1].mean(0, keepdim=True) for x, ragged in zip(inputs, raggeds, strict=True)
        ]
        logits = model.classify(softmax_features(*states))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([int(label)]))
        for side, gradient in enumerate(torch.autograd.grad(loss, inputs)):
            change = eps * gradient / gradient.norm(dim=1, keepdim=True)
            if protect:
                change[[0, -1]] = 0
            found[side].append(change)
    return found


@pytest.mark.parametrize("marks", ["english", "chinese"])
def test_column_1_is_the_text_with_punctuation(unlabelled: Examples, tiny: Path, marks: str) -> None:
    tokenizer = Tokenizer.load(tiny)
    changed = Punctuation(tokenizer, seed=9, most=2, marks=marks)(unlabelled, PlannedBatch("nli", ROWS, 4, 0))
    for row in ROWS:
        assert changed.sentence(row, 0) == unlabelled.sentence(row, 0)
        text = insert(ANCHORS[row], seed=9, epoch=4, key=int(row), most=2, marks=marks)
        assert changed.sentence(row, 1) == [tokenizer.cls, *tokenizer.encode([text])[0], tokenizer.sep]
