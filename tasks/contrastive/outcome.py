"""What a run of stage one says: of its plan at the start, and at the end of its encoder before and after training."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from minbert.bert import BertModel
from minbert.files import write_atomic, write_json
from minbert.training import ranks, start
from minbert.training.loop import LAST, LoopState
from minbert.training.run import RunDir
from tasks.contrastive.curriculum import Paced, Scored
from tasks.contrastive.data import Data
from tasks.contrastive.evaluation import METRICS, Look
from tasks.contrastive.objectives import chance
from tasks.contrastive.settings import IN_BATCH, TRIPLETS, ContrastiveSettings


def introduce(settings: ContrastiveSettings, read: Data, paced: Paced, encoder: BertModel, where: str) -> None:
    """Print what is trained on what, in a few lines."""
    kind, objective = settings.loss.data_kind, settings.loss.objective
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


@dataclass(frozen=True)
class Kept:
    """Which encoder of a run is kept and evaluated after training: the one of step `step` of `last_step`.

    With `keep` "best" it is that of step 0 if no evaluation was better than before training.
    """

    step: int
    keep: str
    metric: str
    best_step: int
    last_step: int

    @classmethod
    def of(cls, state: LoopState, settings: ContrastiveSettings) -> "Kept":
        """The encoder that a finished loop has left in the model."""
        return cls(state.kept_step, settings.training.keep, settings.evaluation.metric, state.best_step, state.step)

    @property
    def shown(self) -> str:
        """Its name on the terminal."""
        if not self.step:
            return "the encoder from before training"
        why = "the last" if self.keep == LAST or self.step != self.best_step else f"the best by {self.metric}"
        return f"step {self.step:,} of {self.last_step:,}, {why}"

    def verdict(self, before: Look, after: Look) -> str:
        """A sentence if training has not improved the encoder by the metric; else an empty string."""
        if not self.step:
            return (
                f"training did not help: by {self.metric} no evaluation was better than before training, so the "
                f"encoder folder holds the encoder that the run started from"
            )
        if after.score is None or before.score is None:
            return f"{self.metric} is undefined, so it cannot say whether training helped"
        if after.score > before.score:
            return ""
        now, then = (number(look.numbers[METRICS[self.metric][0]]) for look in (after, before))
        there = f"--keep best would have kept step {self.best_step:,}" if self.best_step else "no evaluation was better"
        return (
            f"training did not help: by {self.metric} the last step is no better than before training "
            f"({now}, {then} before); {there}"
        )


def write(
    run: RunDir, settings: ContrastiveSettings, read: Data, scored: Scored, paced: Paced, looks: list[Look], kept: Kept
) -> None:
    """Write `scores.json` and `cosines.safetensors`, and print what training has changed.

    `looks` are one before training, and one at the encoder that is `kept`.
    """
    before, after = looks
    loss, guess = last_epoch_loss(run.metrics()), chance(settings, paced.rows, read.train.cache.columns)
    scores = {name: {"before": before.numbers[name], "after": value} for name, value in after.numbers.items()}
    about = asdict(kept) | {"dev_set": read.dev.name, "last_epoch_loss": loss, "chance_loss": guess}
    write_json(run.path / "scores.json", scores | about)
    taken = {"start": scored.cosines, "before": before.cosines, "after": after.cosines}
    arrays = {f"{when} {side}": values for when, one in taken.items() if one for side, values in vars(one).items()}
    if arrays:
        write_atomic(run.path / "cosines.safetensors", save(arrays))
    said = [f"after training ({kept.shown}): {as_text(after.numbers)}", kept.verdict(before, after)]
    ranks.say("\n".join([*filter(None, said), f"mean training loss over the last epoch: {number(loss)}\n"]))


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


def as_text(numbers: Mapping[str, float | None]) -> str:
    """The numbers of an evaluation, formatted for the terminal."""
    named = {name.replace("sts_dev", "STS dev").replace("_", " "): value for name, value in numbers.items()}
    return ", ".join(f"{name} {number(value)}" for name, value in named.items())


def number(value: float | None) -> str:
    """A number, formatted for the terminal."""
    return "undefined" if value is None else f"{value:.4f}"


def next_command(settings: ContrastiveSettings, encoder: Path) -> str:
    """The command of stage two that starts from an encoder, on the same data."""
    data = ["--data", settings.files.data] if settings.files.data else []
    return shlex.join(["python", "multitask_train.py", "--encoder", str(encoder), *data])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what[:-1] if count == 1 else what}"
