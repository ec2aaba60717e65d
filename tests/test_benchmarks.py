"""Guards: the benchmarks compare the same work on both sides, and the baseline scores what it was trained to predict.

python -m pytest --import-mode=importlib tests/test_benchmarks.py
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from scipy.special import expit
from scipy.stats import pearsonr

from benchmarks import single_task, train_speed
from minbert import BertModel

CPU = torch.device("cpu")


@pytest.fixture
def without_dropout(tiny_copy: Callable[..., Path]) -> Path:
    """The tiny BERT without dropout."""
    folder = tiny_copy()
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_stage_one_updates_are_equal(without_dropout: Path) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("datasets")
    examples = train_speed.read_triplets(train_speed.SAMPLE, without_dropout, 32)
    theirs = train_speed.TheirTripletStep(without_dropout, 32, 8, "fp32", CPU)
    batches = train_speed.triplet_batches(examples, 8, 4, theirs.trainer.data_collator)
    expected = [float(theirs(batch)) for batch in batches]
    for fast in (True, False):
        ours = train_speed.OurTripletStep(without_dropout, examples, "fp32", CPU, fast=fast)
        assert [float(ours(batch)) for batch in batches] == pytest.approx(expected, rel=1e-3)


def test_stage_two_vectors_are_equal(without_dropout: Path) -> None:
    pairs = train_speed.read_pairs(train_speed.SAMPLE, without_dropout)[:6]
    theirs = train_speed.their_vectors(transformers.BertModel.from_pretrained(without_dropout).eval())(pairs)
    ours = train_speed.our_vectors(BertModel.from_pretrained(without_dropout), fast=False)(pairs)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("task", "outputs"), single_task.OUTPUTS.items())
def test_baseline_is_scored_as_trained(tiny: Path, task: str, outputs: int) -> None:
    model = single_task.Classifier(tiny, outputs).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    # large logits, where a sigmoid is far from a straight line
    torch.nn.init.normal_(model.linear.weight, std=20.0)
    rows = single_task.rows_of(task, "dev", single_task.SAMPLE)
    # the tiny model has 64 positions
    rows = [replace(row, texts=tuple(text[:25] for text in row.texts)) for row in rows]
    with torch.no_grad():
        logits = torch.cat([model(single_task.encoded(tokenizer, [row])) for row in rows])
        model.linear.bias -= logits.mean(0)
    centred = (logits - logits.mean(0)).double().numpy()
    labels = np.array([row.label for row in rows])
    if task == "sts":
        expected = pearsonr(expit(centred[:, 0]), labels).statistic
    else:
        predicted = centred.argmax(1) if task == "sst" else centred[:, 0] > 0
        expected = np.mean(predicted == labels)
    assert single_task.dev_score(model, tokenizer, task, rows, "fp32") == pytest.approx(expected, abs=1e-6)
