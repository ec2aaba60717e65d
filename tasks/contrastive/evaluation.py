"""Evaluation of an encoder during training, and the report of its scores before and after.

The numbers: STS correlation, alignment, uniformity, triplet accuracy, a frozen NT-Xent loss.

Axes: M texts, D hidden. Vectors are scaled to length 1 first, in float64.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from minbert.bert import BertModel
from minbert.encoder import Encoder
from minbert.files import write_atomic, write_json
from minbert.train import cli, distributed, start
from minbert.train.loop import LAST, LoopState, finite_or_none
from minbert.train.plan import Plan
from minbert.train.run import RunFolder
from tasks import metrics
from tasks.contrastive.curriculum import Paced, ScoredTriplets
from tasks.contrastive.data import Data
from tasks.contrastive.losses import nt_xent
from tasks.contrastive.scoring import distinct, encode_over_ranks
from tasks.contrastive.settings import ContrastiveSettings, TrainingSettings, slug
from tasks.examples import Examples
from tasks.record import rows_of, write_rows

METRIC, NAME = TrainingSettings.metric, "sts_dev_spearman"
"""The metric that selects the best encoder, and its name among the numbers of an evaluation."""
BERT_BASE_WIDTH = 768
TRIPLETS_EVALUATED = 2000
"""Training triplets of an evaluation: their accuracy is good to about a point, and an evaluation stays short."""
FROZEN_TEMPERATURE = 0.05
"""Temperature of the frozen loss, CBCL's, in every run: losses at different temperatures cannot be compared."""
_BLOCK = 1024  # rows of a matrix of distances at a time
ALIKE = 4.0
"""Lowest gold similarity, of 5, of a positive pair in the alignment; SimCSE (section 3) takes pairs above it."""


@dataclass(frozen=True)
class EvaluationResult:
    """One evaluation: its numbers, None where undefined, and the cosines of every dev set."""

    numbers: dict[str, float | None]
    dev_cosines: dict[str, np.ndarray]

    @property
    def score(self) -> float | None:
        """The score to maximise."""
        return self.numbers[NAME]


class Evaluation:
    """Evaluation of an encoder on scored pairs, and on the first `TRIPLETS_EVALUATED` of the `trained` rows.

    Each distinct text is encoded once, dropout off. `sts_dev_spearman` is Spearman's rho over the dev pairs (gold
    similarity 0 to 5, or 0 and 1); of several sets it is the mean, as in EdaCSE's tables, and each set's own is logged
    too. `alignment` and `uniformity` are over the first set with graded scores (else the first set),
    `triplet_accuracy` and `frozen_loss` over the triplets; rows of two texts have no hard negatives, and no
    accuracy (the share with cos(a, p) > cos(a, n)). An undefined number is None and ranks below every other.
    """

    def __init__(self, settings: ContrastiveSettings, encoder: Encoder, data: Data, trained: np.ndarray) -> None:
        self.encoder, self.dev, triplets = encoder, data.dev.pairs, data.train
        self.latest: EvaluationResult | None = None
        self.columns, self.batch_size = 0, settings.training.batch_size
        sides = [(pairs, column) for pairs in self.dev.values() for column in (0, 1)]
        texts = [pairs.sentence(row, column) for pairs, column in sides for row in range(len(pairs))]
        self.scored = len(texts)
        if settings.objective.curriculum:
            rows, self.columns = trained[:TRIPLETS_EVALUATED].tolist(), triplets.cache.columns
            texts += [triplets.sentence(row, column) for column in range(self.columns) for row in rows]
        self.texts, self.index = distinct(map(tuple, texts))

    def score(self) -> tuple[float | None, dict[str, Any]]:
        """Evaluate; returns the score to maximise and the numbers, for the training loop."""
        self.latest = self.evaluate()
        return self.latest.score, self.latest.numbers

    def kept(self, state: LoopState) -> EvaluationResult:
        """The evaluation of the encoder that the loop kept: the latest one if it was of that step, else a new one."""
        return self.latest if self.latest and state.kept_step == state.step else self.evaluate()

    def evaluate(self) -> EvaluationResult:
        """Evaluate the encoder as it is now."""
        self.encoder.model.eval()
        vectors = unit(encode_over_ranks(self.encoder, self.texts))
        numbers, dev_cosines = _sts_numbers(vectors, self.index[: self.scored], self.dev)
        if self.columns:
            anchor, positive, *hard = np.split(vectors[self.index[self.scored :]], self.columns)
            if hard:
                gap = (anchor * positive).sum(1) - (anchor * hard[0]).sum(1)
                numbers["triplet_accuracy"] = float((gap > 0).mean()) if np.isfinite(gap).all() else None
            numbers["frozen_loss"] = frozen_loss([anchor, positive, *hard], self.batch_size)
        return EvaluationResult(numbers, dev_cosines)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1, in float64; a zero row stays zero."""
    wide = vectors.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)


def alignment(first: np.ndarray, second: np.ndarray) -> float | None:
    """Mean of ||x - y||^2 over positive pairs of unit vectors (Wang and Isola 2020, section 4); None without pairs."""
    return finite_or_none(float(np.square(first - second).sum(1).mean())) if len(first) else None


def uniformity(vectors: np.ndarray) -> float | None:
    """ln of the mean of exp(-2 ||x - y||^2) over all pairs of M unit vectors (Wang and Isola 2020, section 4).

    None for fewer than two. Memory is that of `_BLOCK` rows of the M x M distances.
    """
    if len(vectors) < 2:
        return None
    squares, total = np.square(vectors).sum(1), 0.0
    for begin in range(0, len(vectors), _BLOCK):
        rows, columns = slice(begin, begin + _BLOCK), slice(begin, None)
        squared = squares[rows, None] + squares[None, columns] - 2 * vectors[rows] @ vectors[columns].T
        total += np.triu(np.exp(-2 * np.maximum(squared, 0)), 1).sum()
    return finite_or_none(float(np.log(total / (len(vectors) * (len(vectors) - 1) / 2))))


def frozen_loss(sides: list[np.ndarray], batch_size: int) -> float | None:
    """NT-Xent of anchors, positives and, if there are any, hard negatives, in batches of file order: the mean, or None.

    The last batch may be smaller, and has fewer candidates then.
    """
    total = 0.0
    for anchor, positive, *hard in torch.from_numpy(np.stack(sides)).split(batch_size, dim=1):
        total += float(nt_xent(anchor, positive, hard[0] if hard else None, FROZEN_TEMPERATURE)) * len(anchor)
    return finite_or_none(total / len(sides[0]))


def graded(dev: Mapping[str, Examples]) -> str:
    """The first set whose scores are more than two classes, else the first."""
    return next((name for name, examples in dev.items() if len(np.unique(examples.labels)) > 2), next(iter(dev)))


def _sts_numbers(
    vectors: np.ndarray, index: np.ndarray, dev: Mapping[str, Examples]
) -> tuple[dict[str, float | None], dict[str, np.ndarray]]:
    """The numbers of an evaluation that are over dev pairs, and the cosine of each pair, by set.

    `vectors` are those of the distinct texts, [M, D], `index` both sides of every pair among them, set after set.
    """
    ends = np.cumsum([2 * len(examples) for examples in dev.values()])
    sides = {name: np.split(part, 2) for name, part in zip(dev, np.split(index, ends[:-1]), strict=True)}
    cosines = {name: (vectors[first] * vectors[second]).sum(1) for name, (first, second) in sides.items()}
    rho = {name: metrics.spearman(values, dev[name].labels) for name, values in cosines.items()}
    defined = [value for value in rho.values() if value is not None]
    by_set = {f"{slug(name)}_dev_spearman": value for name, value in rho.items()} if len(rho) > 1 else {}
    name = graded(dev)
    (first, second), gold = sides[name], dev[name].labels
    alike = gold >= (ALIKE if gold.max() > 1 else 1)
    numbers = {
        NAME: sum(defined) / len(defined) if len(defined) == len(rho) else None,
        **by_set,
        "alignment": alignment(vectors[first[alike]], vectors[second[alike]]),
        "uniformity": uniformity(vectors[np.concatenate([first, second])]),
    }
    return numbers, cosines


def print_summary(settings: ContrastiveSettings, data: Data, paced: Paced, encoder: BertModel, hardware: str) -> None:
    """Print the data, the curriculum and the objective in a few lines."""
    objective = settings.objective
    groups = ", ".join(f"{count:,} {name}" for name, count in paced.group_sizes.items())
    distributed.say(f"{_counted(paced.row_count, objective.row_noun)}{f' ({groups})' if groups else ''}; {hardware}")
    kept = "of the last step" if settings.training.keep == LAST else f"that is best by {METRIC}"
    distributed.say(f"evaluated on {data.dev.shown}; the encoder {kept} is kept")
    if paced.group_sizes:
        epochs = [f"{epoch}: " + "/".join(f"{share:.0%}" for share in row) for epoch, row in enumerate(paced.mix, 1)]
        shown = epochs if len(epochs) <= 10 else [*epochs[:5], "...", *epochs[-4:]]
        distributed.say(f"{'/'.join(paced.group_sizes)} in epoch {', '.join(shown)}")
    guess = chance(settings, paced.row_count, data.train.cache.columns)
    by_chance = f"; a guess has a loss of {guess:.3f}" if guess else ""
    batch = _counted(min(settings.training.batch_size, paced.row_count), objective.row_noun)
    distributed.say(f"{_counted(paced.plan.total, 'steps')} of {batch}, {objective.objective}{by_chance}")
    start.note_rows("the training set", paced.row_count, settings.training)
    distributed.note(*objective.notes(encoder))


def chance(settings: ContrastiveSettings, rows: int, columns: int) -> float | None:
    """The loss of a random guess over `rows` training rows, which may be less than a batch."""
    return settings.objective.chance(min(settings.training.batch_size, rows), columns)


def write(
    run: RunFolder,
    settings: ContrastiveSettings,
    data: Data,
    scored: ScoredTriplets,
    paced: Paced,
    evaluations: Sequence[EvaluationResult],
    state: LoopState,
) -> None:
    """Write `scores.json`, the dev rows and the triplets' cosines, and print what training has changed.

    `evaluations` are one before training and one of the kept encoder, which is that of step 0 if `--keep best` found
    no better one. `cosines.safetensors` holds those of the starting encoder, if it scored the triplets.
    """
    before, after = evaluations
    bi = settings.objective.form == "bi"  # whether sentence embeddings are trained
    keep = settings.training.keep
    scores = {name: {"before": before.numbers[name], "after": value} for name, value in after.numbers.items()}
    kept = {"step": state.kept_step, "keep": keep, "metric": METRIC}
    steps = {"best_step": state.best_step, "last_step": state.step}
    loss = last_epoch_loss(run.metrics(), paced.plan)
    losses = {"last_epoch_loss": loss, "chance_loss": chance(settings, len(scored.rows), data.train.cache.columns)}
    write_json(run.path / "scores.json", {**scores, **kept, **steps, "dev_set": data.dev.name, **losses})
    if scored.cosines:
        arrays = {f"start {side}": values for side, values in vars(scored.cosines).items()}
        write_atomic(run.path / "cosines.safetensors", save(arrays))
    name = graded(data.dev.pairs)
    write_rows(run.path, slug(name), rows_of(data.dev.pairs[name], after.dev_cosines[name]))
    weights = state.kept_weights(settings.training, paced.plan.total)
    lines = [f"after training ({weights}): {as_text(after.numbers)}", verdict(before, after, state) if bi else ""]
    distributed.say(
        "\n".join([*filter(None, lines), f"mean training loss over the last epoch: {metrics.shown(loss)}\n"])
    )


def verdict(before: EvaluationResult, after: EvaluationResult, state: LoopState) -> str:
    """A sentence if training has not improved the encoder by the metric; else an empty string."""
    if not state.kept_step:
        return (
            f"training did not help: by {METRIC} no evaluation was better than before training, so the encoder folder "
            f"holds the encoder that the run started from"
        )
    if after.score is None or before.score is None:
        return f"{METRIC} is undefined, so it cannot say whether training helped"
    if after.score > before.score:
        return ""
    better = f"--keep best would have kept step {state.best_step:,}" if state.best_step else "no evaluation was better"
    return (
        f"training did not help: by {METRIC} the last step is no better than before training "
        f"({metrics.shown(after.score)}, {metrics.shown(before.score)} before); {better}"
    )


def last_epoch_loss(rows: Iterable[Mapping[str, Any]], plan: Plan) -> float | None:
    """Mean training loss over the rows of the last epoch, by which CBCL chose its settings (section 5.2).

    `rows` are those of `metrics.jsonl`: each has the mean over the examples since the row before it, and one ends with
    every epoch, whatever the logging interval.
    """
    train = [row for row in rows if row["kind"] == "train" and "nli/loss" in row]
    if not train:
        return None
    last = [row for row in train if row["epoch"] == train[-1]["epoch"]]
    epoch = last[-1]["epoch"] - 1
    sizes = [len(examples) for _, examples in plan.build(epoch)]
    start = plan.ends[epoch] - plan.lengths[epoch]
    ends = [row["step"] - start for row in last]
    weights = [sum(sizes[begin:end]) for begin, end in pairwise([0, *ends])]
    return float(np.average([row["nli/loss"] for row in last], weights=weights))


def as_text(numbers: Mapping[str, float | None]) -> str:
    """The numbers of an evaluation, formatted for the terminal."""
    named = {name.replace("sts_dev", "STS dev").replace("_", " "): value for name, value in numbers.items()}
    return ", ".join(f"{name} {metrics.shown(value)}" for name, value in named.items())


def next_command(settings: ContrastiveSettings, encoder: Path, width: int) -> str:
    """The recommended command of stage two from an encoder of hidden size `width`, on the same data."""
    preset = "best" if width < BERT_BASE_WIDTH else "best-bert"
    words = ["--preset", preset, "--encoder", str(encoder)]
    if settings.objective.form != "bi":  # this run has trained no sentence embeddings
        words += ["--sentence-encoder", settings.encoder.weights]
    words += ["--data", settings.files.data] if settings.files.data else []
    script = ["minbert-train"] if cli.console_command() else ["python", "multitask_train.py"]
    return shlex.join([*script, *words, "--run-dir", f"runs/{preset}"])


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun[:-1] if count == 1 else noun}"
