"""Guards: the losses of pretrain_cbcl.py are their formulas over the batch, and its data fit them.

The script itself: tests/e2e/test_pretrain_cbcl.py.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_pretrain_cbcl.py
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pretrain_cbcl
from minbert import UserError
from minbert.bert import BertModel
from pretrain_cbcl import LossSettings, PretrainSettings, TripletTrainStep, chance_loss, find_data
from tasks.contrastive import losses
from tasks.contrastive.step import ContrastiveModel
from tasks.examples import Examples
from tests.tasks.contrastive.conftest import Prepared, run_step, vectors_of, write_pairs
from tests.tasks.contrastive.formulas import nt_xent

SAMPLE = Path(__file__).parents[3] / "data" / "sample"
ROWS = np.array([4, 0, 3, 1])


@pytest.mark.parametrize("hard_negatives", [True, False])
@pytest.mark.parametrize("projection", ["none", "training", "kept"])
def test_nt_xent_is_over_the_batch(
    bert: BertModel, triplets: Examples, labelled: Examples, hard_negatives: bool, projection: str
) -> None:
    examples = triplets if hard_negatives else labelled
    pooler = "mean" if projection == "none" else "cls"
    model = ContrastiveModel(bert, pooler, seed=9, projection=projection).eval()
    metrics, gradients = run_step(TripletTrainStep(examples), model, ROWS)
    vectors = vectors_of(model, examples, ROWS)
    expected = nt_xent(*vectors, temperature=0.05)
    assert metrics["loss"].item() == pytest.approx(expected.item(), rel=1e-4)
    anchors, *candidates = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in vectors]
    nearest = (anchors @ np.concatenate(candidates).T).argmax(1)
    assert metrics["accuracy"].item() == pytest.approx((nearest == np.arange(len(ROWS))).mean())
    trained = {"training": {"projection.weight"}, "kept": {"encoder.pooler_dense.weight"}}
    layers = {"projection.weight", "encoder.pooler_dense.weight"}
    assert layers & gradients.keys() == trained.get(projection, set())


def test_triplet_and_margin_are_their_formulas(bert: BertModel, triplets: Examples) -> None:
    model = ContrastiveModel(bert, "mean", seed=9).eval()
    anchors, positives, negatives = vectors_of(model, triplets, ROWS)
    near = np.linalg.norm(anchors - positives, axis=1)
    far = np.linalg.norm(anchors - negatives, axis=1)

    triplet_loss = LossSettings(objective="triplet", loss_margin=2.0)
    metrics, _ = run_step(TripletTrainStep(triplets, loss_settings=triplet_loss), model, ROWS)
    assert metrics["loss"].item() == pytest.approx(np.maximum(near - far + 2, 0).mean(), rel=1e-4)

    margin_loss = LossSettings(objective="margin", loss_margin=9.0)
    metrics, _ = run_step(TripletTrainStep(triplets, loss_settings=margin_loss), model, ROWS)
    pairs = np.concatenate([near**2, np.maximum(9 - far, 0) ** 2])
    assert metrics["loss"].item() == pytest.approx(pairs.mean() / 2, rel=1e-4)


def test_data_are_those_of_the_flags(
    prepare: Callable[..., Prepared],
    write_wordnet: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Triplets of labelled pairs, synonyms of all senses, and some of the dev pairs."""
    senses = (("n", {"cat": 9, "feline": 1}), ("n", {"cat": 1, "caterpillar": 1}))
    monkeypatch.setenv("NLTK_DATA", str(write_wordnet(tmp_path / "nltk", *senses)))
    hypotheses = [("a cat sat", "entailment"), ("a cat", "entailment"), ("a dog runs", "contradiction")]
    hypotheses.append(("the bird", "contradiction"))
    pairs = write_pairs(tmp_path / "pairs.tsv", [("the cat sat", *row) for row in hypotheses])
    flags = ("--triplets", pairs, "--per-premise", "cross", "--data", SAMPLE, "--limit-eval", 5)
    _, data = prepare(pretrain_cbcl, *flags, "--synonyms", "1", "--synonyms-senses", "all")
    assert (len(data.train), len(data.dev)) == (4, 5)
    assert "cat -> feline (of 2)" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [1, 5, 32])
@pytest.mark.parametrize("columns", [2, 3])
def test_chance_is_loss_of_equal_vectors(rows: int, columns: int) -> None:
    same = torch.ones(rows, 7)
    expected = float(losses.nt_xent(same, same, same if columns == 3 else None, 0.05))
    assert chance_loss(LossSettings(), rows, columns) == pytest.approx(expected, rel=1e-6, abs=1e-5)
    assert chance_loss(LossSettings(objective="triplet"), rows, columns) is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"objective": "triplet", "order": "none"}, "two.csv: no column .* which --objective triplet needs"),
        ({"order": "none", "per_premise": "zip"}, "--per-premise belongs to labelled NLI pairs; .*two.csv holds none"),
        ({"order": "anti"}, "two.csv: no column .* which --order anti needs; for pairs choose"),
    ],
)
def test_pairs_need_suitable_settings(tmp_path: Path, flags: dict[str, Any], message: str) -> None:
    path = tmp_path / "two.csv"
    path.write_text("anchor,positive\na tree.,the tree.\n")
    usual = {"triplets": str(path), "data": str(SAMPLE)}
    with pytest.raises(UserError, match=message):
        find_data(PretrainSettings.of(**usual, **flags))
    for order in ("none", "random"):
        assert find_data(PretrainSettings.of(**usual, order=order)).num_texts == 2
    for name in ("negative", "hard_negative"):
        path.write_text(f"anchor,positive,{name}\na tree.,the tree.,no tree.\n")
        assert find_data(PretrainSettings.of(**usual)).num_texts == 3
