"""What a run of stage one reports: its plan at the start, its encoder before and after training, scores and charts."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from minbert.bert import BertModel
from minbert.encode import Encoder
from minbert.files import write_atomic, write_json
from minbert.training import start
from minbert.training.cli import say
from minbert.training.loop import LAST, LoopState
from minbert.training.run import RunDir
from tasks.contrastive import scoring, validation
from tasks.contrastive.curriculum import Paced, Similarities
from tasks.contrastive.data import Data
from tasks.contrastive.objectives import chance
from tasks.contrastive.settings import IN_BATCH, TRIPLETS, ContrastiveSettings
from tasks.examples import Triplet


def introduce(settings: ContrastiveSettings, read: Data, paced: Paced, encoder: BertModel, where: str) -> None:
    """Print what is trained on what, in a few lines."""
    groups = ", ".join(f"{count:,} {name}" for name, count in paced.group_sizes.items()) or "no groups"
    grouped = f" ({groups})" if settings.objective.data_kind == TRIPLETS else ""
    say(f"{_counted(paced.rows, settings.objective.data_kind)}{grouped}; {where}")
    kept = "of the last step" if settings.training.keep == "last" else f"that is best by {settings.evaluation.metric}"
    say(f"evaluated on {read.dev.shown}; the encoder {kept} is kept")
    shared = ", ".join(f"{count:,} in {name}" for name, count in read.dev.also_in.items() if count)
    if shared and settings.chooses:
        start.warn(f"of the {len(read.dev):,} pairs that choose the encoder some are also in scored sets: {shared}")
    if paced.group_sizes:
        epochs = [f"{epoch}: " + "/".join(f"{share:.0%}" for share in row) for epoch, row in enumerate(paced.mix, 1)]
        shown = epochs if len(epochs) <= 10 else [*epochs[:5], "...", *epochs[-4:]]
        say(f"{'/'.join(paced.group_sizes)} in epoch {', '.join(shown)}")
    known = chance(settings, paced.rows, read.train.cache.columns)
    guess = f"; a guess has a loss of {known:.3f}" if known else ""
    batch = _counted(min(settings.training.batch_size, paced.rows), settings.objective.data_kind)
    say(f"{_counted(paced.plan.total, 'steps')} of {batch}, {settings.objective.objective}{guess}")
    start.note_rows("the training set", paced.rows, settings.training)
    if paced.rows == 1 and settings.objective.objective in IN_BATCH:
        start.warn("a batch of one row has no in-batch negatives")
    rates = encoder.config.hidden_dropout_prob, encoder.config.attention_probs_dropout_prob
    if settings.objective.objective == "simcse" and not any(rates):
        start.warn("--objective simcse: the encoder has no dropout, so both passes of a text are the same")


def last_epoch_loss(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Mean training loss over the steps of the last epoch, by which CBCL chose its settings (section 5.2).

    `rows` are those of `metrics.jsonl`: each has the mean over the steps since the row before it, and one ends with
    every epoch, whatever the logging interval.
    """
    train = [row for row in rows if row["kind"] == "train" and "nli/loss" in row]
    starts = [0, *(row["step"] for row in train)]
    last = [
        (row["nli/loss"], row["step"] - start)
        for row, start in zip(train, starts, strict=False)
        if row["epoch"] == train[-1]["epoch"]
    ]
    return sum(loss * steps for loss, steps in last) / sum(steps for _, steps in last) if last else None


@dataclass(frozen=True)
class Kept:
    """Which encoder of a run is kept and evaluated after training: the one of step `step` out of `last`.

    With the rule `best` it is that of step 0 if no evaluation was better than before training.
    """

    step: int
    last: int
    best: int
    rule: str
    metric: str

    @classmethod
    def of(cls, state: LoopState, settings: ContrastiveSettings) -> "Kept":
        """The encoder that a finished loop has left in the model."""
        return cls(state.kept_step, state.step, state.best_step, settings.training.keep, settings.evaluation.metric)

    @property
    def shown(self) -> str:
        """Its name on the terminal and in pictures."""
        if not self.step:
            return "the encoder from before training"
        return (
            f"step {self.step:,} of {self.last:,}, {'the last' if self.rule == LAST else f'the best by {self.metric}'}"
        )

    def said(self, before: "Look", after: "Look", last_epoch_loss: float | None) -> list[str]:
        """The last lines that a run prints."""
        verdict = self.verdict(before, after)
        return [
            f"after training ({self.shown}): {validation.as_text(after.numbers)}",
            *([verdict] if verdict else []),
            f"mean training loss over the last epoch: {validation.number(last_epoch_loss)}",
        ]

    def verdict(self, before: "Look", after: "Look") -> str:
        """A sentence if training has not improved the encoder by the metric; else an empty string."""
        if not self.step:
            return (
                f"training did not help: by {self.metric} no evaluation was better than before training, so the "
                f"encoder folder holds the encoder that the run started from"
            )
        if after.score > before.score:
            return ""
        name = validation.METRICS[self.metric][0]
        there = f"--keep best would have kept step {self.best:,}" if self.best else "no evaluation was better"
        return (
            f"training did not help: by {self.metric} the last step is no better than before training "
            f"({validation.number(after.numbers[name])}, {validation.number(before.numbers[name])} before); {there}"
        )

    def account(self) -> dict[str, Any]:
        """For `scores.json`."""
        return {
            "step": self.step,
            "keep": self.rule,
            "metric": self.metric,
            "best_step": self.best,
            "last_step": self.last,
        }


@dataclass(frozen=True)
class Look:
    """One evaluation: the score to maximise, its numbers, and the cosines of its triplets, if there are any."""

    score: float
    numbers: dict[str, float | None]
    cosines: Similarities | None


@dataclass
class Evaluation:
    """Evaluation of an encoder on STS dev pairs and the first `--evaluate-triplets` triplets of the training file."""

    settings: ContrastiveSettings
    encoder: Encoder
    data: Data
    evaluate: Callable[[], tuple[float, dict[str, Any]]] = field(init=False)

    def __post_init__(self) -> None:
        how = self.settings
        self.evaluate = validation.evaluation(
            self.encoder,
            self.data.dev.pairs,
            self._triplets,
            batch_size=how.training.batch_size,
            temperature=how.evaluation.evaluate_temperature or how.objective.temperature,
            metric=how.evaluation.metric,
            limit=how.evaluation.evaluate_triplets,
        )

    @property
    def _triplets(self) -> Triplet | None:
        train = self.data.train
        return train if isinstance(train, Triplet) and self.settings.objective.data_kind == TRIPLETS else None

    def look(self) -> Look:
        """The encoder as it is now."""
        triplets, limit = self._triplets, self.settings.evaluation.evaluate_triplets
        cosines = None
        if triplets is not None and triplets.cache.columns == 3:
            cosines = scoring.cosines(self.encoder, triplets, np.arange(min(len(triplets), limit or len(triplets))))
        return Look(*self.evaluate(), cosines)

    def write(self, run: RunDir, paced: Paced, before: Look, after: Look, kept: Kept) -> float | None:
        """`scores.json`, and the cosines of triplets that were taken, in `cosines.safetensors`.

        `after` is a look at the encoder that is `kept`. Returns the training loss of the last epoch.
        """
        scores = {name: {"before": before.numbers[name], "after": value} for name, value in after.numbers.items()}
        loss = last_epoch_loss(run.metrics())
        guess = chance(self.settings, paced.rows, self.data.train.cache.columns)
        about = kept.account() | {"dev_set": self.data.dev.name, "last_epoch_loss": loss, "chance_loss": guess}
        write_json(run.path / "scores.json", scores | about)
        taken = {"start": paced.cosines, "before": before.cosines, "after": after.cosines}
        arrays = {
            f"{when} {side}": values for when, found in taken.items() if found for side, values in vars(found).items()
        }
        if arrays:
            write_atomic(run.path / "cosines.safetensors", save(arrays))
        return loss


def next_command(settings: ContrastiveSettings, encoder: Path) -> str:
    """The command of stage two that starts from an encoder, on the same data."""
    data = ["--data", settings.files.data] if settings.files.data else []
    return shlex.join(["python", "multitask_train.py", "--encoder", str(encoder), *data])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what[:-1] if count == 1 else what}"
