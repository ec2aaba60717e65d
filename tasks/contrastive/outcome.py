"""What a run of stage one says of its encoder: before, during and after training, in numbers and pictures."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minbert.encode import Encoder
from minbert.files import write_json
from minbert.training.loop import LAST, LoopState
from minbert.training.rundir import RunDir
from tasks.contrastive import pictures, scoring, validation
from tasks.contrastive.curriculum import Paced, Similarities
from tasks.contrastive.data import Data
from tasks.contrastive.objectives import chance
from tasks.contrastive.settings import TRIPLETS, ContrastiveSettings
from tasks.examples import Triplet


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
    """Which encoder of a run is kept, and so which its numbers after training belong to: that of `step`, of `last`.

    Where `rule` is `best` and no evaluation was better than before training by the metric, it is that of step 0.
    """

    step: int
    last: int
    best: int
    rule: str
    metric: str

    @classmethod
    def of(cls, state: LoopState, settings: ContrastiveSettings) -> "Kept":
        """The one that a finished loop has left in the model."""
        return cls(state.kept_step, state.step, state.best_step, settings.training.keep, settings.evaluation.metric)

    @property
    def shown(self) -> str:
        """As terminal and pictures name it."""
        if not self.step:
            return "the encoder from before training"
        return (
            f"step {self.step:,} of {self.last:,}, {'the last' if self.rule == LAST else f'the best by {self.metric}'}"
        )

    def said(self, before: "Look", after: "Look", last_epoch_loss: float | None) -> list[str]:
        """What the terminal says at the end of a run, in lines."""
        verdict = self.verdict(before, after)
        return [
            f"after training ({self.shown}): {validation.as_text(after.numbers)}",
            *([verdict] if verdict else []),
            f"mean training loss over the last epoch: {validation.number(last_epoch_loss)}",
        ]

    def verdict(self, before: "Look", after: "Look") -> str:
        """A sentence where training has not made the encoder better, by the metric; else nothing."""
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
    """One evaluation: the score that chooses, its numbers, and the cosines of its triplets, where there are any."""

    score: float
    numbers: dict[str, float | None]
    cosines: Similarities | None


@dataclass
class Evaluation:
    """How an encoder is judged: STS dev pairs, and the first `--evaluate-triplets` triplets of the training file."""

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
        """`scores.json`, and pictures as SVG and PNG in `pictures/`: loss and STS dev over steps, cosines, groups.

        `after` is a look at the encoder that is `kept`. Returns the training loss of the last epoch.
        """
        scores = {name: {"before": before.numbers[name], "after": value} for name, value in after.numbers.items()}
        into, rows = run.path / "pictures", run.metrics()
        loss = last_epoch_loss(rows)
        about = kept.account() | {"dev_set": self.data.dev.name, "last_epoch_loss": loss}
        write_json(run.path / "scores.json", scores | about)
        pictures.losses(into / "loss", rows, chance(self.settings, paced.rows, self.data.train.cache.columns))
        name = "sts_dev_spearman"
        reached = after.numbers[name]
        marked = None if reached is None else (kept.step, reached, kept.rule)
        pictures.spearman(into / "sts-dev", rows, before.numbers[name], marked)
        if before.cosines and after.cosines:
            first, second = ((one.positive, one.negative) for one in (before.cosines, after.cosines))
            pictures.cosines(into / "cosines", first, second, f"after {kept.step:,} steps")
        if paced.cosines is not None:
            pictures.gaps(
                into / "groups", paced.cosines.positive, paced.cosines.negative, self.settings.curriculum.margin
            )
            pictures.mix(into / "mix", paced.mix)
        return loss
