"""Evaluation of an encoder during training.

The metrics: STS correlation, alignment, uniformity, triplet accuracy, and NT-Xent at a fixed temperature (frozen loss).

Axes: M texts, D hidden. Vectors are scaled to length 1 first, in float64.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from minbert.encoder import Encoder
from minbert.train import distributed
from minbert.train.loop import LoopState, finite_or_none
from minbert.train.plan import Plan, random_subset
from minbert.train.progress import format_score
from tasks import metrics
from tasks.contrastive.losses import nt_xent
from tasks.contrastive.settings import TASK, TrainingSettings
from tasks.examples import Examples
from tasks.record import file_name

DEV_SPEARMAN = "sts_dev_spearman"
"""The score that selects the best encoder, among the metrics of an evaluation."""
TRIPLETS_EVALUATED = 2000
"""Training triplets of an evaluation: their accuracy is good to about a point, and an evaluation stays short."""
FROZEN_TEMPERATURE = 0.05
FROZEN_BATCH = 64
"""Temperature (CBCL's) and batch size of the frozen loss, the same in every run: other losses cannot be compared."""
_BLOCK = 1024  # rows of a matrix of distances at a time
POSITIVE_SCORE = 4.0
"""The gold similarity, of 5, above which a pair is a positive one in the alignment (SimCSE, section 3)."""


@dataclass(frozen=True)
class EvaluationResult:
    """One evaluation: its metrics, None where undefined, and the cosines of every dev set."""

    metrics: dict[str, float | None]
    dev_cosines: dict[str, np.ndarray]

    @property
    def score(self) -> float | None:
        """The score to maximise; None without scored pairs."""
        return self.metrics.get(DEV_SPEARMAN)


class Evaluation:
    """Evaluation of an encoder on scored pairs and, for a run on triplets, on `TRIPLETS_EVALUATED` of them.

    Each distinct text is encoded once, dropout off. `sts_dev_spearman` is Spearman's rho over the dev pairs (gold
    similarity 0 to 5, or 0 to 1); of several sets it is the mean, as in EdaCSE's tables, and each set's own is logged
    too. `alignment` and `uniformity` are over the first set with graded scores (else the first set).
    `triplet_accuracy` is over the triplets; rows of two texts have no hard negatives, and no accuracy. `frozen_loss` is
    their NT-Xent at a fixed temperature and batch size, whatever the run trains with. An undefined metric is None and
    ranks below every other.
    """

    def __init__(self, encoder: Encoder, dev: Mapping[str, Examples], *, triplets: Examples | None = None) -> None:
        self.encoder = encoder
        self.dev = dev
        self.latest: EvaluationResult | None = None
        numbers: dict[tuple[int, ...], int] = {}  # of the distinct texts: triplets and pairs repeat their sentences

        def number_side(examples: Examples, rows: Iterable[int], column: int) -> np.ndarray:
            """The number of each row's text among the distinct texts."""
            texts = (tuple(examples.sentence(row, column)) for row in rows)
            return np.array([numbers.setdefault(text, len(numbers)) for text in texts])

        self.pairs = {}
        for name, pairs in dev.items():
            dev_rows = range(len(pairs))
            self.pairs[name] = number_side(pairs, dev_rows, 0), number_side(pairs, dev_rows, 1)
        self.triplets = []
        if triplets is not None:
            evaluated = evaluated_rows(len(triplets))
            for column in range(triplets.cache.num_texts):
                self.triplets.append(number_side(triplets, evaluated, column))
        self.texts = list(numbers)

    def score(self) -> tuple[float | None, dict[str, Any]]:
        """Evaluate; returns the score to maximise and the metrics, for the training loop."""
        self.latest = self.evaluate()
        return self.latest.score, self.latest.metrics

    def result_of_kept(self, state: LoopState) -> EvaluationResult:
        """The evaluation of the encoder that the loop kept: the latest one if it was of that step, else a new one."""
        if self.latest and state.kept_step == state.step:
            return self.latest
        return self.evaluate()

    def evaluate(self) -> EvaluationResult:
        """Evaluate the encoder as it is now."""
        if not self.texts:
            return EvaluationResult({}, {})
        vectors = unit(encode_over_ranks(self.encoder, self.texts))
        cosines = {}
        for name, (first, second) in self.pairs.items():
            cosines[name] = (vectors[first] * vectors[second]).sum(1)
        values: dict[str, float | None] = {}
        if self.pairs:
            values |= _correlations(cosines, self.dev)
            name = first_graded_set(self.dev)
            first, second = self.pairs[name]
            gold = self.dev[name].labels
            # scores are from 0 to 5, or from 0 to 1, such as those of two classes
            highest = 5 if gold.max() > 1 else 1
            is_positive = gold > POSITIVE_SCORE / 5 * highest
            values["alignment"] = alignment(vectors[first[is_positive]], vectors[second[is_positive]])
            values["uniformity"] = uniformity(vectors[np.concatenate([first, second])])
        if self.triplets:
            sides = [vectors[side] for side in self.triplets]
            if len(sides) == 3:
                values["triplet_accuracy"] = triplet_accuracy(*sides)
            values["frozen_loss"] = frozen_loss(sides)
        return EvaluationResult(values, cosines)


def encode_over_ranks(encoder: Encoder, texts: Sequence[Sequence[int]]) -> np.ndarray:
    """Vectors of lists of token ids, divided among the ranks: float32 [M, D] on every rank."""
    if distributed.world() == 1:
        return encoder.encode_ids(texts)
    device = encoder.model.device
    positions = distributed.own_rows(np.arange(len(texts)))
    vectors = torch.from_numpy(encoder.encode_ids([texts[position] for position in positions])).to(device)
    gathered = distributed.gather(vectors, torch.from_numpy(positions).to(device), len(texts))
    return gathered.cpu().numpy()


def evaluated_rows(count: int) -> list[int]:
    """The triplets of an evaluation among `count`, the same in every run on them, in file order."""
    # a random sample: a file may begin with one source of triplets and end with another
    return random_subset(count, TRIPLETS_EVALUATED, 0, "evaluated triplets").tolist()


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1, in float64; a zero row stays zero."""
    wide = vectors.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)


def alignment(first: np.ndarray, second: np.ndarray) -> float | None:
    """Mean of ||x - y||^2 over positive pairs of unit vectors (Wang and Isola 2020, section 4); None without pairs."""
    if not len(first):
        return None
    return finite_or_none(float(np.square(first - second).sum(1).mean()))


def uniformity(vectors: np.ndarray) -> float | None:
    """ln of the mean of exp(-2 ||x - y||^2) over all pairs of M >= 2 unit vectors (Wang and Isola 2020, section 4).

    None if a vector is not finite. Memory is that of `_BLOCK` rows of the M x M distances.
    """
    squares = np.square(vectors).sum(1)
    total = 0.0
    for begin in range(0, len(vectors), _BLOCK):
        rows = slice(begin, begin + _BLOCK)
        columns = slice(begin, None)
        squared = squares[rows, None] + squares[None, columns] - 2 * vectors[rows] @ vectors[columns].T
        # above the diagonal: each pair once; rounding may leave a small negative square
        total += np.triu(np.exp(-2 * np.maximum(squared, 0)), 1).sum()
    return finite_or_none(float(np.log(total / (len(vectors) * (len(vectors) - 1) / 2))))


def triplet_accuracy(anchor: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> float | None:
    """The share of triplets of unit vectors with cos(a, p) > cos(a, n); None if a cosine is not finite."""
    gap = (anchor * positive).sum(1) - (anchor * negative).sum(1)
    if not np.isfinite(gap).all():
        return None
    return float((gap > 0).mean())


def frozen_loss(sides: list[np.ndarray]) -> float | None:
    """NT-Xent at the fixed temperature: the mean over rows in batches of `FROZEN_BATCH`, or None if it is not finite.

    `sides` are the unit vectors of anchors, positives and, if there are any, hard negatives, [N, D] each. The last
    batch may be smaller, and has fewer candidates then.
    """
    total = 0.0
    for anchor, positive, *hard_negatives in torch.from_numpy(np.stack(sides)).split(FROZEN_BATCH, dim=1):
        negative = hard_negatives[0] if hard_negatives else None
        total += float(nt_xent(anchor, positive, negative, FROZEN_TEMPERATURE)) * len(anchor)
    return finite_or_none(total / len(sides[0]))


def first_graded_set(dev: Mapping[str, Examples]) -> str:
    """The first set whose scores are more than two classes, else the first."""
    for name, examples in dev.items():
        if len(np.unique(examples.labels)) > 2:
            return name
    return next(iter(dev))


def _correlations(cosines: Mapping[str, np.ndarray], dev: Mapping[str, Examples]) -> dict[str, float | None]:
    """Spearman's rho over the pairs of each dev set, of several sets after their mean."""
    rhos = {name: metrics.spearman(cosines[name], examples.labels) for name, examples in dev.items()}
    defined = [rho for rho in rhos.values() if rho is not None]
    correlations: dict[str, float | None] = {DEV_SPEARMAN: None}
    # a mean over fewer sets could not be compared with those of other evaluations
    if len(defined) == len(rhos):
        correlations[DEV_SPEARMAN] = sum(defined) / len(defined)
    if len(rhos) > 1:
        for name, rho in rhos.items():
            correlations[f"{file_name(name)}_dev_spearman"] = rho
    return correlations


def describe_failure(before: EvaluationResult, after: EvaluationResult, state: LoopState) -> str:
    """A sentence if training has not improved the encoder by the metric; else an empty string."""
    metric = TrainingSettings.metric
    if not state.kept_step:
        return (
            f"training did not help: by {metric} no evaluation was better than before training, so the encoder folder "
            f"holds the encoder that the run started from"
        )
    if DEV_SPEARMAN not in after.metrics:
        return "without scored pairs it is not known whether training helped"
    if after.score is None or before.score is None:
        return f"{metric} is undefined, so it cannot say whether training helped"
    if after.score > before.score:
        return ""
    better = "no evaluation was better"
    if state.best_step:
        better = f"--keep best would have kept step {state.best_step:,}"
    return (
        f"training did not help: by {metric} the last step is no better than before training "
        f"({format_score(after.score)}, {format_score(before.score)} before); {better}"
    )


def last_epoch_loss(rows: Iterable[Mapping[str, Any]], plan: Plan) -> float:
    """Mean training loss over the rows of the last epoch, by which CBCL chose its settings (section 5.2).

    `rows` are those of `metrics.jsonl`: each has the mean over the examples since the row before it, and one ends with
    every epoch, whatever the logging interval.
    """
    train = [row for row in rows if row["kind"] == "train"]
    epoch = train[-1]["epoch"] - 1
    sizes = [len(examples) for _, examples in plan.build(epoch)]
    steps_before = plan.ends[epoch] - plan.lengths[epoch]
    begin = 0
    total = 0.0
    for row in train:
        if row["epoch"] == epoch + 1:
            # a row's mean counts by its examples: the batches of an epoch may differ in size
            end = row["step"] - steps_before
            total += row[f"{TASK}/loss"] * sum(sizes[begin:end])
            begin = end
    return total / sum(sizes[:begin])
