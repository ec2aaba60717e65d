"""Guards: what a step of stage one encodes, and its losses against float64.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_objectives.py
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tasks.contrastive.model import ContrastiveModel
from transformers import BertModel as Theirs
from transformers import BertTokenizer

from minbert.bert import BertModel
from minbert.encoder import Encoder, vectors
from minbert.ragged import Ragged
from minbert.tokenizer import Tokenizer
from minbert.weights import save
from tasks.contrastive import losses
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples, Pair
from tests.tasks.contrastive.conftest import ANCHORS, LABELS, POSITIVES, backward
from tests.tasks.contrastive.formulas import nt_xent

ROWS = np.array([4, 0, 3, 1])


def settings(objective: str, **more: Any) -> ContrastiveSettings:
    return ContrastiveSettings.of(objective=objective, pooler=more.pop("pooler", "mean"), **more)


def encoded(model: ContrastiveModel, examples: Any, columns: int) -> list[np.ndarray]:
    """Vectors of each column's texts, one sentence at a time, in float64."""
    found = []
    for column in range(columns):
        one = [
            vectors(model.encoder, Ragged.from_lists([examples.sentence(row, column)]), model.pooler) for row in ROWS
        ]
        found.append(model.projected(torch.cat(one)).detach().double().numpy())
    return found


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("projection", ["none", "training", "kept"])
def test_nt_xent_is_the_formula_over_the_batch(
    bert: BertModel, triplets: Examples, labelled: Examples, hard: bool, projection: str
) -> None:
    examples = triplets if hard else labelled
    pooler = "mean" if projection == "none" else "cls"
    how = settings("nt-xent", pooler=pooler, projection=projection)
    numbers, _, model = backward(bert, examples, ROWS, how)
    expected = nt_xent(*encoded(model, examples, examples.cache.columns), temperature=0.05)
    assert numbers["loss"].item() == pytest.approx(expected.item(), rel=1e-4)


def test_triplet_margin_and_softmax_are_their_formulas(bert: BertModel, triplets: Examples, labelled: Examples) -> None:
    numbers, _, model = backward(bert, triplets, ROWS, settings("triplet", loss_margin=2.0))
    anchors, positives, negatives = encoded(model, triplets, 3)
    near, far = (np.linalg.norm(anchors - side, axis=1) for side in (positives, negatives))
    assert numbers["loss"].item() == pytest.approx(np.maximum(near - far + 2, 0).mean(), rel=1e-4)

    numbers, _, _ = backward(bert, triplets, ROWS, settings("margin", loss_margin=9.0))
    both = np.concatenate([near**2, np.maximum(9 - far, 0) ** 2])
    assert numbers["loss"].item() == pytest.approx(both.mean() / 2, rel=1e-4)

    numbers, gradients, model = backward(bert, labelled, ROWS, settings("softmax"))
    u, v = encoded(model, labelled, 2)
    weight, bias = (p.detach().double().numpy() for p in (model.classifier.weight, model.classifier.bias))
    logits = np.concatenate([u, v, abs(u - v)], axis=1) @ weight.T + bias
    gold = np.array(LABELS)[ROWS].astype(int)
    picked = logits[np.arange(len(gold)), gold] - np.log(np.exp(logits).sum(1))
    assert numbers["loss"].item() == pytest.approx(-picked.mean(), rel=1e-4)
    assert "classifier.weight" in gradients
    assert numbers["accuracy"].item() == pytest.approx((logits.argmax(1) == gold).mean())


@pytest.mark.parametrize("phrases", [False, True])
def test_pairs_are_read_together_and_phrases_alone_with_their_own_two_classes(
    bert: BertModel, tiny: Path, examples_of: Callable[..., Any], phrases: bool
) -> None:
    """By transformers' mean vector of each row. With phrases rows 0 and 3 are some, and 4 and 1 are pairs."""
    pairs = [*zip(ANCHORS, POSITIVES, map(int, LABELS), strict=True)]
    rows = [(row[0], "", 3 + (n > 0)) if phrases and n in (0, 3) else row for n, row in enumerate(pairs)]
    examples = examples_of([row[:2] for row in rows], [row[2] for row in rows], kind=Pair)
    how = settings("cross", keep="last", phrases="sst" if phrases else "")
    numbers, gradients, model = backward(bert, examples, ROWS, how)
    assert model.classifier.out_features == 3 + 2 * phrases and gradients["classifier.weight"].isfinite().all()
    assert "encoder.tk_type_embedding.weight" in gradients

    tokenizer, theirs, losses, right = BertTokenizer.from_pretrained(tiny), Theirs.from_pretrained(tiny).eval(), [], 0
    for first, second, label in (rows[row] for row in ROWS):
        tokens = tokenizer(*[text for text in (first, second) if text], return_tensors="pt")
        logits = model.classifier(theirs(**tokens).last_hidden_state.mean(1)).double()
        own = logits[:, :3] if label < 3 else logits[:, 3:]
        gold = torch.tensor([label if label < 3 else label - 3])
        losses.append(torch.nn.functional.cross_entropy(own, gold))
        right += int(own.argmax() == gold)
    assert numbers["loss"].item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    assert numbers["accuracy"].item() == right / len(ROWS)


@pytest.mark.parametrize("rows", [1, 5, 32])
@pytest.mark.parametrize("columns", [2, 3])
def test_chance_is_the_loss_of_equal_vectors(rows: int, columns: int) -> None:
    def chance(objective: str, **given: Any) -> Any:
        return settings(objective, **given).objective.chance(rows, columns)

    same = torch.ones(rows, 7)
    expected = float(losses.nt_xent(same, same, same if columns == 3 else None, 0.05))
    assert chance("nt-xent") == pytest.approx(expected, rel=1e-6, abs=1e-5)
    views = float(losses.nt_xent_from_logits(losses.view_logits(same, same, 0.05)))
    assert chance("views", texts="sts", views="none,shuffle") == pytest.approx(views, abs=1e-5)
    joint = chance("joint", views="none,shuffle", alpha=2.0)
    assert joint == pytest.approx(math.log(3) + 2 * 4 * views, abs=1e-5)
    simcse = float(losses.nt_xent(same, same, None, 0.05))
    assert chance("simcse", texts="sts", eda_weight=0.5, marks_most=2) == pytest.approx(1.5 * simcse, abs=1e-5)
    assert chance("triplet") is None and chance("cross", keep="last", phrases="sst") is None


def test_a_projection_that_is_kept_is_the_encoders_pooler(bert: BertModel, tiny: Path, tmp_path: Path) -> None:
    """Training and the saved folder give the same vectors: tanh(W [CLS] + b)."""
    tokenizer = Tokenizer.load(tiny)
    cls = Encoder(bert, tokenizer, "cls", precision="fp32").encode(ANCHORS)
    before = bert.pooler_dense.weight.detach().clone()
    how = settings("nt-xent", pooler="cls", projection="kept")
    model = ContrastiveModel(how, bert)
    assert not torch.equal(bert.pooler_dense.weight, before), "the layer starts from random weights"
    weight, bias = (x.detach().double().numpy() for x in (bert.pooler_dense.weight, bert.pooler_dense.bias))
    wanted = np.tanh(cls.astype(np.float64) @ weight.T + bias)
    rows = [[tokenizer.cls, *ids, tokenizer.sep] for ids in tokenizer.encode(ANCHORS)]
    np.testing.assert_allclose(model.eval().vectors(Ragged.from_lists(rows)).detach().numpy(), wanted, atol=1e-5)
    save(tmp_path / "encoder", bert.state_dict(), bert.config, tokenizer, how.encoder.trained_pooler)
    np.testing.assert_allclose(Encoder.load(tmp_path / "encoder", precision="fp32").encode(ANCHORS), wanted, atol=1e-5)
