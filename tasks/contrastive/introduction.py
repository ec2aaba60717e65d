"""What a run of stage one says on the terminal before its first step, and what comes after it."""

import shlex
from pathlib import Path

from minbert.bert import BertModel
from minbert.training import start
from minbert.training.cli import say
from tasks.contrastive.curriculum import Paced
from tasks.contrastive.data import Data
from tasks.contrastive.objectives import chance
from tasks.contrastive.settings import IN_BATCH, TRIPLETS, ContrastiveSettings


def introduce(settings: ContrastiveSettings, read: Data, paced: Paced, encoder: BertModel, where: str) -> None:
    """What is trained on what, in a few lines."""
    groups = ", ".join(f"{count:,} {name}" for name, count in paced.group_sizes.items()) or "no groups"
    grouped = f" ({groups})" if settings.objective.data_kind == TRIPLETS else ""
    say(f"{_counted(paced.rows, settings.objective.data_kind)}{grouped}; {where}")
    kept = "of the last step" if settings.training.keep == "last" else f"that is best by {settings.evaluation.metric}"
    say(f"evaluated on {read.dev.shown}; the encoder {kept} is kept")
    shared = ", ".join(f"{count:,} in {name}" for name, count in read.dev.also_in.items() if count)
    if shared and settings.chooses:
        start.warn(f"of the {len(read.dev):,} pairs that choose the encoder there stand {shared}")
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
        start.warn("a batch of one row has no in-batch negatives: nothing tells its texts from others")
    rates = encoder.config.hidden_dropout_prob, encoder.config.attention_probs_dropout_prob
    if settings.objective.objective == "simcse" and not any(rates):
        start.warn("--objective simcse: the encoder has no dropout, so both passes of a text are the same")


def next_command(settings: ContrastiveSettings, encoder: Path) -> str:
    """How stage two goes on from an encoder, on the same data."""
    data = ["--data", settings.files.data] if settings.files.data else []
    return shlex.join(["python", "multitask_train.py", "--encoder", str(encoder), *data])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what[:-1] if count == 1 else what}"
