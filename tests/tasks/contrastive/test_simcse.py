"""Guards: SimCSE contrasts two passes under dropout; EdaCSE adds lambda times the text with punctuation.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_simcse.py
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from minbert.bert import BertModel
from minbert.ragged import Ragged
from minbert.tokenizer import Tokenizer
from minbert.train.plan import PlannedBatch
from tasks.augment.punctuation import Punctuation, insert, insertions
from tasks.contrastive import simcse
from tasks.contrastive.simcse import LossSettings, SimcseTrainStep
from tasks.contrastive.step import ContrastiveModel, Metrics
from tasks.examples import Examples
from tests.tasks.contrastive.conftest import ANCHORS, Prepared, run_step, vectors_of, write
from tests.tasks.contrastive.formulas import nt_xent

ROWS = np.array([5, 0, 2, 3])
EDACSE = LossSettings(eda_weight=0.6, marks_most=3)


@pytest.fixture
def model(bert: BertModel) -> ContrastiveModel:
    """The tiny BERT, without dropout."""
    return ContrastiveModel(bert, "mean", seed=9).eval()


@pytest.mark.parametrize("marks", ["english", "extra"])
def test_edacse_adds_weighted_punctuation_loss(
    model: ContrastiveModel, unlabelled: Examples, tokenizer: Tokenizer, marks: str
) -> None:
    step = SimcseTrainStep(unlabelled, Punctuation(9, 3, marks), loss_settings=EDACSE)
    metrics, _ = run_step(step, model, ROWS)
    (plain,) = vectors_of(model, unlabelled, ROWS)
    punctuated = []
    for row in ROWS.tolist():
        chosen = insertions(ANCHORS[row], seed=9, epoch=1, key=row, most=3, marks=marks)
        text = insert(ANCHORS[row], chosen)
        assert text != ANCHORS[row]
        ids = [tokenizer.cls, *tokenizer.encode([text])[0], tokenizer.sep]
        punctuated.append(model.vectors(Ragged.from_lists([ids]))[0].detach().double().numpy())
    simcse = nt_xent(plain, plain, temperature=0.05).item()
    eda = nt_xent(plain, punctuated, temperature=0.05).item()
    assert metrics["loss"].item() == pytest.approx(simcse + 0.6 * eda, rel=1e-4)
    assert metrics["punctuation_loss"].item() == pytest.approx(eda, rel=1e-4)
    metrics, _ = run_step(SimcseTrainStep(unlabelled), model, ROWS)
    assert metrics["loss"].item() == pytest.approx(simcse, rel=1e-4)


def test_marks_are_those_of_the_flags(prepare: Callable[..., Prepared], tmp_path: Path) -> None:
    texts = write(tmp_path / "texts.txt", "\n".join(ANCHORS))
    flags = ("--sts-dev", "none", "--keep", "last", "--eda-weight", 0.5, "--marks-most", 2, "--marks", "extra")
    step, _ = prepare(simcse, "--texts", texts, *flags, "--seed", 7)
    assert step.augment == Punctuation(7, 2, "extra")


class WatchedStep(SimcseTrainStep):
    """Records the vectors that the loss sees."""

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        object.__setattr__(self, "seen", vectors.detach().double().numpy())
        return super().loss(model, vectors, batch)


@pytest.mark.parametrize("chunk", [0, 5])
def test_passes_have_different_dropout(model: ContrastiveModel, unlabelled: Examples, chunk: int) -> None:
    step = WatchedStep(unlabelled, chunk=chunk)
    metrics, _ = run_step(step, model.train(), ROWS)
    first, second = np.split(step.seen, 2)
    assert (np.abs(first - second).max(1) > 1e-3).all(), "both passes have the same mask"
    assert metrics["loss"].item() == pytest.approx(nt_xent(first, second, temperature=0.05).item(), rel=1e-4)
