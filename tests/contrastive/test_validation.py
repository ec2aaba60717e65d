"""Guards: the numbers of an evaluation are their definitions, each text is encoded once, and what is undefined loses.

python -m pytest --import-mode=importlib tests/contrastive/test_validation.py
"""

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from minbert import Encoder, UserError, token_cache
from minbert.token_cache import Row
from tasks.contrastive import validation
from tasks.contrastive.validation import COLLAPSED, METRICS, evaluation, spread
from tasks.examples import Pair, Triplet

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


class Counting(Encoder):
    """Notes what it was asked to encode."""

    asked: list[list[tuple[int, ...]]]

    def encode_ids(self, rows, **how):
        assert not self.model.training
        self.asked.append([tuple(row) for row in rows])
        return super().encode_ids(rows, **how)


@pytest.fixture
def encoder(tiny: Path) -> Counting:
    encoder = Counting.load(tiny, pooler="mean", precision="fp32")
    encoder.asked = []
    return encoder


def cache(folder: Path, encoder: Encoder, rows: list[Row], columns: int) -> token_cache.TokenCache:
    source = folder / f"rows-{columns}"
    source.write_text(repr(rows))
    return token_cache.load(source, lambda _: iter(rows), "validation", columns, encoder.tokenizer)


@pytest.fixture
def pairs(encoder: Encoder, tmp_path: Path) -> Pair:
    rows = [Row(str(i), (a, b), gold) for i, (a, b, gold) in enumerate(PAIRS)]
    return Pair(cache(tmp_path, encoder, rows, 2), encoder.tokenizer.cls, encoder.tokenizer.sep, 32)


@pytest.fixture
def triplets(encoder: Encoder, tmp_path: Path) -> Triplet:
    rows = [Row(str(i), texts) for i, texts in enumerate(TRIPLETS)]
    return Triplet(cache(tmp_path, encoder, rows, 3), encoder.tokenizer.cls, encoder.tokenizer.sep, 32)


def cosine(u: np.ndarray, v: np.ndarray) -> float:
    u, v = u.astype(np.float64), v.astype(np.float64)
    return float(u @ v / math.sqrt((u @ u) * (v @ v)))


def squared(u: np.ndarray, v: np.ndarray) -> float:
    """||u - v||^2 of the directions."""
    return 2 - 2 * cosine(u, v)


def loss_of(batch: list[tuple[np.ndarray, ...]], temperature: float) -> list[float]:
    terms = []
    for anchor, positive, _ in batch:
        total = sum(math.exp(cosine(anchor, side) / temperature) for _, *sides in batch for side in sides)
        terms.append(-math.log(math.exp(cosine(anchor, positive) / temperature) / total))
    return terms


def by_hand(encoder: Encoder, count: int, batch_size: int, temperature: float) -> dict[str, float]:
    """Every number, one pair at a time in float64."""
    pairs = [(*encoder.encode([a, b]), gold) for a, b, gold in PAIRS]
    sentences = [u for u, _, _ in pairs] + [v for _, v, _ in pairs]
    kernel = [math.exp(-2 * squared(u, v)) for u, v in combinations(sentences, 2)]
    rows = [tuple(encoder.encode(list(texts))) for texts in TRIPLETS[:count]]
    losses = [x for i in range(0, count, batch_size) for x in loss_of(rows[i : i + batch_size], temperature)]
    return {
        "sts_dev_spearman": stats.spearmanr([cosine(u, v) for u, v, _ in pairs], [g for *_, g in pairs]).statistic,
        "alignment": np.mean([squared(u, v) for u, v, gold in pairs if gold >= 4]),
        "uniformity": math.log(sum(kernel) / len(kernel)),
        "triplet_accuracy": np.mean([cosine(a, p) > cosine(a, n) for a, p, n in rows]),
        "full_pass_loss": np.mean(losses),
    }


@pytest.mark.parametrize(("limit", "count", "batch_size"), [(0, 5, 2), (3, 3, 64), (99, 5, 5)])
@pytest.mark.parametrize("metric", METRICS)
def test_numbers_are_their_definitions(
    encoder, pairs, triplets, metric: str, limit: int, count: int, batch_size
) -> None:
    how = {"batch_size": batch_size, "temperature": 0.1, "limit": limit, "metric": metric}
    score, numbers = evaluation(encoder, {"sts": pairs}, triplets, **how)()
    assert numbers == pytest.approx(by_hand(encoder, count, batch_size, 0.1), abs=1e-5)
    name, sign = METRICS[metric]
    assert score == sign * numbers[name]
    assert METRICS["spearman"][1] == METRICS["accuracy"][1] == 1
    assert METRICS["loss"][1] == METRICS["alignment"][1] == METRICS["uniformity"][1] == -1


def test_each_text_is_encoded_once_an_evaluation_with_dropout_off(encoder, pairs, triplets) -> None:
    evaluate = evaluation(encoder, {"sts": pairs}, triplets)
    texts = {text for *row, _ in PAIRS for text in row} | {text for row in TRIPLETS for text in row}
    first = evaluate()
    encoder.model.train()
    assert evaluate() == first
    assert len(encoder.asked) == 2
    for asked in encoder.asked:
        assert len(asked) == len(set(asked)) == len(texts)


def test_of_several_dev_sets_the_mean_chooses_and_each_ones_own_is_told(encoder, pairs, tmp_path: Path) -> None:
    texts = [(a, b) for b, a, _ in reversed(PAIRS)] + [("a tree", "who sat?")]
    labels = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    rows = [Row(str(i), row, label) for i, (row, label) in enumerate(zip(texts, labels, strict=True))]
    (tmp_path / "more").mkdir()
    other = Pair(cache(tmp_path / "more", encoder, rows, 2), encoder.tokenizer.cls, encoder.tokenizer.sep, 32)
    score, numbers = evaluation(encoder, {"PAWS-X": other, "STS-B": pairs})()
    cosines = [cosine(*encoder.encode(list(row))) for row in texts]
    own = stats.spearmanr(cosines, labels).statistic
    expected = by_hand(encoder, 0, 1, 1.0)
    assert numbers["paws_x_dev_spearman"] == pytest.approx(own)
    assert numbers["sts_b_dev_spearman"] == pytest.approx(expected["sts_dev_spearman"])
    assert score == numbers["sts_dev_spearman"] == pytest.approx((own + expected["sts_dev_spearman"]) / 2)
    assert numbers["alignment"] == pytest.approx(expected["alignment"], abs=1e-5), "over the pairs with graded scores"
    assert numbers["uniformity"] == pytest.approx(expected["uniformity"], abs=1e-5)

    _, alone = evaluation(encoder, {"sts": other})()
    alike = [squared(*encoder.encode(list(row))) for row, label in zip(texts, labels, strict=True) if label]
    assert alone["alignment"] == pytest.approx(np.mean(alike), abs=1e-5), "of two classes the second is alike"
    encoder.encode_ids = lambda rows: np.ones((len(rows), 8), dtype=np.float32)
    score, numbers = evaluation(encoder, {"PAWS-X": other, "STS-B": pairs})()
    assert numbers["sts_dev_spearman"] is None and score == validation.UNDEFINED


def test_without_triplets_there_are_the_sts_numbers_alone(encoder, pairs) -> None:
    score, numbers = evaluation(encoder, {"sts": pairs})()
    assert numbers.keys() == {"sts_dev_spearman", "alignment", "uniformity"}
    assert score == numbers["sts_dev_spearman"]


def test_rows_without_hard_negatives_have_a_loss_and_no_accuracy(encoder, pairs) -> None:
    score, numbers = evaluation(encoder, {"sts": pairs}, pairs, batch_size=3, temperature=0.1, metric="loss")()
    assert "triplet_accuracy" not in numbers
    rows = [encoder.encode([a, b]) for a, b, _ in PAIRS]
    losses = [
        -math.log(math.exp(cosine(a, p) / 0.1) / sum(math.exp(cosine(a, other) / 0.1) for _, other in batch))
        for batch in (rows[:3], rows[3:])
        for a, p in batch
    ]
    assert numbers["full_pass_loss"] == pytest.approx(np.mean(losses), abs=1e-5)
    assert score == -numbers["full_pass_loss"]


def test_what_is_undefined_is_none_and_ranks_below_everything_and_is_json(encoder, pairs, triplets) -> None:
    with torch.no_grad():
        for parameter in encoder.model.parameters():
            parameter.fill_(math.nan)
    for metric in METRICS:
        score, numbers = evaluation(encoder, {"sts": pairs}, triplets, metric=metric)()
        assert set(numbers.values()) == {None}
        assert -math.inf < score < -1e300
        json.dumps([score, numbers], allow_nan=False)


def test_spearman_of_one_direction_for_all_is_undefined(encoder, pairs) -> None:
    encoder.encode_ids = lambda rows: np.ones((len(rows), 8), dtype=np.float32)
    score, numbers = evaluation(encoder, {"sts": pairs})()
    assert numbers == {"sts_dev_spearman": None, "alignment": 0, "uniformity": 0} and score == validation.UNDEFINED


def test_numbers_without_rows_to_take_them_over_are_none() -> None:
    none, one = np.zeros((0, 3)), np.eye(3)[:1]
    assert validation.alignment(none, none) is None
    assert validation.uniformity(none) is None and validation.uniformity(one) is None
    assert validation.triplet_accuracy(none, none, none) is None
    assert validation.full_pass_loss(none, none, none, 4, 0.05) is None
    assert validation.full_pass_loss(none, none, None, 4, 0.05) is None


@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_uniformity_by_blocks_is_uniformity_by_pairs(block: int) -> None:
    x = validation.unit(np.random.default_rng(3).normal(size=(7, 4)))
    expected = math.log(np.mean([math.exp(-2 * np.square(u - v).sum()) for u, v in combinations(x, 2)]))
    assert validation.uniformity(x, block) == pytest.approx(expected, rel=1e-12)


def test_a_triplet_with_a_tie_is_not_told_apart() -> None:
    x = validation.unit(np.random.default_rng(4).normal(size=(4, 6)))
    assert validation.triplet_accuracy(x, x, x) == 0
    assert validation.triplet_accuracy(x, x, -x) == 1


def test_unit_rows_have_length_one_and_zero_stays_zero() -> None:
    found = validation.unit(np.float32([[3, 4], [0, 0]]))
    assert found.dtype == np.float64 and np.allclose(found, [[0.6, 0.8], [0, 0]])


def test_distinct_texts_in_order_of_appearance() -> None:
    texts, places = validation.distinct([[1, 2], [3], [1, 2], [4], [3]])
    assert texts == [(1, 2), (3,), (4,)] and places.tolist() == [0, 1, 0, 2, 1]


def test_collapse_is_one_direction_for_several_sentences() -> None:
    noise = torch.randn(8, 32)
    one = torch.randn(1, 32)
    assert spread(one * torch.rand(8, 1).add(0.1)) < COLLAPSED, "one direction, several lengths"
    assert spread(one + 1e-3 * noise) < COLLAPSED and spread((one + 1e-3 * noise).bfloat16()) < COLLAPSED
    assert spread(one + noise) > COLLAPSED and spread(noise.bfloat16()) > COLLAPSED


def test_spread_is_the_standard_deviation_of_the_unit_vectors() -> None:
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    rows = validation.unit(x.detach().numpy())
    assert float(spread(x)) == pytest.approx(math.sqrt(rows.var(axis=0).sum()), rel=1e-12)
    assert not spread(x).requires_grad
    assert float(spread(torch.eye(2)[[0, 0]])) == 0 and float(spread(torch.tensor([[1.0], [-1.0]]))) == 1


def test_an_encoder_at_the_start_is_not_collapsed(encoder) -> None:
    texts = [text for *row, _ in PAIRS for text in row]
    assert spread(torch.from_numpy(encoder.encode(texts))) > COLLAPSED


def test_a_metric_over_triplets_needs_triplets(encoder, pairs) -> None:
    with pytest.raises(UserError, match=r"^metric 'accuracy' needs triplets"):
        evaluation(encoder, {"sts": pairs}, metric="accuracy")
    with pytest.raises(UserError, match=r"^metric 'accuracy' needs triplets"):
        evaluation(encoder, {"sts": pairs}, pairs, metric="accuracy")
    with pytest.raises(UserError, match=r"^metric 'loss' needs pairs or triplets"):
        evaluation(encoder, {"sts": pairs}, metric="loss")


def test_an_unknown_metric_is_refused_with_the_known_ones(encoder, pairs) -> None:
    with pytest.raises(UserError, match=r"'pearson' is not one of spearman, accuracy, loss"):
        evaluation(encoder, {"sts": pairs}, metric="pearson")


def test_numbers_are_said() -> None:
    text = validation.as_text({"sts_dev_spearman": 0.84561, "alignment": None, "full_pass_loss": 1.0})
    assert text == "STS dev spearman 0.8456, alignment undefined, full pass loss 1.0000"
