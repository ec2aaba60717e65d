"""Data of multitask fine-tuning: train, dev and test examples of every task, and the training plan over them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import data_folder, expand_user, require_file
from minbert.tokenizer import Tokenizer
from minbert.train import distributed, plan, start
from minbert.train.run import InputFiles
from tasks import readers, sampling
from tasks.settings import MultitaskSettings
from tasks.task import SPLITS, Task

Paths = Mapping[tuple[str, str], Path]
"""(task, split) -> a file."""
Splits = Mapping[str, Mapping[str, Any]]
"""split -> task -> its examples."""


def find_splits(tasks: Sequence[Task], settings: MultitaskSettings, outputs: Paths) -> Paths:
    """The data file of every split of every task.

    Raises `UserError` if a file is missing, if its header does not fit the task, or if it is also the path of a
    prediction file, which would overwrite it.
    """
    files, written = {}, [path.resolve() for path in outputs.values()]
    for task in tasks:
        for split in SPLITS:
            chosen = getattr(settings.files, f"{task.files.short}_{split}", "")
            if chosen:
                path = expand_user(chosen)
            else:
                path = readers.find_file(data_folder(settings.files.data), "course", [getattr(task.files, split)])
            readers.open_as(require_file(path), task.kind, split, classes=task.class_count)
            if path.resolve() in written:
                raise UserError(f"{path}: a --*_out flag names this data file, which the predictions would replace")
            files[task.name, split] = path
    return files


def manifest_entry(data: Splits) -> dict[str, Any]:
    """The data read, for the manifest: split -> task -> file, hash and skipped rows."""
    return {
        split: {name: rows.cache.manifest_entry() | rows.cache.report for name, rows in of_split.items()}
        for split, of_split in data.items()
    }


def inputs(data: Splits) -> InputFiles:
    """`"{split} {task}"` -> the data file and its hash."""
    caches = {f"{split} {name}": rows.cache for split, of_split in data.items() for name, rows in of_split.items()}
    return {name: (cache.source, cache.sha256) for name, cache in caches.items()}


def read(tasks: Sequence[Task], files: Paths, settings: MultitaskSettings, tokenizer: Tokenizer, length: int) -> Splits:
    """Read the examples of every split of every task; warns about truncated inputs and skipped rows."""
    splits: dict[str, dict[str, Any]] = {split: {} for split in SPLITS}
    for task in tasks:
        for split in SPLITS:
            path = files[task.name, split]
            examples = task.open(path, split, tokenizer, length)
            if split != "train" and settings.data.limit_eval:
                examples = replace(examples, cache=examples.cache.first(settings.data.limit_eval))
            splits[split][task.name] = examples
            (cut, inputs), skipped = examples.truncated(task.pairs), len(examples.cache.skipped)
            if cut:
                distributed.note(
                    f"{path}: {cut:,} of {inputs:,} inputs are longer than {length} tokens and are truncated"
                )
            if skipped:
                distributed.note(
                    f"{path}: {skipped:,} of {examples.cache.read:,} rows skipped (listed in manifest.json)"
                )
        _note_dev_in_train(files[task.name, "train"], files[task.name, "dev"])
    return splits


def _note_dev_in_train(train: Path, dev: Path) -> None:
    """Warn if all rows of one file are lines of the other: dev scores are then those of training rows."""
    trained, judging = (set(path.read_bytes().splitlines()[1:]) for path in (train, dev))
    if trained <= judging or judging <= trained:
        part = "is the same as" if trained == judging else "has all rows of" if trained < judging else "is a part of"
        distributed.note(f"{dev} {part} {train}: its scores are those of training rows")


def make_schedule(settings: MultitaskSettings, train: Mapping[str, Any]) -> tuple[plan.Plan, dict[str, int]]:
    """The training plan, and the number of training rows per task: all, or at most `--limit`."""
    training, limit = settings.training, settings.data.limit
    rows = {name: plan.random_subset(len(examples), limit, training.seed, name) for name, examples in train.items()}
    sizes = {name: len(chosen) for name, chosen in rows.items()}
    for name, examples in train.items():
        if limit > len(examples):
            distributed.note(f"--limit {limit:,}: {name} has only {len(examples):,} rows")
        start.note_rows(name, sizes[name], training)
    options = {"epochs": training.epochs, "batch_size": training.batch_size, "seed": training.seed}
    full = sampling.plan(settings.schedule.sampling, sizes, **options, power=settings.schedule.power)
    return start.shortened(plan.over_rows(full, rows), training), sizes
