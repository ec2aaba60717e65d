"""Fine-tune one encoder on sentiment, paraphrase and similarity together, and write the leaderboard's files.

python multitask_train.py --preset best --encoder runs/intermediate/encoder --sentence-encoder minilm
python multitask_train.py --encoder runs/cbcl/encoder --run-dir runs/cbcl-multitask
"""

import sys
from functools import partial
from typing import TYPE_CHECKING

from minbert.train import cli
from minbert.train.settings import parse
from tasks.settings import PRESETS, MultitaskSettings

if TYPE_CHECKING:
    from minbert.train.start import Start


def main() -> None:
    """Read the settings, open the run, then train."""
    description, script = __doc__.splitlines()[0], "multitask_train.py"
    parsed = parse(MultitaskSettings, PRESETS, sys.argv[1:], program=script, description=description, default="default")
    from minbert.train import start  # it imports torch, which --help does not need

    with start.open_run(parsed) as started:
        train(started)


def train(started: "Start[MultitaskSettings]") -> None:
    """Read the tasks, build encoder and heads, make the schedule, fit, predict, score, save, write the page."""
    from minbert import weights
    from minbert.optimizer import AdamW
    from minbert.train import distributed, loop, plan
    from tasks import augment, evaluate, model, record, registry, splits

    settings, training, run = started.settings, started.settings.training, started.run

    # read the tasks
    tasks = registry.build(settings.data.tasks, settings.model.pairs, "--tasks")
    paths = record.prediction_paths(tasks, settings)
    files = splits.find_splits(tasks, settings, paths)
    resources = augment.resources(settings.synonyms, settings.files.data)
    started, encoder = started.with_encoder()
    settings = started.settings
    data = splits.read(tasks, files, settings, encoder.tokenizer, encoder.max_length)

    # build encoder and heads
    sentences, sentence_inputs = model.sentence_encoder(settings, encoder.model, encoder.tokenizer)
    identity = started.identify(encoder, {**splits.inputs(data), **resources, **sentence_inputs})
    multitask = model.build(settings, encoder.model, tasks, sentences)
    optimizer = AdamW(model.parameter_groups(multitask, training), lr=training.lr)
    parameters = sum(p.numel() for p in multitask.parameters() if p.requires_grad)

    # make the schedule
    steps, sizes = splits.make_schedule(settings, data["train"])
    changes = augment.synonym_augmentation(
        settings.synonyms, training, data["train"], encoder.tokenizer, data=settings.files.data, run=run.path
    )
    started.write_manifest(
        identity,
        encoder,
        data=splits.manifest_entry(data),
        plan=plan.describe(steps),
        training_rows=sizes,
        parameters=parameters,
    )
    shown = ", ".join(f"{task.title} {sizes[task.name]:,}" for task in tasks)
    distributed.say(f"{parameters:,} parameters, {started.describe(encoder.model)}")
    distributed.say(f"{steps.total:,} step{'s' * (steps.total != 1)} of {training.batch_size}: {shown}")

    # fit
    evaluation = evaluate.DevEvaluation(multitask, data["dev"], started.precision)
    state = loop.fit(
        multitask,
        optimizer,
        model.MultitaskTrainStep(data["train"], settings.schedule.accumulate, changes, training.r_drop),
        steps,
        run,
        training,
        settings.run,
        evaluation,
        device=started.device,
        precision=started.precision,
        tasks=len(tasks),
    )
    if distributed.rank():
        return

    # predict, score, save, write the page
    predictions = evaluate.predict(multitask, data, paths, started.precision, evaluation.outputs_of_kept(state))
    scores = evaluate.score(multitask.tasks, predictions)
    record.save(run.path, multitask.tasks, predictions, paths)
    evaluate.save_scores(run.path, scores, state, training.keep)
    state_dict, pooler = encoder.model.state_dict(), settings.encoder.pooler
    weights.save(run.path / "encoder", state_dict, encoder.config, encoder.tokenizer, pooler)
    cli.say(f"\n{evaluate.as_text(scores, state, state.kept_weights(training, steps.total))}")
    run.record_step(state.step)
    cli.run_module("tasks.report", str(run.path))
    folders = sorted({str(path.parent) for path in paths.values()})
    cli.say(f"predictions in {', '.join(folders)}; scores.json and the encoder/ in {run.path}")


command = partial(cli.run, main)
"""The console command `minbert-train`."""

if __name__ == "__main__":
    command()
