"""Data of multitask fine-tuning: train, dev and test examples of every task, and the training plan over them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import data_path, expand_user, require_file
from minbert.token_cache import TokenCache
from minbert.tokenizer import Tokenizer
from minbert.train import cli, distributed, plan, start
from minbert.train.run import InputFiles
from minbert.train.settings import flag_name
from tasks import readers, record, sampling
from tasks.examples import Examples, check_vocabulary, note_truncated
from tasks.readers.rows import SPLITS
from tasks.settings import MultitaskSettings
from tasks.task import Task

_PREFIXES = {"sst", "para", "sts"}  # of the flags for files
Paths = Mapping[tuple[str, str], Path]
"""(task, split) -> a file."""
Splits = Mapping[str, Mapping[str, Examples]]
"""split -> task -> its examples."""


def prediction_paths(tasks: Sequence[Task], settings: MultitaskSettings) -> Paths:
    """(task, split) -> path of the prediction file. Raises `UserError` if a given path cannot be written."""
    paths: dict[tuple[str, str], Path] = {}
    for task in tasks:
        for split in task.splits:
            if split == "train":
                continue
            flag = getattr(settings.files, f"{task.files.flag_prefix}_{split}_out", "")
            path = expand_user(settings.run.run_dir) / "predictions" / record.prediction_file(task, split)
            if flag:
                path = expand_user(flag).absolute()
                cli.require_writable(path, f"--{task.files.flag_prefix}-{split}-out")
            paths[task.name, split] = path
    return paths


def find_splits(tasks: Sequence[Task], settings: MultitaskSettings, prediction_paths: Paths) -> Paths:
    """The data file of every split of every task.

    Warns of a flag for a file of another task. Raises `UserError` if a file is missing, or if a prediction file would
    replace it or another prediction file.
    """
    files = {}
    for task in tasks:
        for split in task.splits:
            # a flag such as --sst-train; a task of a user's own may have none
            path_in_flag = getattr(settings.files, f"{task.files.flag_prefix}_{split}", "")
            if split in task.paths:
                path = task.paths[split]
            elif path_in_flag:
                path = require_file(expand_user(path_in_flag), f"--{task.files.flag_prefix}-{split}")
            else:
                path = readers.find_file(data_path(settings.files.data), "course", [getattr(task.files, split)])
            files[task.name, split] = path
    # before the run: at its end one file would silently replace the other
    used = {path.resolve() for path in files.values()}
    for path in prediction_paths.values():
        if path.resolve() in used:
            raise UserError(f"{path}: is a data file or another prediction file; see the --*_out flags")
        used.add(path.resolve())
    others = _PREFIXES - {task.files.flag_prefix for task in tasks}
    for name, value in asdict(settings.files).items():
        if value and name.partition("_")[0] in others:
            distributed.note(f"{flag_name(name)} has no effect with --tasks {settings.data.tasks}")
    return files


def manifest_entry(data: Splits) -> dict[str, Any]:
    """The data read, for the manifest: split -> task -> file, hash and skipped rows."""
    entry: dict[str, Any] = {}
    for split, examples_of in data.items():
        entry[split] = {}
        for name, examples in examples_of.items():
            entry[split][name] = examples.cache.manifest_entry() | examples.cache.report
    return entry


def inputs(data: Splits) -> InputFiles:
    """`"{split} {task}"` -> the data file and its hash."""
    files = {}
    for split, examples_of in data.items():
        for name, examples in examples_of.items():
            files[f"{split} {name}"] = (examples.cache.source, examples.cache.sha256)
    return files


def read(tasks: Sequence[Task], files: Paths, settings: MultitaskSettings, tokenizer: Tokenizer, length: int) -> Splits:
    """Read the examples of every split of every task; warns about truncated inputs and skipped rows."""
    data: dict[str, dict[str, Examples]] = {split: {} for split in SPLITS}
    for task in tasks:
        for split in task.splits:
            path = files[task.name, split]
            examples = task.open(path, split, tokenizer, length)
            check_vocabulary(str(path), examples, allow=settings.data.allow_unknown)
            skipped = len(examples.cache.skipped)
            rows = examples.cache.read
            if split == "train":
                limit = settings.data.limit
                drawn = plan.random_subset(len(examples), limit, settings.training.seed, "limit", task.name)
                if limit > len(examples):
                    distributed.note(f"--limit {limit:,}: {task.name} has only {len(examples):,} rows")
            else:
                # by seed 0 and not by --seed, so that runs with other seeds are scored on the same rows
                drawn = plan.random_subset(len(examples), settings.data.limit_eval, 0, "limit", task.name, split)
            examples = replace(examples, cache=examples.cache.subset(drawn))
            data[split][task.name] = examples
            note_truncated(str(path), examples, task.pairs)
            if skipped:
                distributed.note(f"{path}: {skipped:,} of {rows:,} rows skipped (listed in manifest.json)")
        data["dev"][task.name] = _with_duplicates(data["train"][task.name].cache, data["dev"][task.name])
    return data


def _with_duplicates(train: TokenCache, dev: Examples) -> Examples:
    """The dev rows, with the number of those whose texts are a training row's, for the manifest; says so if any."""
    train_texts = {tuple(row.texts) for row in train.rows()}
    count = sum(tuple(row.texts) in train_texts for row in dev.cache.rows())
    if count:
        distributed.note(f"{dev.cache.source}: {count:,} of {len(dev):,} dev rows have the texts of a training row")
    return replace(dev, cache=replace(dev.cache, report=dev.cache.report | {"in_train": count}))


def make_plan(settings: MultitaskSettings, train: Mapping[str, Examples]) -> tuple[plan.Plan, dict[str, int]]:
    """The training plan, and the number of training rows per task."""
    training = settings.training
    sizes = {name: len(examples) for name, examples in train.items()}
    for name, size in sizes.items():
        start.note_rows(name, size, training)
    full = sampling.plan(
        settings.schedule.sampling,
        sizes,
        epochs=training.epochs,
        batch_size=training.batch_size,
        seed=training.seed,
        power=settings.schedule.power,
    )
    return plan.first_steps(full, training.max_steps), sizes
