"""Guards: the losses of classified NLI pairs, apart or read together, with phrases, are those of plain references.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_nli.py
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertModel as TransformersBert
from transformers import BertTokenizer

from minbert.bert import BertModel
from tasks.contrastive.nli import CrossTrainStep, SoftmaxTrainStep
from tasks.contrastive.step import ContrastiveModel
from tasks.examples import Examples
from tests.tasks.contrastive.conftest import ANCHORS, LABELS, POSITIVES, run_step, vectors_of

ROWS = np.array([4, 0, 3, 1])


def test_softmax_is_cross_entropy_over_features(bert: BertModel, labelled: Examples) -> None:
    """Over [u; v; |u - v|] (SBERT, section 3), in float64."""
    model = ContrastiveModel(bert, "mean", seed=9, classifier=(3, 3)).eval()
    metrics, gradients = run_step(SoftmaxTrainStep(labelled), model, ROWS)
    u, v = vectors_of(model, labelled, ROWS)
    weight = model.classifier.weight.detach().double().numpy()
    bias = model.classifier.bias.detach().double().numpy()
    logits = np.concatenate([u, v, abs(u - v)], axis=1) @ weight.T + bias
    gold = np.array(LABELS)[ROWS].astype(int)
    log_probabilities = logits[np.arange(len(gold)), gold] - np.log(np.exp(logits).sum(1))
    assert metrics["loss"].item() == pytest.approx(-log_probabilities.mean(), rel=1e-4)
    assert metrics["accuracy"].item() == pytest.approx((logits.argmax(1) == gold).mean())
    assert "classifier.weight" in gradients


@pytest.mark.parametrize("phrases", [False, True])
def test_cross_equals_transformers(bert: BertModel, tiny: Path, examples_of: Callable[..., Any], phrases: bool) -> None:
    """By transformers' mean vector of each row. With phrases rows 0 and 3 are some, and 4 and 1 are pairs."""
    rows = [*zip(ANCHORS, POSITIVES, map(int, LABELS), strict=True)]
    if phrases:
        rows[0] = ANCHORS[0], "", 3
        rows[3] = ANCHORS[3], "", 4
    examples = examples_of([row[:2] for row in rows], [row[2] for row in rows])
    model = ContrastiveModel(bert, "mean", seed=9, classifier=(1, 5 if phrases else 3)).eval()
    metrics, gradients = run_step(CrossTrainStep(examples), model, ROWS)
    assert gradients["classifier.weight"].isfinite().all()
    assert "encoder.tk_type_embedding.weight" in gradients

    tokenizer = BertTokenizer.from_pretrained(tiny)
    transformers_bert = TransformersBert.from_pretrained(tiny).eval()
    losses = []
    right = 0
    for row in ROWS:
        first, second, label = rows[row]
        tokens = tokenizer(*[text for text in (first, second) if text], return_tensors="pt")
        logits = model.classifier(transformers_bert(**tokens).last_hidden_state.mean(1)).double()
        # a row's softmax is over the classes of its kind
        logits = logits[:, :3] if label < 3 else logits[:, 3:]
        gold = torch.tensor([label % 3])
        losses.append(torch.nn.functional.cross_entropy(logits, gold))
        right += int(logits.argmax() == gold)
    assert metrics["loss"].item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    assert metrics["accuracy"].item() == right / len(ROWS)
