"""The part of a run that all commands of stage one share: evaluate, fit, evaluate again, save."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minbert import weights
from minbert.encoder import Encoder
from minbert.files import write_json
from minbert.optimizer import AdamW, decay_groups
from minbert.train import cli, distributed, loop, start
from minbert.train.loop import LAST
from minbert.train.plan import Plan
from minbert.train.start import InitialEncoder, OpenRun
from tasks import metrics
from tasks.contrastive import evaluation
from tasks.contrastive.data import Data
from tasks.contrastive.evaluation import Evaluation
from tasks.contrastive.step import ContrastiveModel, ContrastiveTrainStep
from tasks.examples import Examples
from tasks.record import file_name, rows_of, write_rows


def fit_and_save(
    run: OpenRun[Any],
    initial: InitialEncoder,
    model: ContrastiveModel,
    train_step: ContrastiveTrainStep,
    steps: Plan,
    data: Data,
    *,
    rows: Any,
    noun: str,
    loss: str,
    chance: float | None,
    triplets: Examples | None = None,
    next_flags: Sequence[str] = (),
    trains_sentences: bool = True,
) -> None:
    """Train a model over the plan's steps, and save the encoder, its scores and the page of the run.

    rows: int64 [n], those of `data.train` that are trained on; noun: what they are called, such as "triplets".
    loss: the name of the loss; chance: its value for a random guess, None where there is none.
    triplets: the training rows where an evaluation is over them too.
    next_flags: flags of stage two that follow from this run.
    trains_sentences: whether the run trains vectors of sentences, which the dev pairs judge.
    """
    training = run.settings.training
    kept = f"that is best by {evaluation.METRIC}"
    if training.keep == LAST:
        kept = "of the last step"
    distributed.say(f"evaluated on {data.dev.description}; the encoder {kept} is kept")
    batch = count_of(min(training.batch_size, len(rows)), noun)
    by_chance = f"; a guess has a loss of {chance:.3f}" if chance else ""
    distributed.say(f"{count_of(steps.total, 'steps')} of {batch}, {loss}{by_chance}; {run.describe(initial.model)}")
    start.note_rows("the training set", len(rows), training)

    encoder = Encoder(initial.model, initial.tokenizer, model.pooler, precision=run.precision)
    dev_evaluation = Evaluation(encoder, data.dev.pairs, triplets=triplets, rows=rows, batch_size=training.batch_size)
    before = dev_evaluation.evaluate()
    distributed.say(f"before training: {evaluation.as_text(before.metrics)}")
    state = loop.fit(
        model,
        AdamW(decay_groups(model.parameters(), training.weight_decay), lr=training.lr),
        train_step,
        steps,
        run.folder,
        training,
        run.settings.run,
        dev_evaluation.score,
        device=run.device,
        precision=run.precision,
        baseline=before.score,
    )
    after = dev_evaluation.kept(state)
    if distributed.rank():
        return

    folder = run.folder.path
    weights.save(folder / "encoder", initial.model.state_dict(), initial.config, initial.tokenizer, model.pooler)
    last_loss = evaluation.last_epoch_loss(run.folder.metrics(), steps)
    scores: dict[str, Any] = {}
    for name, value in after.metrics.items():
        scores[name] = {"before": before.metrics[name], "after": value}
    scores |= {
        "step": state.kept_step,
        "keep": training.keep,
        "metric": evaluation.METRIC,
        "best_step": state.best_step,
        "last_step": state.step,
        "dev_set": data.dev.name,
        "last_epoch_loss": last_loss,
        "chance_loss": chance,
    }
    write_json(folder / "scores.json", scores)
    name = evaluation.graded(data.dev.pairs)
    write_rows(folder, file_name(name), rows_of(data.dev.pairs[name], after.dev_cosines[name]))

    cli.say(f"after training ({state.kept_weights(training, steps.total)}): {evaluation.as_text(after.metrics)}")
    if trains_sentences and (sentence := evaluation.verdict(before, after, state)):
        cli.say(sentence)
    cli.say(f"mean training loss over the last epoch: {metrics.format_score(last_loss)}\n")
    run.folder.record_step(state.step)
    cli.run_module("tasks.report", str(folder))
    cli.say(f"encoder in {folder / 'encoder'}")
    cli.say(f"next: {next_command(folder / 'encoder', run.settings.files.data, next_flags)}")


def next_command(encoder: Path, data: str, flags: Sequence[str] = ()) -> str:
    """The command of stage two that continues from an encoder, on the same data; `flags` are further flags."""
    words = list(flags)
    if encoder != Path("runs/cbcl/encoder"):  # where stage two looks by itself
        words += ["--encoder", str(encoder)]
    if data:
        words += ["--data", data]
    script = ["minbert-train"] if cli.console_command() else ["python", "multitask_train.py"]
    return shlex.join([*script, *words])


def count_of(count: int, noun: str) -> str:
    """A number and a noun in the plural: `1 step`, `2,000 steps`."""
    return f"{count:,} {noun[:-1] if count == 1 else noun}"
