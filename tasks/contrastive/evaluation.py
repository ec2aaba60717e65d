"""Evaluation of an encoder during training, and the report of its scores before and after.

The numbers: STS correlation, alignment, uniformity, triplet accuracy, a frozen NT-Xent loss.

Axes: M texts, D hidden. Vectors are scaled to length 1 first, in float64.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from minbert.bert import BertModel
from minbert.encode import Encoder
from minbert.files import write_atomic, write_json
from minbert.training import cli, ranks, start
from minbert.training.loop import LAST, LoopState
from minbert.training.run import RunDir
from tasks import metrics
from tasks.contrastive.curriculum import Paced, Scored, Similarities
from tasks.contrastive.data import Data
from tasks.contrastive.losses import nt_xent
from tasks.contrastive.objectives import chance
from tasks.contrastive.scoring import distinct, encoded
from tasks.contrastive.settings import IN_BATCH, TRIPLETS, ContrastiveSettings, slug
from tasks.examples import Examples
from tasks.record import Rows

METRICS = {
    "spearman": ("sts_dev_spearman", 1),
    "accuracy": ("triplet_accuracy", 1),
    "loss": ("frozen_loss", -1),
    "alignment": ("alignment", -1),
    "uniformity": ("uniformity", -1),
}
"""Metric that can select the best encoder -> the name of its number, and 1 to maximise it, -1 to minimise it."""
_BLOCK = 1024  # rows of a matrix of distances at a time
ALIKE = 4.0
"""Gold similarity, of 5, from which on a pair is positive for the alignment; SimCSE (section 3) takes those above."""


@dataclass(frozen=True)
class EvaluationResult:
    """One evaluation: the score to maximise, its numbers, and the cosines of every dev set and of the triplets.

    What is undefined is None.
    """

    score: float | None
    numbers: dict[str, float | None]
    dev_cosines: dict[str, np.ndarray]
    cosines: Similarities | None = None


class Evaluation:
    """Evaluation of an encoder on scored pairs, and on the first `--evaluate-triplets` rows (0: all) of triplets.

    Each distinct text is encoded once, dropout off. `sts_dev_spearman` is Spearman's rho over the dev pairs (gold
    similarity 0 to 5, or 0 and 1); of several sets it is the mean, as in EdaCSE's tables, and each set's own is logged
    too. `alignment` and `uniformity` are over the first set with graded scores (else the first set),
    `triplet_accuracy` and `frozen_loss` over the triplets; rows of two texts have no hard negatives, and no
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
        found = self.evaluate()
        return found.score, found.numbers

    def evaluate(self) -> EvaluationResult:
        """The encoder as it is now."""
        self.encoder.model.eval()
        vectors = unit(encoded(self.encoder, self.texts))
        numbers, dev_cosines = _sts_numbers(vectors, self.places[: self.scored], self.dev)
        cosines = None
        if self.columns:
            anchor, positive, *hard = np.split(vectors[self.places[self.scored :]], self.columns)
            if hard:
                cosines = Similarities(*((anchor * side).sum(1) for side in (positive, hard[0])))
                numbers["triplet_accuracy"] = triplet_accuracy(cosines)
            numbers["frozen_loss"] = frozen_loss([anchor, positive, *hard], *self.loss_of)
        name, sign = METRICS[self.metric]
        value = numbers[name]
        return EvaluationResult(None if value is None else sign * value, numbers, dev_cosines, cosines)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1, in float64; a zero row stays zero."""
    wide = vectors.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)


def alignment(first: np.ndarray, second: np.ndarray) -> float | None:
    """Mean of ||x - y||^2 over positive pairs of unit vectors (Wang and Isola 2020, section 4); None without pairs."""
    return _defined(np.square(first - second).sum(1).mean()) if len(first) else None


def uniformity(vectors: np.ndarray) -> float | None:
    """ln of the mean of exp(-2 ||x - y||^2) over all pairs of M unit vectors (Wang and Isola 2020, section 4).

    None for fewer than two. Memory is that of `_BLOCK` rows of the M x M distances.
    """
    if len(vectors) < 2:
        return None
    squares, total = np.square(vectors).sum(1), 0.0
    for begin in range(0, len(vectors), _BLOCK):
        rows, others = slice(begin, begin + _BLOCK), slice(begin, None)
        squared = squares[rows, None] + squares[None, others] - 2 * vectors[rows] @ vectors[others].T
        total += np.triu(np.exp(-2 * np.maximum(squared, 0)), 1).sum()
    return _defined(np.log(total / (len(vectors) * (len(vectors) - 1) / 2)))


def triplet_accuracy(cosines: Similarities) -> float | None:
    """Share of triplets with cos(a, p) > cos(a, n); None without any, or where one is not finite."""
    gap = cosines.gap
    return float((gap > 0).mean()) if len(gap) and np.isfinite(gap).all() else None


def frozen_loss(sides: list[np.ndarray], batch_size: int, temperature: float) -> float | None:
    """NT-Xent of anchors, positives and, if there are any, hard negatives, in batches of file order: the mean, or None.

    The last batch may be smaller, and has fewer candidates then.
    """
    total = 0.0
    for anchor, positive, *hard in torch.from_numpy(np.stack(sides)).split(batch_size, dim=1):
        total += float(nt_xent(anchor, positive, hard[0] if hard else None, temperature)) * len(anchor)
    return _defined(total / len(sides[0])) if len(sides[0]) else None


def dev_rows(pairs: Examples, cosines: np.ndarray) -> Rows:
    """The rows of a dev set, predicted by the cosine similarity of their sentence embeddings."""
    count, cache = len(pairs), pairs.cache
    texts = [(cache.text(row, 0), cache.text(row, 1)) for row in range(count)]
    ids = [cache.row_id(row) for row in range(count)]
    return Rows(ids, texts, np.asarray(pairs.labels), cosines, None)


def graded(dev: Mapping[str, Examples]) -> str:
    """The first set whose scores are more than two classes, else the first."""
    return next((name for name, one in dev.items() if len(np.unique(one.labels)) > 2), next(iter(dev)))


def _sts_numbers(
    vectors: np.ndarray, places: np.ndarray, dev: Mapping[str, Examples]
) -> tuple[dict[str, float | None], dict[str, np.ndarray]]:
    """The numbers of an evaluation that are over dev pairs, and the cosine of each pair, by set.

    `vectors` are those of the distinct texts, [M, D], `places` both sides of every pair among them, set after set.
    """
    ends = np.cumsum([2 * len(one) for one in dev.values()])
    sides = {name: np.split(part, 2) for name, part in zip(dev, np.split(places, ends[:-1]), strict=True)}
    cosines = {name: (vectors[first] * vectors[second]).sum(1) for name, (first, second) in sides.items()}
    rho = {name: metrics.spearman(found, dev[name].labels) for name, found in cosines.items()}
    known = [value for value in rho.values() if value is not None]
    own = {f"{slug(name)}_dev_spearman": value for name, value in rho.items()} if len(rho) > 1 else {}
    name = graded(dev)
    (first, second), gold = sides[name], dev[name].labels
    alike = gold >= (ALIKE if gold.max() > 1 else 1)
    numbers = {
        "sts_dev_spearman": sum(known) / len(known) if len(known) == len(rho) else None,
        **own,
        "alignment": alignment(vectors[first[alike]], vectors[second[alike]]),
        "uniformity": uniformity(vectors[np.concatenate([first, second])]),
    }
    return numbers, cosines


def _defined(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def introduce(settings: ContrastiveSettings, read: Data, paced: Paced, encoder: BertModel, where: str) -> None:
    """Print what is trained on what, in a few lines."""
    kind, objective = settings.loss.data_kind, settings.loss.objective
    kind += " and phrases" if settings.files.phrases else ""
    groups = ", ".join(f"{count:,} {name}" for name, count in paced.group_sizes.items()) or "no groups"
    ranks.say(f"{_counted(paced.rows, kind)}{f' ({groups})' if kind == TRIPLETS else ''}; {where}")
    kept = "of the last step" if settings.training.keep == LAST else f"that is best by {settings.evaluation.metric}"
    ranks.say(f"evaluated on {read.dev.shown}; the encoder {kept} is kept")
    if paced.group_sizes:
        epochs = [f"{epoch}: " + "/".join(f"{share:.0%}" for share in row) for epoch, row in enumerate(paced.mix, 1)]
        shown = epochs if len(epochs) <= 10 else [*epochs[:5], "...", *epochs[-4:]]
        ranks.say(f"{'/'.join(paced.group_sizes)} in epoch {', '.join(shown)}")
    known = chance(settings, paced.rows, read.train.cache.columns)
    guess = f"; a guess has a loss of {known:.3f}" if known else ""
    batch = _counted(min(settings.training.batch_size, paced.rows), kind)
    ranks.say(f"{_counted(paced.plan.total, 'steps')} of {batch}, {objective}{guess}")
    start.note_rows("the training set", paced.rows, settings.training)
    if paced.rows == 1 and objective in IN_BATCH:
        ranks.note("a batch of one row has no in-batch negatives")
    rates = encoder.config.hidden_dropout_prob, encoder.config.attention_probs_dropout_prob
    if objective == "simcse" and not any(rates):
        ranks.note("--objective simcse: the encoder has no dropout, so both passes of a text are the same")


def write(
    run: RunDir,
    settings: ContrastiveSettings,
    read: Data,
    scored: Scored,
    evaluations: Sequence[EvaluationResult],
    state: LoopState,
) -> None:
    """Write `scores.json` and `cosines.safetensors`, and print what training has changed.

    `evaluations` are one before training, and one at the encoder that the loop has kept: with `--keep best` that of
    step 0 if no evaluation was better than before training.
    """
    before, after = evaluations
    keep, metric = settings.training.keep, settings.evaluation.metric
    scores = {name: {"before": before.numbers[name], "after": value} for name, value in after.numbers.items()}
    kept = {"step": state.kept_step, "keep": keep, "metric": metric}
    steps = {"best_step": state.best_step, "last_step": state.step}
    loss = last_epoch_loss(run.metrics())
    losses = {"last_epoch_loss": loss, "chance_loss": chance(settings, len(scored.rows), read.train.cache.columns)}
    write_json(run.path / "scores.json", {**scores, **kept, **steps, "dev_set": read.dev.name, **losses})
    taken = {"start": scored.cosines, "before": before.cosines, "after": after.cosines}
    arrays = {f"{when} {side}": values for when, one in taken.items() if one for side, values in vars(one).items()}
    if arrays:
        write_atomic(run.path / "cosines.safetensors", save(arrays))
    why = "the last" if keep == LAST or state.kept_step != state.best_step else f"the best by {metric}"
    which = (
        f"step {state.kept_step:,} of {state.step:,}, {why}" if state.kept_step else "the encoder from before training"
    )
    told = "" if settings.loss.objective == "cross" else verdict(metric, before, after, state)
    said = [f"after training ({which}): {as_text(after.numbers)}", told]
    ranks.say("\n".join([*filter(None, said), f"mean training loss over the last epoch: {metrics.shown(loss)}\n"]))


def verdict(metric: str, before: EvaluationResult, after: EvaluationResult, state: LoopState) -> str:
    """A sentence if training has not improved the encoder by the metric; else an empty string."""
    if not state.kept_step:
        return (
            f"training did not help: by {metric} no evaluation was better than before training, so the encoder folder "
            f"holds the encoder that the run started from"
        )
    if after.score is None or before.score is None:
        return f"{metric} is undefined, so it cannot say whether training helped"
    if after.score > before.score:
        return ""
    now, then = (metrics.shown(one.numbers[METRICS[metric][0]]) for one in (after, before))
    there = f"--keep best would have kept step {state.best_step:,}" if state.best_step else "no evaluation was better"
    return (
        f"training did not help: by {metric} the last step is no better than before training "
        f"({now}, {then} before); {there}"
    )


def last_epoch_loss(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Mean training loss over the steps of the last epoch, by which CBCL chose its settings (section 5.2).

    `rows` are those of `metrics.jsonl`: each has the mean over the steps since the row before it, and one ends with
    every epoch, whatever the logging interval.
    """
    train = [row for row in rows if row["kind"] == "train" and "nli/loss" in row]
    begins = [0, *(row["step"] for row in train)]
    last = [
        (row["nli/loss"], row["step"] - begin)
        for row, begin in zip(train, begins, strict=False)
        if row["epoch"] == train[-1]["epoch"]
    ]
    return sum(loss * steps for loss, steps in last) / sum(steps for _, steps in last) if last else None


def as_text(numbers: Mapping[str, float | None]) -> str:
    """The numbers of an evaluation, formatted for the terminal."""
    named = {name.replace("sts_dev", "STS dev").replace("_", " "): value for name, value in numbers.items()}
    return ", ".join(f"{name} {metrics.shown(value)}" for name, value in named.items())


def next_command(settings: ContrastiveSettings, encoder: Path) -> str:
    """The command of stage two that starts from an encoder, on the same data."""
    data = ["--data", settings.files.data] if settings.files.data else []
    script = ["minbert-train"] if cli.console_command() else ["python", "multitask_train.py"]
    return shlex.join([*script, "--encoder", str(encoder), *data])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what[:-1] if count == 1 else what}"
