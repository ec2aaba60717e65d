"""Fine-tune one encoder on sentiment, paraphrase and similarity together, and write the leaderboard's files.

python multitask_train.py --data data/sample --weights minilm
python multitask_train.py --encoder runs/cbcl/encoder --run-dir runs/cbcl-multitask
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.training import cli
from tasks.settings import PRESETS, MultitaskSettings

if TYPE_CHECKING:
    from minbert.tokenizer import Tokenizer
    from tasks.task import Task

Splits = dict[str, dict[str, Any]]


def open_data(tasks: "list[Task[Any]]", settings: MultitaskSettings, tokenizer: "Tokenizer", length: int) -> Splits:
    """The examples of every split of every task."""
    from minbert.training import start
    from tasks import readers
    from tasks.task import SPLITS

    data: Splits = {split: {} for split in SPLITS}
    for task in tasks:
        for split in SPLITS:
            given = getattr(settings, f"{task.files.short}_{split}")
            usual = getattr(task.files, split)
            path = Path(given) if given else readers.find(start.data_folder(settings.data), "course", [usual])
            examples = data[split][task.name] = task.open(path, split, tokenizer, length)
            cut, skipped = task.truncated(examples), len(examples.cache.skipped)
            if cut:
                start.warn(f"{path}: {cut} of {len(examples)} inputs are longer than {length} tokens and are cut")
            if skipped:
                start.warn(f"{path}: {skipped} of {len(examples) + skipped} rows skipped (listed in manifest.json)")
    return data


def output_paths(tasks: "list[Task[Any]]", settings: MultitaskSettings) -> dict[tuple[str, str], Path]:
    """Where each prediction file goes."""
    from minbert.errors import UserError
    from tasks.predictions import file_name

    paths = {}
    for task in tasks:
        for split in ("dev", "test"):
            given = getattr(settings, f"{task.files.short}_{split}_out")
            usual = Path(settings.run_dir) / "predictions" / file_name(task, split)
            path = paths[task.name, split] = Path(given).absolute() if given else usual
            if given and (path.is_dir() or not os.access(path.parent, os.W_OK)):
                raise UserError(f"--{task.files.short}-{split}-out {given}: no file can be written there")
    return paths


def main() -> None:
    """Settings, read, build, fit, evaluate, write."""
    about = __doc__.splitlines()[0]
    parsed = cli.parse(
        MultitaskSettings, PRESETS, sys.argv[1:], program="multitask_train.py", about=about, default="default"
    )
    settings = parsed.settings
    notes = settings.ignored(parsed.overrides)

    import torch

    from minbert import weights
    from minbert.config import BertConfig
    from minbert.files import write_json
    from minbert.optimizer import AdamW, decay_groups
    from minbert.precision import choose
    from minbert.seeds import torch_seed
    from minbert.training import loop, plan, ranks, start
    from minbert.training.rundir import RunDir
    from tasks import evaluate, predictions, registry, schedule
    from tasks.model import MultitaskModel, MultitaskObjective

    for note in notes:
        start.warn(note)
    device = start.device(demanded=settings.use_gpu)
    precision = choose(settings.precision, device)
    tasks = registry.build(settings.tasks, settings.pairs)
    paths = output_paths(tasks, settings)
    encoder, tokenizer, folder = start.encoder(settings.source, settings.encoder_dropout)
    data = open_data(tasks, settings, tokenizer, start.max_length(settings.max_length, encoder.config))

    accounts = {split: {name: one.cache.account() for name, one in data[split].items()} for split in data}
    hashes = {f"data {split} {name}": one["sha256"] for split in data for name, one in accounts[split].items()}
    identity = cli.identity(settings) | hashes
    run = RunDir.open(Path(settings.run_dir), resume=settings.resume, identity=identity)
    ranks.wait()  # the first rank begins to write when all have looked at the folder

    torch.manual_seed(torch_seed(settings.seed, "heads"))
    frozen = settings.fine_tune_mode == "last-linear-layer"
    model = MultitaskModel(encoder, tasks, settings.hidden_dropout_prob, frozen=frozen).to(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = AdamW(decay_groups(trained, settings.weight_decay), lr=settings.rate)
    steps = schedule.plan(
        settings.sampling,
        {name: len(examples) for name, examples in data["train"].items()},
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        seed=settings.seed,
        power=settings.power,
    )
    if ranks.rank() == 0:
        more = {"data": accounts, "plan": plan.describe(steps), "parameters": sum(p.numel() for p in trained)}
        run.begin(start.manifest(parsed, identity, folder, precision=precision, on=device, **more))
        print(
            f"{sum(p.numel() for p in trained):,} parameters in {precision} on {device}, {steps.total:,} steps of "
            f"{settings.batch_size}: " + ", ".join(f"{task.title} {len(data['train'][task.name]):,}" for task in tasks)
        )
    state = loop.fit(
        model,
        optimizer,
        MultitaskObjective(data["train"], settings.accumulate),
        steps,
        run,
        start.loop_settings(settings, precision),
        lambda: evaluate.dev_scores(model, data["dev"], precision),
        device=device,
        resume=settings.resume,
    )
    if ranks.rank():
        return

    scores: dict[str, Any] = {"dev_norm": state.best, "step": state.best_step, "tasks": {}}
    for task in tasks:
        for split in ("dev", "test"):
            examples = data[split][task.name]
            predicted = evaluate.predictions(model, task, examples, precision)
            predictions.write(paths[task.name, split], task, examples, predicted)
            if split == "dev":
                scores["tasks"][task.name] = report = evaluate.report(task, predicted, examples.labels)
                print("\n" + evaluate.as_text(task.title, report))
    weights.save(run.path / "encoder", model.encoder.state_dict(), BertConfig.read(folder), tokenizer, "pooler")
    write_json(run.path / "scores.json", scores)
    print(f"\ndev norm {state.best:.4f} (best of the evaluations, at step {state.best_step:,})")
    print(f"predictions in {run.path / 'predictions'}, the encoder in {run.path / 'encoder'}, scores in scores.json")


if __name__ == "__main__":
    cli.run(main)
