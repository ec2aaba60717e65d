"""Fine-tune one encoder on sentiment, paraphrase and similarity in round robin, and write the leaderboard's files.

python multitask_train.py
python multitask_train.py --preset best --weights minilm --data DIR --run-dir runs/best
python multitask_train.py --new-task reviews.csv && python multitask_train.py --tasks reviews.toml --weights minilm
"""

import sys
from functools import partial

# before torch: the package sets GOMP_SPINCOUNT, which OpenMP reads when torch is loaded
from tasks import evaluate, manifests, model, new_task, record, registry, splits
from tasks.augment.synonyms import synonym_augmentation, synonym_files, write_replacements
from tasks.presets import PRESETS
from tasks.settings import MultitaskSettings, resolve_defaults

# isort: split
from minbert.errors import format_count
from minbert.files import expand_user
from minbert.optimizer import AdamW
from minbert.train import cli, distributed, loop, plan, start
from minbert.train.settings import parse
from minbert.train.start import OpenRun


def main() -> None:
    """Read the settings, open the run, then train."""
    program = "multitask_train.py"
    parsed = parse(MultitaskSettings, PRESETS, sys.argv[1:], program=program, doc=__doc__, default="default")
    if parsed.settings.files.new_task:
        path = new_task.write_task(expand_user(parsed.settings.files.new_task))
        cli.say(f"{path}:\n\n{path.read_text(encoding='utf-8')}")
        return
    with start.open_run(resolve_defaults(parsed)) as run:
        train(run)


def train(run: OpenRun[MultitaskSettings]) -> None:
    """Read the tasks, build encoder and heads, make the schedule, fit, predict, score, save, write the page."""
    settings = run.settings
    training = settings.training

    # read the tasks
    tasks = registry.build(settings.data.tasks, settings.model.pairs, "--tasks")
    paths = splits.prediction_paths(tasks, settings)
    files = splits.find_splits(tasks, settings, paths)
    resources = synonym_files(settings)
    flag, source = settings.encoder.starting_point()
    origin = manifests.describe_run(expand_user(source))
    initial = start.load_initial_encoder(settings.encoder, run.device, source=source, flag=flag, origin=origin)
    data = splits.read(tasks, files, settings, initial.tokenizer, initial.max_length)

    # build encoder and heads
    sentence_encoder, sentence_inputs = model.load_sentence_encoder(settings, initial.model, initial.tokenizer)
    multitask = model.build(settings, initial.model, initial.pooler, tasks, sentence_encoder)
    from_run, head_inputs = model.take_heads(multitask, settings)
    optimizer = AdamW(model.parameter_groups(multitask, training), lr=training.lr)
    parameters = sum(p.numel() for p in multitask.parameters() if p.requires_grad)

    # make the plan
    steps, sizes = splits.make_plan(settings, data["train"])
    augment = synonym_augmentation(settings, data["train"], steps, run.folder.path)
    start.begin_run(
        run,
        initial,
        {**splits.inputs(data), **registry.inputs(tasks), **resources, **sentence_inputs, **head_inputs},
        data=splits.manifest_entry(data),
        plan=plan.manifest_entry(steps),
        training_rows=sizes,
        parameters=parameters,
        from_run=from_run,
        own_tasks=registry.definitions(tasks),
    )
    write_replacements(augment)
    rows = ", ".join(f"{task.title} {sizes[task.name]:,}" for task in tasks)
    distributed.say(f"{parameters:,} parameters, {run.describe(initial.model)}")
    distributed.say(
        f"{format_count(steps.total, 'steps')} of {training.batch_size}, {settings.schedule.sampling}: {rows}"
    )

    # fit
    evaluation = evaluate.DevEvaluation(multitask, data["dev"], run.precision)
    state = loop.fit(
        multitask,
        optimizer,
        model.MultitaskTrainStep(data["train"], settings.schedule.accumulate, augment, training.r_drop),
        steps,
        run.folder,
        training,
        settings.run,
        evaluation,
        device=run.device,
        precision=run.precision,
        num_tasks=len(tasks),
    )
    if distributed.rank():
        return

    # predict, score, save, write the page
    folder = run.folder.path
    predictions = evaluate.predict(multitask, data, run.precision, evaluation.outputs_of_kept(state))
    scores = evaluate.score(multitask.tasks, predictions)
    for name, split in predictions:
        if multitask.tasks[name].definition is not None:
            # an error if the data file was edited during training: the prediction file repeats it
            manifests.recorded_file(folder, name, split, None)
    record.save(folder, multitask.tasks, predictions, paths)
    initial.save(folder / "encoder", initial.pooler)
    # the last file, as it tells that the run is finished
    kept_weights = state.describe_kept_weights(training, steps.total)
    evaluate.save_scores(folder, scores, state, training.keep, kept_weights)
    cli.say(f"\n{evaluate.as_text(scores, state, kept_weights)}")
    run.folder.record_step(state.step)
    cli.run_module("tasks.report", str(folder))
    folders = sorted({str(path.parent) for path in paths.values()})
    cli.say(f"predictions in {', '.join(folders)}; scores.json and the encoder/ in {folder}")


command = partial(cli.run, main)
"""The console command `minbert-train`."""

if __name__ == "__main__":
    command()
