"""Fine-tune one encoder on sentiment, paraphrase and similarity together, and write the leaderboard's files.

python multitask_train.py --data data/sample --weights minilm
python multitask_train.py --encoder runs/cbcl/encoder --run-dir runs/cbcl-multitask
"""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.training import cli
from minbert.training.settings import parse
from tasks.settings import PRESETS, MultitaskSettings

if TYPE_CHECKING:
    import torch

    from minbert.bert import BertModel
    from minbert.optimizer import AdamW
    from minbert.tokenizer import Tokenizer
    from minbert.training.loop import LoopState
    from minbert.training.plan import Plan
    from minbert.training.rundir import RunDir
    from tasks.model import MultitaskModel
    from tasks.predictions import Paths
    from tasks.task import Task

Splits = dict[str, dict[str, Any]]


def find_data(tasks: "list[Task[Any]]", settings: MultitaskSettings, outputs: "Paths") -> "Paths":
    """The file of every split of every task.

    Raises `UserError` where it is not there, its header cannot be used, or a prediction file would replace it.
    """
    from minbert.errors import UserError
    from minbert.training import start
    from tasks import readers
    from tasks.task import SPLITS

    found, written = {}, [path.resolve() for path in outputs.values()]
    for task in tasks:
        for split in SPLITS:
            given = getattr(settings.files, f"{task.files.short}_{split}", "")
            usual = getattr(task.files, split)
            path = Path(given) if given else readers.find(start.data_folder(settings.files.data), "course", [usual])
            task.check(path, split, settings.data.columns_of(task.name))
            if path.resolve() in written:
                raise UserError(f"{path}: a --*_out flag names this data file, which the predictions would replace")
            found[task.name, split] = path
    return found


def open_data(
    tasks: "list[Task[Any]]", files: "Paths", settings: MultitaskSettings, tokenizer: "Tokenizer", length: int
) -> Splits:
    """The examples of every split of every task."""
    from minbert.training import start
    from tasks.task import SPLITS

    data: Splits = {split: {} for split in SPLITS}
    for task in tasks:
        for split in SPLITS:
            path = files[task.name, split]
            examples = task.open(path, split, tokenizer, length, settings.data.columns_of(task.name))
            data[split][task.name] = examples
            (cut, inputs), skipped = task.truncated(examples), len(examples.cache.skipped)
            if cut:
                start.warn(f"{path}: {cut:,} of {inputs:,} inputs are longer than {length} tokens and are cut")
            if skipped:
                start.warn(f"{path}: {skipped} of {len(examples) + skipped} rows skipped (listed in manifest.json)")
    return data


def build(
    settings: MultitaskSettings, encoder: "BertModel", tasks: "list[Task[Any]]", device: "torch.device"
) -> "tuple[MultitaskModel, AdamW]":
    """The model with fresh heads, and the optimizer of what is trained."""
    import torch

    from minbert.optimizer import AdamW, decay_groups
    from minbert.seeds import torch_seed
    from tasks.model import MultitaskModel

    torch.manual_seed(torch_seed(settings.training.seed, "heads"))
    frozen = settings.model.fine_tune_mode == "last-linear-layer"
    model = MultitaskModel(encoder, tasks, settings.model.hidden_dropout_prob, frozen=frozen).to(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    return model, AdamW(decay_groups(trained, settings.training.weight_decay), lr=settings.training.lr)


def make_plan(settings: MultitaskSettings, train: "dict[str, Any]") -> "tuple[Plan, dict[str, int]]":
    """The steps of a run, and how many rows of each task it trains on: all, or `--limit` of them."""
    from minbert.training import plan, start
    from tasks import schedule

    training, limit = settings.training, settings.data.limit
    rows = {name: plan.drawn(len(one), limit, training.seed, name) for name, one in train.items()}
    sizes = {name: len(chosen) for name, chosen in rows.items()}
    for name, one in train.items():
        if limit > len(one):
            start.warn(f"--limit {limit:,}: {name} has only {len(one):,} rows")
        start.note_rows(name, sizes[name], training)
    how = {"epochs": training.epochs, "batch_size": training.batch_size, "seed": training.seed}
    whole = schedule.plan(settings.schedule.sampling, sizes, **how, power=settings.schedule.power)
    return start.shortened(plan.among(whole, rows), training), sizes


def write_scores(
    run: "RunDir",
    model: "MultitaskModel",
    data: Splits,
    paths: "Paths",
    state: "LoopState",
    settings: MultitaskSettings,
    precision: str,
) -> list[str]:
    """Predict with the kept model, write the leaderboard's files and `scores.json`; returns the scores as text."""
    from minbert.files import write_json
    from tasks import evaluate, predictions, record

    keep = settings.training.keep
    about = {
        "step": state.kept_step,
        "keep": keep,
        "best_step": state.best_step,
        "last_step": state.step,
    }
    scores: dict[str, Any] = {"dev_norm": state.kept_score, **about, "tasks": {}}
    tables = []
    for (name, split), path in paths.items():
        task, examples = model.tasks[name], data[split][name]
        outputs = evaluate.outputs(model, task, examples, precision)
        predicted = task.predict(outputs)
        predictions.write(path, task, examples, predicted)
        if split == "dev":
            record.write_rows(run.path, name, record.task_rows(task, examples, outputs))
            scores["tasks"][name] = report = evaluate.report(task, predicted, examples.labels)
            tables.append(evaluate.as_text(task.title, report))
    write_json(run.path / "scores.json", scores)
    which = f"step {state.kept_step:,} of {state.step:,}, {'the last' if keep == 'last' else 'the best evaluation'}"
    others = (
        f"; the best was {state.best:.4f} at step {state.best_step:,}" if state.kept_step != state.best_step else ""
    )
    return [*tables, f"dev norm {state.kept_score:.4f} ({which}{others})"]


def main() -> None:
    """Settings, read, build, fit, evaluate, write."""
    names = {"program": "multitask_train.py", "about": __doc__.splitlines()[0], "default": "default"}
    parsed = parse(MultitaskSettings, PRESETS, sys.argv[1:], **names)
    settings, notes = parsed.settings, parsed.settings.ignored(parsed.overrides)

    from minbert import weights
    from minbert.config import BertConfig
    from minbert.training import loop, plan, ranks, start
    from minbert.training.rundir import RunDir
    from tasks import evaluate, predictions, registry
    from tasks.augment import synonyms
    from tasks.model import MultitaskObjective
    from tasks.report import page

    device = start.device(demanded=settings.run.use_gpu)
    start.warn(*notes)
    precision = start.number_format(settings.training.precision, device)
    tasks = registry.build(settings.data.tasks, settings.model.pairs)
    paths = predictions.paths(tasks, settings)
    run = RunDir.open(Path(settings.run.run_dir), resume=settings.run.resume, identity=settings.identity())
    source = settings.encoder.source
    files = find_data(tasks, settings, paths)
    resources = synonyms.hashes(settings.synonyms, "finetune", settings.files.data)
    encoder, tokenizer, folder = start.encoder(source, settings.encoder.encoder_dropout)
    data = open_data(tasks, files, settings, tokenizer, start.max_length(settings.encoder.max_length, encoder.config))

    accounts = {split: {name: one.cache.account() for name, one in data[split].items()} for split in data}
    hashes = {f"{split} {name}": one["sha256"] for split in data for name, one in accounts[split].items()}
    identity = start.identity(settings, resources | hashes, folder, precision=precision, on=device)
    run.check(identity)
    ranks.wait()  # the first rank begins to write when all have looked at the folder

    augment, account = synonyms.augmentation(
        settings.synonyms,
        settings.training,
        "finetune",
        data["train"],
        tokenizer,
        data=settings.files.data,
        run=run.path,
    )
    model, optimizer = build(settings, encoder, tasks, device)
    steps, sizes = make_plan(settings, data["train"])
    if ranks.rank() == 0:
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        more = {"data": accounts, "plan": plan.describe(steps), "training_rows": sizes, "parameters": count}
        more |= account | {"selection": settings.selection}
        start.begin(run, start.manifest(parsed, identity, folder, precision=precision, on=device, **more))
        shown = ", ".join(f"{task.title} {sizes[task.name]:,}" for task in tasks)
        cli.say(f"{count:,} parameters, {precision} on {device}, {start.attention_path(encoder, precision, device)}")
        cli.say(f"{steps.total:,} steps of {settings.training.batch_size}: {shown}")
    objective = MultitaskObjective(data["train"], settings.schedule.accumulate, augment)
    scores = partial(evaluate.dev_scores, model, data["dev"], precision)
    state = loop.fit(
        model,
        optimizer,
        objective,
        steps,
        run,
        settings.training,
        settings.run,
        scores,
        device=device,
        precision=precision,
        tasks=len(tasks),
    )
    if ranks.rank():
        return

    tables = write_scores(run, model, data, paths, state, settings, precision)
    weights.save(run.path / "encoder", model.encoder.state_dict(), BertConfig.read(folder), tokenizer, "pooler")
    cli.say("\n" + "\n\n".join(tables))
    folders = sorted({str(path.parent) for path in paths.values()})
    cli.say(f"report: {page.write_report([run.path])}")
    cli.say(f"predictions in {', '.join(folders)}; scores.json and the encoder/ in {run.path}")


if __name__ == "__main__":
    cli.run(main)
