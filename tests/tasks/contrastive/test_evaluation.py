"""Guards: the numbers of an evaluation are their definitions, what is undefined loses, and what a run says of itself.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_evaluation.py
"""

import json
import math
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tasks.contrastive.data import Data

from minbert.encoder import Encoder
from minbert.train.loop import LoopState
from minbert.train.plan import Plan
from tasks.contrastive import evaluation
from tasks.contrastive.dev import DevSets
from tasks.contrastive.evaluation import Evaluation, EvaluationResult, last_epoch_loss, unit, verdict
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples
from tests.tasks.contrastive import formulas

PAIRS = [
    ("the cat sat on the mat", "a cat sat on a mat", 4.8),
    ("the cat sat on the mat", "who is happy?", 0.4),
    ("a dog runs", "the dog runs", 4.0),
    ("the bird sleeps", "a bird is under the tree", 2.5),
    ("a sad dog", "the cat sat on the mat", 1.0),
]
TRIPLETS = [
    ("the cat sat on the mat", "a cat sat", "the cat runs"),
    ("a dog runs", "the dog is not sad", "the dog sleeps"),
    ("the bird sleeps", "the bird is happy", "who is under the tree?"),
    ("a tree", "the tree", "what?"),
    ("the cat sat on the mat", "the cat is on a mat", "a very sad bird"),
]
OTHERS = [*((b, a) for a, b, _ in reversed(PAIRS)), ("a tree", "who sat?")]
CLASSES = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]


@pytest.fixture
def pairs(examples_of: Callable[..., Any]) -> Examples:
    return examples_of([row[:2] for row in PAIRS], [gold for *_, gold in PAIRS])


@pytest.fixture
def classes(examples_of: Callable[..., Any]) -> Examples:
    """Pairs of two classes."""
    return examples_of(OTHERS, CLASSES)


@pytest.fixture
def triplets(examples_of: Callable[..., Any]) -> Examples:
    return examples_of(TRIPLETS)


def evaluate(
    encoder: Encoder, dev: dict[str, Examples], train: Any = None, rows: Sequence[int] = range(5), batch_size: int = 32
) -> Evaluation:
    """An evaluation of the trained rows of triplets, or without `train` of dev pairs alone."""
    settings = ContrastiveSettings.of(objective="triplet" if train else "softmax", batch_size=batch_size)
    data = Data(train or next(iter(dev.values())), DevSets("course", dev), {})
    return Evaluation(settings, encoder, data, np.array(rows))


def cosine(u: np.ndarray, v: np.ndarray) -> float:
    return formulas.cosine(u, v).item()


def mean_loss(rows: list[tuple[np.ndarray, ...]], batch_size: int, temperature: float) -> float:
    batches = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    losses = [formulas.nt_xent(*zip(*batch, strict=True), temperature=temperature).item() for batch in batches]
    return float(np.average(losses, weights=[len(batch) for batch in batches]))


def by_hand(encoder: Encoder, rows: Sequence[int], batch_size: int, temperature: float) -> dict[str, float]:
    """Every number, one pair at a time in float64."""
    pairs = [(*encoder.encode([a, b]), gold) for a, b, gold in PAIRS]
    sentences = [u for u, _, _ in pairs] + [v for _, v, _ in pairs]
    kernel = [math.exp(-4 * (1 - cosine(u, v))) for u, v in combinations(sentences, 2)]
    vectors = [tuple(encoder.encode(list(TRIPLETS[row]))) for row in rows]
    return {
        "sts_dev_spearman": stats.spearmanr([cosine(u, v) for u, v, _ in pairs], [g for *_, g in pairs]).statistic,
        "alignment": np.mean([2 - 2 * cosine(u, v) for u, v, gold in pairs if gold >= 4]),
        "uniformity": math.log(sum(kernel) / len(kernel)),
        "triplet_accuracy": np.mean([cosine(a, p) > cosine(a, n) for a, p, n in vectors]),
        "frozen_loss": mean_loss(vectors, batch_size, temperature),
    }


@pytest.mark.parametrize(
    ("trained", "limit", "rows", "batch_size"),
    [(range(5), 5, range(5), 2), (range(5), 3, range(3), 64), ([1, 3, 4], 2, [1, 3], 2), ([1, 3, 4], 99, [1, 3, 4], 5)],
)
def test_numbers_are_their_definitions_and_spearman_is_maximised(
    encoder: Encoder,
    pairs: Examples,
    triplets: Examples,
    monkeypatch: pytest.MonkeyPatch,
    trained: Sequence[int],
    limit: int,
    rows: Sequence[int],
    batch_size: int,
) -> None:
    monkeypatch.setattr(evaluation, "TRIPLETS_EVALUATED", limit)
    found = evaluate(encoder, {"sts": pairs}, triplets, trained, batch_size=batch_size).evaluate()
    expected = by_hand(encoder, rows, batch_size, 0.05)
    assert found.numbers == pytest.approx(expected, abs=1e-5)
    assert found.score == found.numbers["sts_dev_spearman"]
    assert found.dev_cosines["sts"] == pytest.approx([cosine(*encoder.encode([a, b])) for a, b, _ in PAIRS], abs=1e-5)


def test_each_text_is_encoded_once_an_evaluation_with_dropout_off(
    encoder: Encoder, pairs: Examples, triplets: Examples, calls: list[tuple[str, int]]
) -> None:
    made = evaluate(encoder, {"sts": pairs}, triplets)
    texts = {text for *row, _ in PAIRS for text in row} | {text for row in TRIPLETS for text in row}
    first = made.score()
    encoder.model.train()
    assert made.score() == first and calls == [("mean", len(texts))] * 2
    with torch.no_grad():
        encoder.model.word_embedding.weight.mul_(torch.randn(1, encoder.model.config.hidden_size))
    assert made.score() != first, "the encoder as it is now"


def test_of_several_dev_sets_the_mean_chooses_and_each_ones_own_is_told(
    encoder: Encoder, pairs: Examples, classes: Examples
) -> None:
    found = evaluate(encoder, {"PAWS-X": classes, "STS-B": pairs}).evaluate()
    own = stats.spearmanr([cosine(*encoder.encode(list(row))) for row in OTHERS], CLASSES).statistic
    expected = by_hand(encoder, [0], 1, 1.0)
    numbers = found.numbers
    assert numbers["paws_x_dev_spearman"] == pytest.approx(own)
    assert numbers["sts_b_dev_spearman"] == pytest.approx(expected["sts_dev_spearman"])
    assert found.score == numbers["sts_dev_spearman"] == pytest.approx((own + expected["sts_dev_spearman"]) / 2)
    assert numbers["alignment"] == pytest.approx(expected["alignment"], abs=1e-5), "over the pairs with graded scores"
    assert numbers["uniformity"] == pytest.approx(expected["uniformity"], abs=1e-5)

    alone = evaluate(encoder, {"sts": classes}).evaluate().numbers
    alike = [2 - 2 * cosine(*encoder.encode(list(row))) for row, label in zip(OTHERS, CLASSES, strict=True) if label]
    assert alone["alignment"] == pytest.approx(np.mean(alike), abs=1e-5), "of two classes the second is alike"
    encoder.encode_ids = lambda rows, **_: np.ones((len(rows), 8), dtype=np.float32)  # type: ignore[method-assign]
    found = evaluate(encoder, {"PAWS-X": classes, "STS-B": pairs}).evaluate()
    assert found.numbers["sts_dev_spearman"] is None and found.score is None


def test_rows_without_hard_negatives_have_a_loss_and_no_accuracy(encoder: Encoder, pairs: Examples) -> None:
    found = evaluate(encoder, {"sts": pairs}, pairs, batch_size=3).evaluate()
    assert "triplet_accuracy" not in found.numbers
    rows = [tuple(encoder.encode([a, b])) for a, b, _ in PAIRS]
    assert found.numbers["frozen_loss"] == pytest.approx(mean_loss(rows, 3, 0.05), abs=1e-5)
    numbers = evaluate(encoder, {"sts": pairs}).evaluate().numbers
    assert numbers.keys() == {"sts_dev_spearman", "alignment", "uniformity"}, "labelled pairs are no triplets"


def test_what_is_undefined_is_none_and_is_json(encoder: Encoder, pairs: Examples, triplets: Examples) -> None:
    with torch.no_grad():
        for parameter in encoder.model.parameters():
            parameter.fill_(math.nan)
    score, numbers = evaluate(encoder, {"sts": pairs}, triplets).score()
    assert set(numbers.values()) == {None} and score is None
    json.dumps([score, numbers], allow_nan=False)
    assert evaluation.alignment(np.zeros((0, 3)), np.zeros((0, 3))) is None, "no pair is alike"


@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_uniformity_by_blocks_is_uniformity_by_pairs(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_BLOCK", block)
    x = unit(np.random.default_rng(3).normal(size=(7, 4)))
    expected = math.log(np.mean([math.exp(-2 * np.square(u - v).sum()) for u, v in combinations(x, 2)]))
    assert evaluation.uniformity(x) == pytest.approx(expected, rel=1e-12)


def test_the_loss_of_the_last_epoch_is_the_mean_over_its_rows() -> None:
    """A short last batch counts by its rows; each row of the metrics is a mean over the examples since the last one."""
    losses, sizes = np.random.default_rng(0).normal(1, 0.5, 130), np.array(([8] * 64 + [3]) * 2)
    plan = Plan([65, 65], lambda epoch: [("nli", np.arange(size)) for size in sizes[65 * epoch : 65 * epoch + 65]])
    rows: list[dict[str, Any]] = [{"kind": "evaluation", "step": 130, "epoch": 2, "score": 0.5}]
    for start, end, epoch in ((0, 50, 1), (50, 65, 1), (65, 100, 2), (100, 130, 2)):
        mean = np.average(losses[start:end], weights=sizes[start:end])
        rows.append({"kind": "train", "step": end, "epoch": epoch, "nli/loss": mean})
    for upto, epoch in ((rows, slice(65, 130)), (rows[:3], slice(0, 65))):
        assert last_epoch_loss(upto, plan) == pytest.approx(np.average(losses[epoch], weights=sizes[epoch]))
    assert last_epoch_loss(rows[:1], plan) is None


def test_the_last_evaluation_is_not_computed_twice(encoder: Encoder, pairs: Examples, calls: list[Any]) -> None:
    found = evaluate(encoder, {"sts": pairs})
    found.score()
    assert found.kept(LoopState(step=9, kept_step=9)) is found.latest and len(calls) == 1
    assert found.kept(LoopState(step=9, kept_step=3)) is not found.latest and len(calls) == 2, "other weights"


@pytest.mark.parametrize(
    ("kept", "best", "after", "said"),
    [
        (9, 3, 0.6, ""),
        (9, 3, 0.4, "--keep best would have kept step 3"),
        (9, 0, 0.5, "no better than before training (0.5000, 0.5000 before); no evaluation was better"),
        (0, 0, 0.5, "holds the encoder that the run started from"),
        (9, 9, None, "spearman is undefined, so it cannot say whether training helped"),
    ],
)
def test_training_that_has_not_helped_is_said(kept: int, best: int, after: float | None, said: str) -> None:
    first, last = (EvaluationResult({"sts_dev_spearman": rho}, {}) for rho in (0.5, after))
    found = verdict(first, last, LoopState(step=9, kept_step=kept, best_step=best))
    assert found.endswith(said) and bool(said) == bool(found)


@pytest.mark.parametrize(
    ("given", "kept", "best", "said"),
    [
        ({"keep": "last"}, 12, 4, "step 12 of 12, the last"),
        ({"keep": "last", "average": 0.5}, 12, 4, "the mean of the weights over the last 50% of 12 steps"),
        ({"keep": "best", "average": 0.5}, 4, 4, "step 4 of 12, the best by spearman"),
        ({"keep": "best"}, 0, 0, "the encoder from before training"),
    ],
)
def test_a_mean_of_weights_is_not_called_a_step(given: dict[str, Any], kept: int, best: int, said: str) -> None:
    training = ContrastiveSettings.of(**given).training
    assert LoopState(step=12, kept_step=kept, best_step=best).kept_weights(training, 12) == said


def test_the_next_command_names_a_sentence_encoder_beside_a_cross_encoder() -> None:
    for objective, named in (("cross", True), ("softmax", False)):
        how = ContrastiveSettings.of(objective=objective, keep="last", weights="minilm")
        assert ("--sentence-encoder minilm" in evaluation.next_command(how, Path("x"), 384)) == named
