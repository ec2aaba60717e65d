"""How good an encoder is while it is trained: STS correlation, alignment, uniformity, triplet accuracy, a frozen loss.

Axes: M texts, D hidden. Vectors are scaled to length 1 first, in float64.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from minbert.encode import Encoder
from tasks import metrics
from tasks.contrastive.curriculum import Similarities
from tasks.contrastive.data import Data
from tasks.contrastive.losses import nt_xent
from tasks.contrastive.scoring import distinct, encoded
from tasks.contrastive.settings import TRIPLETS, ContrastiveSettings, slug
from tasks.examples import Pair

METRICS = {
    "spearman": ("sts_dev_spearman", 1),
    "accuracy": ("triplet_accuracy", 1),
    "loss": ("full_pass_loss", -1),
    "alignment": ("alignment", -1),
    "uniformity": ("uniformity", -1),
}
"""Metric that can select the best encoder -> the name of its number, and 1 to maximise it, -1 to minimise it."""
ALIKE = 4.0
"""Gold similarity, of 5, from which on a pair counts as positive for the alignment (SimCSE, section 6)."""


@dataclass(frozen=True)
class Look:
    """One evaluation: the score to maximise, its numbers, and the cosines of the triplets with hard negatives.

    What is undefined is None.
    """

    score: float | None
    numbers: dict[str, float | None]
    cosines: Similarities | None = None


class Evaluation:
    """Evaluation of an encoder on scored pairs, and on the first `--evaluate-triplets` rows (0: all) of triplets.

    Each distinct text is encoded once, dropout off. `sts_dev_spearman` is Spearman's rho over the dev pairs (gold
    similarity 0 to 5, or 0 and 1); of several sets it is the mean, as in EdaCSE's tables, and each set's own is logged
    too. `alignment` and `uniformity` are over the first set with graded scores (else the first set),
    `triplet_accuracy` and `full_pass_loss` over the triplets; rows of two texts have no hard negatives, and no
    accuracy. An undefined number is None and ranks below every other.
    """

    def __init__(self, settings: ContrastiveSettings, encoder: Encoder, data: Data) -> None:
        how, triplets = settings.evaluation, data.train if settings.loss.data_kind == TRIPLETS else None
        self.encoder, self.dev, self.metric = encoder, data.dev.pairs, how.metric
        self.loss_of = settings.training.batch_size, how.evaluate_temperature or settings.loss.temperature
        self.columns = triplets.cache.columns if triplets is not None else 0
        rows = [one.sentence(row, column) for one in self.dev.values() for column in (0, 1) for row in range(len(one))]
        self.scored = len(rows)
        if triplets is not None:
            held = range(min(how.evaluate_triplets or len(triplets), len(triplets)))
            rows += [triplets.sentence(row, column) for column in range(self.columns) for row in held]
        self.texts, self.places = distinct(map(tuple, rows))

    def score(self) -> tuple[float | None, dict[str, Any]]:
        """The score to maximise and the numbers, as the training loop takes them."""
        found = self.look()
        return found.score, found.numbers

    def look(self) -> Look:
        """The encoder as it is now."""
        self.encoder.model.eval()
        vectors = unit(encoded(self.encoder, self.texts))
        numbers, cosines = _sts_numbers(vectors, self.places[: self.scored], self.dev), None
        if self.columns:
            anchor, positive, *hard = np.split(vectors[self.places[self.scored :]], self.columns)
            if hard:
                cosines = Similarities(*((anchor * side).sum(1) for side in (positive, hard[0])))
                numbers["triplet_accuracy"] = triplet_accuracy(cosines)
            numbers["full_pass_loss"] = full_pass_loss([anchor, positive, *hard], *self.loss_of)
        name, sign = METRICS[self.metric]
        value = numbers[name]
        return Look(None if value is None else sign * value, numbers, cosines)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1, in float64; a zero row stays zero."""
    wide = vectors.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)


def alignment(first: np.ndarray, second: np.ndarray) -> float | None:
    """Mean of ||x - y||^2 over positive pairs of unit vectors (Wang and Isola 2020, section 4); None without pairs."""
    return _defined(np.square(first - second).sum(1).mean()) if len(first) else None


def uniformity(vectors: np.ndarray, block: int = 1024) -> float | None:
    """ln of the mean of exp(-2 ||x - y||^2) over all pairs of M unit vectors (Wang and Isola 2020, section 4).

    None for fewer than two. Memory is that of `block` rows of the M x M distances.
    """
    if len(vectors) < 2:
        return None
    squares, total = np.square(vectors).sum(1), 0.0
    for start in range(0, len(vectors), block):
        rows, others = slice(start, start + block), slice(start, None)
        squared = squares[rows, None] + squares[None, others] - 2 * vectors[rows] @ vectors[others].T
        total += np.triu(np.exp(-2 * np.maximum(squared, 0)), 1).sum()
    return _defined(np.log(total / (len(vectors) * (len(vectors) - 1) / 2)))


def triplet_accuracy(cosines: Similarities) -> float | None:
    """Share of triplets with cos(a, p) > cos(a, n); None without any, or where one is not finite."""
    gap = cosines.gap
    return float((gap > 0).mean()) if len(gap) and np.isfinite(gap).all() else None


def full_pass_loss(sides: list[np.ndarray], batch_size: int, temperature: float) -> float | None:
    """NT-Xent of anchors, positives and, if there are any, hard negatives, in batches of file order: the mean, or None.

    The last batch may be smaller, and has fewer candidates then.
    """
    total = 0.0
    for anchor, positive, *hard in torch.from_numpy(np.stack(sides)).split(batch_size, dim=1):
        total += float(nt_xent(anchor, positive, hard[0] if hard else None, temperature)) * len(anchor)
    return _defined(total / len(sides[0])) if len(sides[0]) else None


def graded(dev: Mapping[str, Pair]) -> str:
    """The first set whose scores are more than two classes, else the first."""
    return next((name for name, one in dev.items() if len(np.unique(one.labels)) > 2), next(iter(dev)))


def _sts_numbers(vectors: np.ndarray, places: np.ndarray, dev: Mapping[str, Pair]) -> dict[str, float | None]:
    """`vectors` of the distinct texts, [M, D]; `places` of both sides of every pair among them, set after set."""
    ends = np.cumsum([2 * len(one) for one in dev.values()])
    sides = {name: np.split(part, 2) for name, part in zip(dev, np.split(places, ends[:-1]), strict=True)}
    rho = {
        name: metrics.spearman((vectors[first] * vectors[second]).sum(1), dev[name].labels)
        for name, (first, second) in sides.items()
    }
    known = [value for value in rho.values() if value is not None]
    own = {f"{slug(name)}_dev_spearman": value for name, value in rho.items()} if len(rho) > 1 else {}
    name = graded(dev)
    (first, second), gold = sides[name], dev[name].labels
    alike = gold >= (ALIKE if gold.max() > 1 else 1)
    return {
        "sts_dev_spearman": sum(known) / len(known) if len(known) == len(rho) else None,
        **own,
        "alignment": alignment(vectors[first[alike]], vectors[second[alike]]),
        "uniformity": uniformity(vectors[np.concatenate([first, second])]),
    }


def _defined(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
