"""Guards: what a run says of its encoder before and after training, and what goes into no encoder folder.

python -m pytest --import-mode=importlib tests/contrastive/test_outcome.py
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from minbert.bert import BertModel
from minbert.encode import Encoder
from minbert.ragged import Ragged
from minbert.tokenizer import Tokenizer
from minbert.training.plan import Plan
from minbert.training.run import RunDir
from minbert.weights import save
from tasks.contrastive.curriculum import Paced, Similarities
from tasks.contrastive.data import Data
from tasks.contrastive.dev_sets import DevSets
from tasks.contrastive.model import ContrastiveModel
from tasks.contrastive.outcome import Evaluation, Kept, Look, last_epoch_loss
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Pair, Triplet

LOOKS = {"sts_dev_spearman", "alignment", "uniformity"}
OF_TRIPLETS = {"triplet_accuracy", "full_pass_loss"}
TEXTS = ["the cat sat on a mat", "who is sad ?", "a tree"]
KEPT = Kept(step=3, last=9, best=3, rule="best", metric="spearman")


@pytest.fixture
def encoder(bert: BertModel, tiny: Path) -> Encoder:
    return Encoder(bert, Tokenizer.load(tiny), "mean", precision="fp32")


@pytest.fixture
def sts(view: Callable[..., Any]) -> Pair:
    first, second = ["the cat sat", "a dog runs", "a tree"], ["the cat is on a mat", "a dog sleeps", "the tree ."]
    found: Pair = view(first, second, labels=[3.0, 1.5, 5.0])
    return found


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.begin({"settings": {}})
    made.log({"kind": "train", "step": 2, "epoch": 1, "lr": 1e-5, "nli/loss": 2.5})
    made.log({"kind": "evaluation", "step": 2, "epoch": 1, "score": 0.7, "best": True, "sts_dev_spearman": 0.7})
    return made


def settings(**more: Any) -> ContrastiveSettings:
    return ContrastiveSettings.of(**({"batch_size": 2, "pooler": "mean", "margin": 0.1, "precision": "fp32"} | more))


def shake(bert: BertModel) -> None:
    with torch.no_grad():
        for parameter in bert.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)


def cosines(encoder: Encoder, examples: Any, rows: int) -> list[np.ndarray]:
    """cos(anchor, positive) and cos(anchor, hard negative) of the first rows, in float64."""
    texts = [[examples.cache.text(row, column) for row in range(rows)] for column in range(3)]
    sides = [encoder.encode(side).astype(np.float64) for side in texts]
    anchor, *others = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
    return [(anchor * other).sum(1) for other in others]


@pytest.mark.parametrize("limit", [0, 2, 4, 100])
def test_a_look_is_made_on_the_first_triplets_and_the_encoder_as_it_is_now(
    encoder: Encoder, bert: BertModel, triplets: Triplet, sts: Pair, limit: int
) -> None:
    evaluation = Evaluation(
        settings(evaluate_triplets=limit), encoder, Data(triplets, DevSets("course", {"sts": sts}), {})
    )
    before = evaluation.look()
    assert before.cosines is not None
    shake(bert)
    after = evaluation.look()
    count = min(limit or len(triplets), len(triplets))
    for side, wanted in zip(
        (after.cosines.positive, after.cosines.negative), cosines(encoder, triplets, count), strict=True
    ):
        np.testing.assert_allclose(side, wanted, atol=1e-5)
    assert not np.allclose(before.cosines.positive, after.cosines.positive)
    assert set(after.numbers) == LOOKS | OF_TRIPLETS
    positive, negative = cosines(encoder, triplets, count)
    assert after.numbers["triplet_accuracy"] == pytest.approx((positive > negative).mean())
    assert evaluation.evaluate() == (after.numbers["sts_dev_spearman"], after.numbers), "dropout is off: twice the same"


def test_the_metric_chooses_and_the_loss_counts_downwards(encoder: Encoder, triplets: Triplet, sts: Pair) -> None:
    data = Data(triplets, DevSets("course", {"sts": sts}), {})
    for metric, name, sign in (("accuracy", "triplet_accuracy", 1), ("loss", "full_pass_loss", -1)):
        score, numbers = Evaluation(settings(metric=metric), encoder, data).evaluate()
        assert score == sign * numbers[name]
    cold, warm, judged_cold = (
        Evaluation(settings(**given), encoder, data).evaluate()[1]["full_pass_loss"]
        for given in ({"temperature": 0.05}, {"temperature": 1.0}, {"temperature": 1.0, "evaluate_temperature": 0.05})
    )
    assert cold != warm, "the frozen loss has the run's temperature"
    assert cold == judged_cold, "or its own"


def test_without_hard_negatives_or_triplets_there_are_no_cosines(
    encoder: Encoder, view: Callable[..., Any], sts: Pair
) -> None:
    pairs = view(["the cat", "a dog", "who ?"], ["a cat", "the dog", "what ?"], labels=[0.0, 1.0, 2.0])
    look = Evaluation(settings(objective="softmax"), encoder, Data(pairs, DevSets("course", {"sts": sts}), {})).look()
    assert look.cosines is None and set(look.numbers) == LOOKS
    alone = Triplet(pairs.cache, pairs.cls, pairs.sep, pairs.max_length)
    look = Evaluation(settings(order="none"), encoder, Data(alone, DevSets("course", {"sts": sts}), {})).look()
    assert look.cosines is None and set(look.numbers) == LOOKS | {"full_pass_loss"}


def plan() -> Plan:
    return Plan([1, 2], lambda epoch: [("nli", np.array([0, 1])), ("nli", np.array([4, 5]))][: epoch + 1])


def test_scores_hold_every_number_before_and_after(
    encoder: Encoder, bert: BertModel, triplets: Triplet, sts: Pair, run: RunDir
) -> None:
    evaluation = Evaluation(settings(), encoder, Data(triplets, DevSets("course", {"sts": sts}), {}))
    scored = Similarities(*np.array([[0.9, 0.9, 0.9, 0.9, 0.1, 0.1], [0.1, 0.1, 0.1, 0.85, 0.5, 0.5]]))
    paced = Paced(plan(), 6, scored, np.array([0, 0, 0, 1, 2, 2]))
    before = evaluation.look()
    shake(bert)
    after = evaluation.look()
    assert evaluation.write(run, paced, before, after, KEPT) == 2.5
    scores = json.loads((run.path / "scores.json").read_text())
    about = {"step": 3, "keep": "best", "metric": "spearman", "best_step": 3, "last_step": 9, "dev_set": "course"}
    assert scores.pop("chance_loss") == pytest.approx(np.log(4))
    assert {name: scores.pop(name) for name in about} == about and scores.pop("last_epoch_loss") == 2.5
    assert set(scores) == LOOKS | OF_TRIPLETS
    for name, pair in scores.items():
        assert pair == {"before": before.numbers[name], "after": after.numbers[name]}

    found = load_file(run.path / "cosines.safetensors")
    np.testing.assert_array_equal(found["start positive"], scored.positive)
    np.testing.assert_array_equal(found["before positive"], before.cosines.positive)
    np.testing.assert_allclose(found["after negative"], cosines(encoder, triplets, 6)[1], atol=1e-5)


def test_cosines_that_were_not_taken_are_not_written(
    encoder: Encoder, triplets: Triplet, view: Callable[..., Any], sts: Pair, run: RunDir
) -> None:
    pairs = view(["the cat", "a dog", "who ?"], ["a cat", "the dog", "what ?"], labels=[0.0, 1.0, 2.0])
    alone = Triplet(pairs.cache, pairs.cls, pairs.sep, pairs.max_length)
    for data, how, candidates in (
        (pairs, {"objective": "softmax"}, 3),
        (alone, {"order": "none"}, 2),
        (triplets, {}, 4),
    ):
        evaluation = Evaluation(settings(**how), encoder, Data(data, DevSets("course", {"sts": sts}), {}))
        look = evaluation.look()
        evaluation.write(run, Paced(plan(), 6), look, look, KEPT)
        guess = json.loads((run.path / "scores.json").read_text())["chance_loss"]
        assert guess == pytest.approx(np.log(candidates)), "rows of two texts have no hard negatives to guess among"
        assert (run.path / "cosines.safetensors").is_file() == (data is triplets)
    found = load_file(run.path / "cosines.safetensors")
    assert set(found) == {f"{when} {side}" for when in ("before", "after") for side in ("positive", "negative")}


def test_what_helps_in_training_alone_stays_out_of_the_encoder(bert: BertModel) -> None:
    names = set(bert.state_dict())
    model = ContrastiveModel(bert, "cls", projection="training", classes=3)
    assert set(bert.state_dict()) == names
    extra = {name for name in model.state_dict() if not name.startswith("encoder.")}
    assert extra == {f"{part}.{kind}" for part in ("projection", "classifier") for kind in ("weight", "bias")}
    width = bert.config.hidden_size
    assert model.projection is not None and model.classifier is not None
    assert tuple(model.projection.weight.shape) == (width, width)
    assert tuple(model.classifier.weight.shape) == (3, 3 * width)
    assert model.classifier.weight.std().item() == pytest.approx(bert.config.initializer_range, rel=0.2)
    assert not model.classifier.bias.any() and not model.projection.bias.any()
    u, v = torch.randn(2, 5, width)
    both = torch.cat([u, v, (u - v).abs()], dim=1)
    wanted = both.double() @ model.classifier.weight.double().T + model.classifier.bias.double()
    torch.testing.assert_close(model.classify(u, v).double(), wanted, rtol=1e-4, atol=1e-4)
    projected = torch.tanh(u.double() @ model.projection.weight.double().T)
    torch.testing.assert_close(model.projected(u).double(), projected, rtol=1e-5, atol=1e-5)
    assert ContrastiveModel(bert, "mean").projected(u) is u


def test_a_projection_that_is_kept_is_the_encoders_pooler(bert: BertModel, encoder: Encoder, tmp_path: Path) -> None:
    """Training, evaluation and the saved folder give the same vectors: tanh(W [CLS] + b)."""
    cls = Encoder(bert, encoder.tokenizer, "cls", precision="fp32").encode(TEXTS)
    before = bert.pooler_dense.weight.detach().clone()
    torch.manual_seed(3)
    model = ContrastiveModel(bert, "cls", projection="kept")
    assert {name for name in model.state_dict() if not name.startswith("encoder.")} == set()
    assert not torch.equal(bert.pooler_dense.weight, before), "the layer starts from random weights"
    weight, bias = (x.detach().double().numpy() for x in (bert.pooler_dense.weight, bert.pooler_dense.bias))
    wanted = np.tanh(cls.astype(np.float64) @ weight.T + bias)
    rows = [[encoder.tokenizer.cls, *ids, encoder.tokenizer.sep] for ids in encoder.tokenizer.encode(TEXTS)]
    trained = model.eval().vectors(Ragged.from_lists(rows)).detach().numpy()
    np.testing.assert_allclose(trained, wanted, atol=1e-5)
    pooler = settings(pooler="cls", projection="kept").encoder.trained_pooler
    save(tmp_path / "encoder", bert.state_dict(), bert.config, encoder.tokenizer, pooler)
    np.testing.assert_allclose(Encoder.load(tmp_path / "encoder", precision="fp32").encode(TEXTS), wanted, atol=1e-5)


def looked(score: float) -> Look:
    return Look(score, {"sts_dev_spearman": score, "full_pass_loss": -score}, None)


@pytest.mark.parametrize(
    ("kept", "before", "after", "said"),
    [
        (Kept(3, 9, 3, "best", "spearman"), 0.5, 0.6, ""),
        (Kept(9, 9, 3, "last", "spearman"), 0.5, 0.6, ""),
        (Kept(9, 9, 3, "last", "spearman"), 0.5, 0.4, "--keep best would have kept step 3"),
        (
            Kept(9, 9, 0, "last", "loss"),
            -2.0,
            -2.5,
            "by loss the last step is no better than before training (2.5000, 2.0",
        ),
        (Kept(0, 9, 0, "best", "spearman"), 0.5, 0.5, "holds the encoder that the run started from"),
    ],
)
def test_training_that_has_not_helped_is_said(kept: Kept, before: float, after: float, said: str) -> None:
    found = kept.verdict(looked(before), looked(after))
    assert said in found and bool(said) == bool(found)


def test_the_loss_of_the_last_epoch_is_the_mean_over_its_steps() -> None:
    losses = np.random.default_rng(0).normal(1, 0.2, 130)
    rows: list[dict[str, Any]] = [{"kind": "evaluation", "step": 130, "epoch": 2, "score": 0.5}]
    for start, end, epoch in ((0, 50, 1), (50, 65, 1), (65, 100, 2), (100, 130, 2)):
        rows.append({"kind": "train", "step": end, "epoch": epoch, "nli/loss": losses[start:end].mean()})
    assert last_epoch_loss(rows) == pytest.approx(losses[65:].mean())
    assert last_epoch_loss(rows[:3]) == pytest.approx(losses[:65].mean())
    assert last_epoch_loss(rows[:1]) is None
