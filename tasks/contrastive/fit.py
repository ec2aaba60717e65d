"""A run of stage one from its first evaluation to its end: fit, save the encoder, its scores and the page.

Every command calls `fit_and_save` once its model, its training step and its plan are there.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from minbert.encoder import Encoder
from minbert.errors import format_count
from minbert.files import data_path, write_json
from minbert.optimizer import AdamW, decay_groups
from minbert.train import cli, distributed, loop, start
from minbert.train.plan import Plan
from minbert.train.progress import format_metrics, format_score
from minbert.train.start import InitialEncoder, OpenRun
from tasks.contrastive import evaluation
from tasks.contrastive.data import Data
from tasks.contrastive.evaluation import Evaluation
from tasks.contrastive.settings import StageOneSettings
from tasks.contrastive.step import ContrastiveModel, ContrastiveTrainStep
from tasks.examples import Examples
from tasks.presets import CBCL_RUN, PRESETS
from tasks.record import file_name, rows_of, write_rows

S = TypeVar("S", bound=StageOneSettings)


def fit_and_save(
    run: OpenRun[S],
    initial: InitialEncoder,
    model: ContrastiveModel,
    train_step: ContrastiveTrainStep,
    steps: Plan,
    data: Data,
    *,
    loss: str,
    chance: float | None,
    triplets: Examples | None = None,
    next_flags: Sequence[str] = (),
    trains_sentences: bool = True,
) -> None:
    """Train a model over the plan's steps, and save the encoder, its scores and the page of the run.

    loss: the name of the loss; chance: its value for a random guess, None where there is none.
    triplets: the training rows, if evaluations cover them too.
    next_flags: flags of stage two that follow from this run.
    trains_sentences: whether the run trains vectors of sentences, which the dev pairs judge.
    """
    training = run.settings.training

    # say what is trained on, and by what it is judged
    kept = "of the last step" if training.keep == "last" else f"that is best by {training.metric}"
    distributed.say(f"evaluated on {data.dev.description}; the encoder {kept} is kept")
    batch = format_count(min(training.batch_size, len(data.train)), data.noun)
    by_chance = f"; a guess has a loss of {chance:.3f}" if chance else ""
    distributed.say(
        f"{format_count(steps.total, 'steps')} of {batch}, {loss}{by_chance}; {run.describe(initial.model)}"
    )
    start.note_rows("the training set", len(data.train), training)

    # fit, between two evaluations
    encoder = Encoder(initial.model, initial.tokenizer, model.pooler, precision=run.precision)
    dev_evaluation = Evaluation(encoder, data.dev.pairs, triplets=triplets)
    before = dev_evaluation.evaluate()
    if before.metrics:
        distributed.say(f"before training: {format_metrics(before.metrics)}")
    parameters = decay_groups(model.parameters(), training.weight_decay)
    state = loop.fit(
        model,
        AdamW(parameters, lr=training.lr, correct_bias=training.correct_bias),
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
    after = dev_evaluation.result_of_kept(state)
    if distributed.rank():
        return

    # save the encoder, the cosines of the dev pairs and the scores
    folder = run.folder.path
    initial.save(folder / "encoder", model.pooler)
    last_loss = evaluation.last_epoch_loss(run.folder.metrics(), steps)
    scores: dict[str, Any] = {}
    for name, value in after.metrics.items():
        scores[name] = {"before": before.metrics[name], "after": value}
    kept_weights = state.describe_kept_weights(training, steps.total)
    scores |= {
        "step": state.kept_step,
        "kept_weights": kept_weights,
        "keep": training.keep,
        "metric": training.metric,
        "best_step": state.best_step,
        "last_step": state.step,
        "dev_set": data.dev.name,
        "last_epoch_loss": last_loss,
        "chance_loss": chance,
    }
    if data.dev.pairs:
        name = evaluation.first_graded_set(data.dev.pairs)
        write_rows(folder, file_name(name), rows_of(data.dev.pairs[name], after.dev_cosines[name]))
    # the last file, as it tells that the run is finished
    write_json(folder / "scores.json", scores)

    # say what came out, write the page
    measured = format_metrics(after.metrics)
    cli.say(f"after training ({kept_weights}): {measured}")
    if trains_sentences:
        failure = evaluation.describe_failure(before, after, state)
        if failure:
            cli.say(failure)
    cli.say(f"mean training loss over the last epoch: {format_score(last_loss)}\n")
    run.folder.record_step(state.step)  # again: the session's time includes the evaluation and the encoder
    cli.run_module("tasks.report", str(folder))
    cli.say(f"encoder in {folder / 'encoder'}")
    # a preset of both stages
    if run.parsed.preset in PRESETS["multitask_train.py"]:
        next_flags = ["--preset", run.parsed.preset, *next_flags]
    if command := next_command(folder / "encoder", run.settings.files.data, next_flags):
        cli.say(f"next: {command}")


def next_command(encoder: Path, data: str, flags: Sequence[str] = ()) -> str:
    """The command of stage two that continues from an encoder, on the same data; `flags` are further flags.

    Empty if the data folder has no training file of the course's, which stage two reads.
    """
    data = data or os.environ.get("DATA_DIR", "")
    if not any([*data_path(data).glob("*-train.csv"), *data_path(data).glob("course/*-train.csv")]):
        return ""
    words = list(flags)
    # stage two looks in CBCL's folder by itself, but not with flags: a preset may name other weights
    if flags or encoder != Path(CBCL_RUN) / "encoder":
        words += ["--encoder", str(encoder)]
    if data:
        words += ["--data", data]
    if cli.console_command():
        return shlex.join(["minbert-train", *words])
    # the interpreter as it was typed, and stage two's script from wherever this command was started
    script = os.path.relpath(Path(__file__).parents[2] / "multitask_train.py")
    return shlex.join([sys.orig_argv[0], script, *words])
