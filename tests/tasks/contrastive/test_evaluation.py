"""Guards: the metrics of an evaluation are their definitions, and what is undefined ranks last.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_evaluation.py
"""

import math
from collections.abc import Callable
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from minbert.encoder import Encoder
from minbert.train.loop import LoopState
from minbert.train.plan import Plan
from tasks.contrastive import evaluation
from tasks.contrastive.evaluation import Evaluation, EvaluationResult, describe_failure, last_epoch_loss
from tasks.examples import Examples
from tests.tasks.contrastive import formulas
from tests.tasks.contrastive.formulas import cosine

PAIRS = [
    ("the cat sat on the mat", "a cat sat on a mat", 4.8),
    ("the cat sat on the mat", "who is happy?", 0.4),
    ("a dog runs", "the dog runs", 4.0),
    ("the bird sleeps", "a bird is under the tree", 4.2),
    ("a sad dog", "the cat sat on the mat", 1.0),
]
TRIPLETS = [
    ("the cat sat on the mat", "a cat sat", "the cat runs"),
    ("a dog runs", "the dog is not sad", "the dog sleeps"),
    ("the bird sleeps", "the bird is happy", "who is under the tree?"),
    ("a tree", "the tree", "what?"),
    ("the cat sat on the mat", "the cat is on a mat", "a very sad bird"),
]
OTHERS = [(second, first) for first, second, _ in reversed(PAIRS)]
OTHERS.append(("a tree", "who sat?"))
CLASSES = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]


@pytest.fixture
def pairs(examples_of: Callable[..., Any]) -> Examples:
    return examples_of([row[:2] for row in PAIRS], [gold for *_, gold in PAIRS])


@pytest.fixture
def triplets(examples_of: Callable[..., Any]) -> Examples:
    return examples_of(TRIPLETS)


def mean_loss(rows: list[tuple[np.ndarray, ...]], batch_size: int, temperature: float) -> float:
    total = 0.0
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        sides = zip(*batch, strict=True)
        total += formulas.nt_xent(*sides, temperature=temperature).item() * len(batch)
    return total / len(rows)


def by_hand(encoder: Encoder, batch_size: int, temperature: float) -> dict[str, float]:
    """Every number, one pair at a time in float64."""
    sentences = []
    cosines = []
    golds = []
    for first, second, gold in PAIRS:
        u, v = encoder.encode([first, second])
        sentences += [u, v]
        cosines.append(cosine(u, v))
        golds.append(gold)
    alike = [2 - 2 * similarity for similarity, gold in zip(cosines, golds, strict=True) if gold > 4]
    kernel = [math.exp(-4 * (1 - cosine(u, v))) for u, v in combinations(sentences, 2)]
    vectors = [tuple(encoder.encode(list(row))) for row in TRIPLETS]
    return {
        "sts_dev_spearman": stats.spearmanr(cosines, golds).statistic,
        "alignment": sum(alike) / len(alike),
        "uniformity": math.log(sum(kernel) / len(kernel)),
        "triplet_accuracy": np.mean([cosine(a, p) > cosine(a, n) for a, p, n in vectors]),
        "frozen_loss": mean_loss(vectors, batch_size, temperature),
    }


@pytest.mark.parametrize("batch_size", [2, 64])
def test_metrics_are_their_definitions(
    encoder: Encoder, pairs: Examples, triplets: Examples, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    monkeypatch.setattr(evaluation, "FROZEN_BATCH", batch_size)
    monkeypatch.setattr(evaluation, "_BLOCK", 3)
    result = Evaluation(encoder, {"sts": pairs}, triplets=triplets).evaluate()
    assert result.metrics == pytest.approx(by_hand(encoder, batch_size, 0.05), abs=1e-5)
    assert result.score == result.metrics["sts_dev_spearman"]
    assert result.dev_cosines["sts"] == pytest.approx([cosine(*encoder.encode([a, b])) for a, b, _ in PAIRS], abs=1e-5)


def test_metrics_ignore_scale_of_scores(encoder: Encoder, pairs: Examples, examples_of: Callable[..., Any]) -> None:
    fifths = examples_of([row[:2] for row in PAIRS], [gold / 5 for *_, gold in PAIRS])
    expected = Evaluation(encoder, {"sts": pairs}).evaluate().metrics
    assert Evaluation(encoder, {"sts": fifths}).evaluate().metrics == expected


def test_triplets_are_sampled_from_whole_file() -> None:
    rows = evaluation.evaluated_rows(20_000)
    assert len(rows) == 2000
    assert rows == sorted({*rows} & {*range(20_000)}), "in order, none twice"
    counts, _ = np.histogram(rows, bins=10, range=(0, 20_000))
    assert stats.chisquare(counts).pvalue > 0.01
    assert evaluation.evaluated_rows(5) == [0, 1, 2, 3, 4]


def test_text_is_encoded_once_without_dropout(
    encoder: Encoder, pairs: Examples, triplets: Examples, calls: list[tuple[str, int]]
) -> None:
    dev_evaluation = Evaluation(encoder, {"sts": pairs}, triplets=triplets)
    texts = set(chain(*TRIPLETS, *(row[:2] for row in PAIRS)))
    first = dev_evaluation.score()
    encoder.model.train()
    assert dev_evaluation.score() == first and calls == [("mean", len(texts))] * 2
    with torch.no_grad():
        encoder.model.word_embedding.weight.mul_(torch.randn(1, encoder.model.config.hidden_size))
    assert dev_evaluation.score() != first, "the encoder as it is now"


def test_mean_over_dev_sets_chooses(encoder: Encoder, pairs: Examples, examples_of: Callable[..., Any]) -> None:
    classes = examples_of(OTHERS, CLASSES)
    result = Evaluation(encoder, {"PAWS-X": classes, "STS-B": pairs}).evaluate()
    cosines = [cosine(*encoder.encode(list(row))) for row in OTHERS]
    rho_of_classes = stats.spearmanr(cosines, CLASSES).statistic
    expected = by_hand(encoder, 64, 0.05)
    metrics = result.metrics
    assert metrics["paws_x_dev_spearman"] == pytest.approx(rho_of_classes)
    assert metrics["sts_b_dev_spearman"] == pytest.approx(expected["sts_dev_spearman"])
    mean = (rho_of_classes + expected["sts_dev_spearman"]) / 2
    assert result.score == metrics["sts_dev_spearman"] == pytest.approx(mean)
    assert metrics["alignment"] == pytest.approx(expected["alignment"], abs=1e-5), "over the pairs with graded scores"
    assert metrics["uniformity"] == pytest.approx(expected["uniformity"], abs=1e-5)

    alone = Evaluation(encoder, {"sts": classes}).evaluate().metrics
    of_alike = np.array(cosines)[np.array(CLASSES) == 1]
    assert alone["alignment"] == pytest.approx((2 - 2 * of_alike).mean(), abs=1e-5), "the second class is alike"

    of_one_class = examples_of(OTHERS, [1.0] * len(OTHERS))
    result = Evaluation(encoder, {"PAWS-X": of_one_class, "STS-B": pairs}).evaluate()
    assert result.metrics["sts_b_dev_spearman"] is not None
    assert result.metrics["sts_dev_spearman"] is None and result.score is None


def test_pairs_have_loss_without_accuracy(encoder: Encoder, pairs: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "FROZEN_BATCH", 3)
    result = Evaluation(encoder, {"sts": pairs}, triplets=pairs).evaluate()
    assert "triplet_accuracy" not in result.metrics
    rows = [tuple(encoder.encode([a, b])) for a, b, _ in PAIRS]
    assert result.metrics["frozen_loss"] == pytest.approx(mean_loss(rows, 3, 0.05), abs=1e-5)
    metrics = Evaluation(encoder, {"sts": pairs}).evaluate().metrics
    assert metrics.keys() == {"sts_dev_spearman", "alignment", "uniformity"}, "labelled pairs are no triplets"


def test_undefined_metrics_are_none(encoder: Encoder, pairs: Examples, triplets: Examples) -> None:
    with torch.no_grad():
        for parameter in encoder.model.parameters():
            parameter.fill_(math.nan)
    score, metrics = Evaluation(encoder, {"sts": pairs}, triplets=triplets).score()
    assert set(metrics.values()) == {None} and score is None
    assert evaluation.alignment(np.zeros((0, 3)), np.zeros((0, 3))) is None, "no pair is alike"


def test_last_epoch_loss_averages_its_rows() -> None:
    """A row is a mean over the examples since the one before; a short last batch counts by its rows."""
    losses = np.random.default_rng(0).normal(1, 0.5, 20)
    sizes = [8] * 9 + [3]
    plan = Plan([10, 10], lambda epoch: [("nli", np.arange(size)) for size in sizes])
    rows: list[dict[str, Any]] = [{"kind": "evaluation", "step": 20, "epoch": 2, "score": 0.5}]
    for start, end, epoch in ((0, 10, 1), (10, 16, 2), (16, 20, 2)):
        mean = np.average(losses[start:end], weights=(sizes * 2)[start:end])
        rows.append({"kind": "train", "step": end, "epoch": epoch, "nli/loss": mean})
    assert last_epoch_loss(rows, plan) == pytest.approx(np.average(losses[10:], weights=sizes))


@pytest.mark.parametrize(
    ("kept", "best", "after", "message"),
    [
        (9, 3, 0.6, ""),
        (9, 3, 0.4, "--keep best would have kept step 3"),
        (9, 0, 0.5, "no better than before training (0.5000, 0.5000 before); no evaluation was better"),
        (0, 0, 0.5, "holds the encoder that the run started from"),
        (9, 9, None, "spearman is undefined, so it cannot say whether training helped"),
    ],
)
def test_useless_training_is_reported(kept: int, best: int, after: float | None, message: str) -> None:
    first = EvaluationResult({"sts_dev_spearman": 0.5}, {})
    last = EvaluationResult({"sts_dev_spearman": after}, {})
    sentence = describe_failure(first, last, LoopState(step=9, kept_step=kept, best_step=best))
    assert sentence.endswith(message) and bool(message) == bool(sentence)
