"""Fine-tune one encoder on sentiment, paraphrase and similarity together, and write the leaderboard's files.

python multitask_train.py --data data/sample --weights minilm
python multitask_train.py --encoder runs/cbcl/encoder --run-dir runs/cbcl-multitask
"""

import sys
from typing import NoReturn

from minbert.training import cli
from minbert.training.settings import Parsed, parse
from tasks.settings import PRESETS, MultitaskSettings


def main() -> None:
    """Read the settings, then train."""
    about, script = __doc__.splitlines()[0], "multitask_train.py"
    train(parse(MultitaskSettings, PRESETS, sys.argv[1:], program=script, about=about, default="default"))


def train(parsed: Parsed[MultitaskSettings]) -> None:
    """Read the tasks, build the model and the schedule, train, predict, evaluate, save, and write the report."""
    from minbert import weights
    from minbert.optimizer import AdamW
    from minbert.training import loop, plan, ranks
    from minbert.training.start import Start
    from tasks import evaluate, model, record, registry, splits
    from tasks.augment import resource_hashes, synonym_augmentation

    settings, training = parsed.settings, parsed.settings.training
    started = Start.of(parsed)
    run, device, precision = started.run, started.device, started.precision

    # read the tasks
    tasks = registry.build(settings.data.tasks, settings.model.pairs, "--tasks")
    paths = record.prediction_paths(tasks, settings)
    files = splits.find(tasks, settings, paths)
    resources = resource_hashes(settings.synonyms, "finetune", settings.files.data)
    encoder, tokenizer, length = started.encoder()
    sentences, sha256 = model.sentence_encoder(settings, encoder, tokenizer)
    started.identity |= sha256
    data = splits.read(tasks, files, settings, tokenizer, length)
    started.check(data.hashes | resources)

    # build the encoder, the heads and the optimizer
    multitask = model.build(settings, encoder, tasks, sentences)
    optimizer = AdamW(model.parameter_groups(multitask, training), lr=training.lr)
    count = sum(p.numel() for p in multitask.parameters() if p.requires_grad)

    # make the schedule
    steps, sizes = splits.make_schedule(settings, data.train)
    folder, how = settings.files.data, settings.synonyms
    augment, said = synonym_augmentation(how, training, "finetune", data.train, tokenizer, data=folder, run=run.path)
    account = {"data": data.account(), "plan": plan.describe(steps), "training_rows": sizes, "parameters": count}
    started.begin(**account, **said)
    shown = ", ".join(f"{task.title} {sizes[task.name]:,}" for task in tasks)
    ranks.say(f"{count:,} parameters, {started.where(encoder)}")
    ranks.say(f"{steps.total:,} step{'s' * (steps.total != 1)} of {training.batch_size}: {shown}")

    # train
    objective = model.MultitaskObjective(data.train, settings.schedule.accumulate, augment, training.r_drop)
    evaluation = evaluate.DevEvaluation(multitask, data.dev, precision)
    state = loop.fit(
        multitask,
        optimizer,
        objective,
        steps,
        run,
        training,
        settings.run,
        evaluation,
        device=device,
        precision=precision,
        tasks=len(tasks),
    )
    if ranks.rank():
        return

    # predict, evaluate, save, write the report
    outputs = evaluate.predict(multitask, data, paths, precision, evaluation.outputs_of_kept(state))
    found = evaluate.score(multitask.tasks, data, outputs)
    evaluate.save(run, multitask.tasks, data, outputs, paths)
    evaluate.save_scores(run.path, found, state, training.keep)
    pooler = settings.model.pooler
    weights.save(run.path / "encoder", encoder.state_dict(), started.config, tokenizer, pooler)
    cli.say(f"\n{evaluate.as_text(found, state, training.keep)}")
    run.reached(state.step, ended=True)
    cli.run_module("tasks.report", str(run.path), "--card")
    folders = sorted({str(path.parent) for path in paths.values()})
    cli.say(f"predictions in {', '.join(folders)}; scores.json and the encoder/ in {run.path}")


def command() -> NoReturn:
    """The console command `minbert-train`: run `main`, and exit with its code."""
    cli.run(main)


if __name__ == "__main__":
    command()
