"""Evaluation of an encoder in training: STS correlation, alignment, uniformity, triplet accuracy, a frozen loss.

Axes: M texts, D hidden. Vectors are scaled to length 1 first, in float64.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from minbert.encode import Encoder
from minbert.errors import UserError, one_of
from tasks import metrics
from tasks.contrastive.losses import nt_xent
from tasks.contrastive.settings import slug
from tasks.examples import Examples, Pair

# Metrics that can select the best encoder: the name of the number, and 1 to maximise it, -1 to minimise it.
METRICS = {
    "spearman": ("sts_dev_spearman", 1),
    "accuracy": ("triplet_accuracy", 1),
    "loss": ("full_pass_loss", -1),
    "alignment": ("alignment", -1),
    "uniformity": ("uniformity", -1),
}
ALIKE = 4.0  # gold similarity, of 5, from which on a pair counts as positive for the alignment (SimCSE, section 6)
UNDEFINED = -sys.float_info.max  # the score of what is undefined: finite, as metrics.jsonl wants it, and the lowest
COLLAPSED = 1e-2  # a mean cosine above 0.9999; random weights of BERT-base give a spread of 0.2, MiniLM 0.6 to 0.9

FLOORS = {"spread": (COLLAPSED, "all sentence vectors point one way: the encoder has collapsed")}
"""Minimum of a training metric, and the message with which training stops below it."""

Evaluate = Callable[[], tuple[float, dict[str, Any]]]


def evaluation(
    encoder: Encoder,
    dev: Mapping[str, Pair],
    triplets: Examples | None = None,
    *,
    batch_size: int = 64,
    temperature: float = 0.05,
    metric: str = "spearman",
    limit: int = 0,
) -> Evaluate:
    """An evaluation for the loop: the score to maximise, and the numbers.

    Each distinct text is encoded once, dropout off.
    `sts_dev_spearman` is Spearman's rho over the pairs of `dev` (gold similarity 0 to 5, or 0 and 1); of several sets
    it is the mean, as in EdaCSE's tables, and each set's own is logged too. `alignment` and `uniformity` are over
    the first set with graded scores (else the first set), `triplet_accuracy` and `full_pass_loss` over `triplets`, the
    first `limit` of them unless it is 0; rows of two texts have no hard negatives, and no accuracy. An undefined number
    is None and ranks below every other. Raises `UserError` for a metric that needs triplets where there are none.
    """
    metric = one_of(metric, METRICS, "metric")
    held = 0 if triplets is None else min(limit or len(triplets), len(triplets))
    columns = triplets.cache.columns if triplets is not None and held else 0
    if (metric == "loss" and columns < 2) or (metric == "accuracy" and columns < 3):
        raise UserError(f"metric {metric!r} needs {'triplets' if metric == 'accuracy' else 'pairs or triplets'}")
    rows = [one.sentence(row, column) for one in dev.values() for column in (0, 1) for row in range(len(one))]
    count = len(rows)
    if triplets is not None:
        rows += [triplets.sentence(row, column) for column in range(columns) for row in range(held)]
    texts, places = distinct(rows)

    def evaluate() -> tuple[float, dict[str, Any]]:
        encoder.model.eval()
        vectors = unit(encoder.encode_ids(texts))
        numbers = _sts_numbers(vectors, places[:count], dev)
        if columns:
            anchor, positive, *hard = np.split(vectors[places[count:]], columns)
            negative = hard[0] if hard else None
            if negative is not None:
                numbers["triplet_accuracy"] = triplet_accuracy(anchor, positive, negative)
            numbers["full_pass_loss"] = full_pass_loss(anchor, positive, negative, batch_size, temperature)
        name, sign = METRICS[metric]
        value = numbers[name]
        return UNDEFINED if value is None else sign * value, numbers

    return evaluate


def as_text(numbers: Mapping[str, float | None]) -> str:
    """The numbers of an evaluation, formatted for the terminal."""
    return ", ".join(
        f"{name.replace('sts_dev', 'STS dev').replace('_', ' ')} {number(value)}" for name, value in numbers.items()
    )


def number(value: float | None) -> str:
    """A number, formatted for the terminal."""
    return "undefined" if value is None else f"{value:.4f}"


def distinct(rows: Sequence[Sequence[int]]) -> tuple[list[Sequence[int]], np.ndarray]:
    """The different lists of ids in order of appearance, and each row's place among them: int64 [rows]."""
    seen: dict[tuple[int, ...], int] = {}
    places = np.array([seen.setdefault(tuple(row), len(seen)) for row in rows], dtype=np.int64)
    return list(seen), places


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


def triplet_accuracy(anchor: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> float | None:
    """Share of triplets of unit vectors with cos(a, p) > cos(a, n); None without any, or where one is not finite."""
    gap = (anchor * positive).sum(1) - (anchor * negative).sum(1)
    return float((gap > 0).mean()) if len(gap) and np.isfinite(gap).all() else None


def full_pass_loss(
    anchor: np.ndarray, positive: np.ndarray, negative: np.ndarray | None, batch_size: int, temperature: float
) -> float | None:
    """NT-Xent in batches of file order, with hard negatives if there are any: the mean over all rows, None without any.

    The last batch may be smaller, and has fewer candidates then.
    """
    sides = torch.from_numpy(np.stack([anchor, positive] if negative is None else [anchor, positive, negative]))
    total = 0.0
    for a, p, *n in sides.split(batch_size, dim=1):
        total += float(nt_xent(a, p, n[0] if n else None, temperature)) * len(a)
    return _defined(total / len(anchor)) if len(anchor) else None


def spread(vectors: torch.Tensor) -> torch.Tensor:
    """Root mean square distance of a batch's unit vectors [B, D] from their mean: 0 if all are equal, at most 1."""
    rows = torch.nn.functional.normalize(vectors.detach().double(), dim=1)
    return (rows - rows.mean(0)).square().sum(1).mean().sqrt()


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
